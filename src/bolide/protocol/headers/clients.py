"""Headers about clients and their registration at a broker."""

from msgspec import field

from bolide.protocol.header import Header, Int


class HeartbeatReply(Header, frozen=True, kw_only=True):
    """Answer to HEART_BEAT, from 5.x brokers."""

    supports_v2: bool = field(name="IS_SUPPORT_HEART_BEAT_V2", default=False)
    subscription_changed: bool = field(name="IS_SUB_CHANGE", default=False)


class UnregisterClientHeader(Header, frozen=True, kw_only=True):
    """UNREGISTER_CLIENT."""

    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class ConsumerGroupHeader(Header, frozen=True):
    """A request about one consumer group: 38, 203 and, to clients, 40."""

    consumer_group: str


class ProducerGroupHeader(Header, frozen=True):
    """GET_PRODUCER_CONNECTION_LIST."""

    producer_group: str


class RunningInfoHeader(Header, frozen=True, kw_only=True):
    """GET_CONSUMER_RUNNING_INFO; the broker forwards it to the client."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeDirectlyHeader(Header, frozen=True, kw_only=True):
    """CONSUME_MESSAGE_DIRECTLY; the broker forwards it with its own name and the message."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None
