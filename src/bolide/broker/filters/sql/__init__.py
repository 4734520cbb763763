"""RocketMQ's SQL92 dialect: from text to a test of message properties, with Java's verdicts.

It knows no brokers: `compile_sql` takes text, the test takes a property string or a record.
"""

from bolide.broker.filters.sql.compiler import Compiled, compile_sql, is_compiled
from bolide.broker.filters.sql.values import BadExpression

__all__ = ["BadExpression", "Compiled", "compile_sql", "is_compiled"]
