"""Messages as Arrow tables, without a JVM: `read_topic` and `read_commit_log`.

Importing the package loads nothing heavy: public names are resolved on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bolide.arrow.commit_log import LogReader as LogReader
    from bolide.arrow.commit_log import read_commit_log as read_commit_log
    from bolide.arrow.errors import BadPosition as BadPosition
    from bolide.arrow.errors import BadValueSchema as BadValueSchema
    from bolide.arrow.errors import DataLost as DataLost
    from bolide.arrow.errors import LogDamaged as LogDamaged
    from bolide.arrow.errors import LogFileGone as LogFileGone
    from bolide.arrow.errors import NoCommitLog as NoCommitLog
    from bolide.arrow.errors import OutOfPatience as OutOfPatience
    from bolide.arrow.schema import message_schema as message_schema
    from bolide.arrow.topic_reader import TopicReader as TopicReader
    from bolide.arrow.topic_reader import read_topic as read_topic

_MODULES = {
    "BadPosition": "errors",
    "BadValueSchema": "errors",
    "DataLost": "errors",
    "LogDamaged": "errors",
    "LogFileGone": "errors",
    "LogReader": "commit_log",
    "NoCommitLog": "errors",
    "OutOfPatience": "errors",
    "TopicReader": "topic_reader",
    "message_schema": "schema",
    "read_commit_log": "commit_log",
    "read_topic": "topic_reader",
}

__all__ = [*_MODULES]  # noqa: PLE0604  all keys are strings


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)
