"""What a consumer tells of itself when `consumerStatus` of mqadmin asks."""

from collections.abc import Iterable, Mapping

from bolide.client.consuming.consume_counters import ConsumptionCounters
from bolide.client.consuming.held_queue import HeldQueue
from bolide.client.consuming.membership import Membership
from bolide.protocol.bodies.consumers import RunningConsumer
from bolide.version import ROCKETMQ_VERSION_NAME


def running_consumer(
    member: Membership,
    helds: Iterable[HeldQueue],
    counters: ConsumptionCounters,
    properties: Mapping[str, object],
    *,
    started: float,
) -> RunningConsumer:
    """Fill the form; `started` is the time in seconds, and RocketMQ's tools want all of PROP_*."""
    servers = "".join(f"{address};" for address in member.instance.name_servers.addresses)
    shown = {
        "consumerGroup": member.group,
        "messageModel": member.model.value,
        "instanceName": member.instance.settings.instance_name,
        "clientIP": member.instance.settings.client_ip,
        "PROP_NAMESERVER_ADDR": servers,
        "PROP_CONSUME_TYPE": member.consume_type.value,
        "PROP_CLIENT_VERSION": ROCKETMQ_VERSION_NAME,
        "PROP_CONSUMER_START_TIMESTAMP": int(started * 1000),
        "PROP_CONSUMEORDERLY": False,
        "PROP_THREADPOOL_CORE_SIZE": 0,
        **properties,
    }
    return RunningConsumer(
        properties={name: _text(value) for name, value in shown.items()},
        subscription_set=[wanted.announced() for wanted in member.filters.values()],
        mq_table={held.queue: held.shown() for held in helds},
        status_table={topic: counters[topic].shown() for topic in member.filters},
    )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
