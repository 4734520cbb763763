"""Bolide: a RocketMQ-compatible messaging platform in Python.

Importing it loads nothing heavy: public names are found when they are first used.
"""

from importlib import import_module
from typing import Any

from bolide.version import __version__

_HOMES = {  # what type checkers read is in __init__.pyi
    "AdminClient": "bolide.admin",
    "BolideError": "bolide.errors",
    "ClientTls": "bolide.remoting.tls",
    "CompressionType": "bolide.model.message",
    "FaultTable": "bolide.client.producing.faults",
    "FilterFunction": "bolide.client.consuming.subscription",
    "FlowLimits": "bolide.client.consuming.process_queue",
    "InvalidMessage": "bolide.model.message_checks",
    "LitePullConsumer": "bolide.client.consuming.lite_pull_consumer",
    "Message": "bolide.model.message",
    "MessageQueue": "bolide.model.message_queue",
    "PopConsumer": "bolide.client.consuming.pop_consumer",
    "Producer": "bolide.client.producing.producer",
    "PullConsumer": "bolide.client.consuming.pull_consumer",
    "PullResult": "bolide.client.consuming.pulling",
    "PullSchedule": "bolide.client.consuming.pull_schedule",
    "PullStatus": "bolide.client.consuming.pulling",
    "PullTurn": "bolide.client.consuming.pull_schedule",
    "PushConsumer": "bolide.client.consuming.push_consumer",
    "Retry": "bolide.client.consuming.consume",
    "SendResult": "bolide.client.producing.results",
    "SendStatus": "bolide.client.producing.results",
    "Sql": "bolide.client.consuming.subscription",
    "StoredMessage": "bolide.model.message",
    "Trace": "bolide.client.tracing.trace",
    "TransactionProducer": "bolide.client.producing.transactions",
    "TransactionResult": "bolide.client.producing.results",
    "TransactionState": "bolide.client.producing.results",
    "assignment": "bolide.client.consuming",
    "selectors": "bolide.client.producing",
}

_MODULES = {"assignment", "selectors"}

__all__ = ["__version__", *_HOMES]  # noqa: PLE0604  all of them are texts


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Some names are those of modules: `bolide.selectors`.
    inner = name in _MODULES
    found = import_module(f"{home}.{name}") if inner else getattr(import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
