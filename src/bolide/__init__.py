"""Bolide: a RocketMQ-compatible messaging platform in Python.

Importing it loads nothing heavy: public names are found when they are first used.
"""

from importlib import import_module
from typing import Any

from bolide.version import __version__

_HOMES = {  # what type checkers read is in __init__.pyi
    "AdminClient": "bolide.admin",
    "BolideError": "bolide.errors",
    "CompressionType": "bolide.model.message",
    "InvalidMessage": "bolide.model.message_checks",
    "LitePullConsumer": "bolide.client.lite_pull_consumer",
    "Message": "bolide.model.message",
    "MessageQueue": "bolide.model.message_queue",
    "Producer": "bolide.client.producer",
    "PullConsumer": "bolide.client.pull_consumer",
    "PullSchedule": "bolide.client.pull_schedule",
    "PushConsumer": "bolide.client.push_consumer",
    "Retry": "bolide.client.consume",
    "SendResult": "bolide.client.results",
    "SendStatus": "bolide.client.results",
    "StoredMessage": "bolide.model.message",
}

__all__ = ["__version__", *_HOMES]  # noqa: PLE0604  all of them are texts


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(home), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
