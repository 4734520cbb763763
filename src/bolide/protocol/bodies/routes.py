"""Routes that a NameServer returns: queues of topics and members of clusters."""

import msgspec

from bolide.protocol.bodies.queues import QueueMapping
from bolide.protocol.fastjson import Struct
from bolide.protocol.header import Int


class QueueRoute(Struct, kw_only=True):
    """The queues of a topic on one broker group (`QueueData`)."""

    broker_name: str
    read_queue_nums: Int = 0
    write_queue_nums: Int = 0
    perm: Int = 0
    topic_sys_flag: Int = 0


class BrokerRoute(Struct, kw_only=True):
    """The addresses of one broker group by broker id (`BrokerData`)."""

    broker_name: str
    cluster: str | None = None
    broker_addrs: dict[int, str] = msgspec.field(default_factory=dict)
    enable_acting_master: bool = False
    zone_name: str | None = None


class TopicRoute(Struct, kw_only=True):
    """The queues and brokers of a topic (`TopicRouteData`)."""

    queue_datas: list[QueueRoute] = msgspec.field(default_factory=list)
    broker_datas: list[BrokerRoute] = msgspec.field(default_factory=list)
    filter_server_table: dict[str, list[str]] = msgspec.field(default_factory=dict)
    order_topic_conf: str | None = None
    topic_queue_mapping_by_broker: dict[str, QueueMapping] | None = None


class ClusterInfo(Struct, kw_only=True):
    """Brokers by name, and broker names by cluster."""

    broker_addr_table: dict[str, BrokerRoute] = msgspec.field(default_factory=dict)
    cluster_addr_table: dict[str, list[str]] = msgspec.field(default_factory=dict)


class MemberGroup(Struct, kw_only=True):
    """The members of one broker group (`BrokerMemberGroup`)."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str] = msgspec.field(default_factory=dict)


class MemberGroupBody(Struct, kw_only=True):
    """Answer to GET_BROKER_MEMBER_GROUP."""

    broker_member_group: MemberGroup


class TopicList(Struct, kw_only=True):
    """Topic names; `broker_addr` is a broker that has more of them."""

    topic_list: list[str] = msgspec.field(default_factory=list)
    broker_addr: str | None = None


class KvTable(Struct, kw_only=True):
    """Keys and values of one namespace."""

    table: dict[str, str] = msgspec.field(default_factory=dict)
