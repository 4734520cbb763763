"""The SQL92 dialect of RocketMQ: compiles text into a test of message properties, with Java's
results.

The package does not depend on the broker: `compile_sql` takes text, the test takes a property
string or a record.
"""

from bolide.broker.filters.sql.compiler import Compiled, compile_sql, is_compiled
from bolide.broker.filters.sql.values import BadExpression

__all__ = ["BadExpression", "Compiled", "compile_sql", "is_compiled"]
