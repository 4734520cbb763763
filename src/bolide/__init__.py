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
    "FaultTable": "bolide.client.producer.queue_choice",
    "FilterFunction": "bolide.client.consumer.subscription",
    "FlowLimits": "bolide.client.consumer.group.held_queue",
    "InvalidMessage": "bolide.model.message_checks",
    "LitePullConsumer": "bolide.client.consumer.pull.lite_pull_consumer",
    "Message": "bolide.model.message",
    "MessageQueue": "bolide.model.message_queue",
    "PopConsumer": "bolide.client.consumer.pop.pop_consumer",
    "Producer": "bolide.client.producer.producer",
    "PullConsumer": "bolide.client.consumer.pull.pull_consumer",
    "PullResult": "bolide.client.consumer.pull.pull_request",
    "PullSchedule": "bolide.client.consumer.pull.pull_consumer",
    "PullStatus": "bolide.client.consumer.pull.pull_request",
    "PullTurn": "bolide.client.consumer.pull.pull_consumer",
    "PushConsumer": "bolide.client.consumer.push.push_consumer",
    "Retry": "bolide.client.consumer.handlers.handler",
    "SendResult": "bolide.client.producer.results",
    "SendStatus": "bolide.client.producer.results",
    "Sql": "bolide.client.consumer.subscription",
    "StoredMessage": "bolide.model.message",
    "Trace": "bolide.client.tracing.settings",
    "TransactionProducer": "bolide.client.producer.transactions",
    "TransactionResult": "bolide.client.producer.results",
    "TransactionState": "bolide.client.producer.results",
    "assignment": "bolide.client.consumer.group",
    "selectors": "bolide.client.producer",
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
