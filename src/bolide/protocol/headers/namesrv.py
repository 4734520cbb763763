"""Headers of the requests a NameServer answers or sends."""

import msgspec

from bolide.protocol.header import Header, Int, Long


class RouteHeader(Header, frozen=True):
    """GET_ROUTEINFO_BY_TOPIC. The zone fields come from clients with `zoneMode` on."""

    topic: str
    accept_standard_json_only: bool | None = None
    zone_mode: bool | None = msgspec.field(name="__ZONE_MODE", default=None)
    zone_name: str | None = msgspec.field(name="__ZONE_NAME", default=None)


class RegisterBrokerHeader(Header, frozen=True, kw_only=True):
    """REGISTER_BROKER. `enable_acting_master` is absent from a 4.x broker."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str | None = None
    broker_id: Long
    heartbeat_timeout_millis: Long | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: Int = 0
    zone_name: str | None = msgspec.field(name="__ZONE_NAME", default=None)


class RegisterBrokerReply(Header, frozen=True):
    """Address of the master, for a slave."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnregisterBrokerHeader(Header, frozen=True):
    """UNREGISTER_BROKER."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class QueryDataVersionHeader(Header, frozen=True):
    """QUERY_DATA_VERSION."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class QueryDataVersionReply(Header, frozen=True):
    """Whether the NameServer's version differs from the broker's."""

    changed: bool


class BrokerHeartbeatHeader(Header, frozen=True):
    """BROKER_HEARTBEAT, to a NameServer or a controller."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Long | None = None
    epoch: Int | None = None
    max_offset: Long | None = None
    confirm_offset: Long | None = None
    heartbeat_timeout_mills: Long | None = None
    election_priority: Int | None = None


class BrokerMemberGroupHeader(Header, frozen=True):
    """GET_BROKER_MEMBER_GROUP."""

    cluster_name: str
    broker_name: str


class MinBrokerIdChangeHeader(Header, frozen=True):
    """NOTIFY_MIN_BROKER_ID_CHANGE, NameServer to brokers, one-way."""

    min_broker_id: Long | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None


class RegisterTopicHeader(Header, frozen=True):
    """REGISTER_TOPIC_IN_NAMESRV."""

    topic: str


class KvHeader(Header, frozen=True):
    """GET_KV_CONFIG and DELETE_KV_CONFIG."""

    namespace: str
    key: str


class PutKvHeader(Header, frozen=True):
    """PUT_KV_CONFIG."""

    namespace: str
    key: str
    value: str


class KvReply(Header, frozen=True):
    """The value of a key."""

    value: str | None = None


class KvListHeader(Header, frozen=True):
    """GET_KVLIST_BY_NAMESPACE."""

    namespace: str


class BrokerNameHeader(Header, frozen=True):
    """WIPE_WRITE_PERM_OF_BROKER and ADD_WRITE_PERM_OF_BROKER."""

    broker_name: str


class WipeWritePermReply(Header, frozen=True):
    """How many topics lost the write bit."""

    wipe_topic_count: Int


class AddWritePermReply(Header, frozen=True):
    """How many topics got the write bit back."""

    add_topic_count: Int


class DeleteTopicHeader(Header, frozen=True):
    """DELETE_TOPIC_IN_NAMESRV; without a cluster the topic is deleted from all of them."""

    topic: str
    cluster_name: str | None = None


class ClusterHeader(Header, frozen=True):
    """GET_TOPICS_BY_CLUSTER."""

    cluster: str
