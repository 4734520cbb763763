"""Bodies of the controller, which elects masters (5.x)."""

from msgspec import field

from bolide.protocol.bodies.routes import MemberGroup
from bolide.protocol.fastjson import Struct
from bolide.protocol.header import Int, Long


class SyncStateSet(Struct, kw_only=True):
    """The broker ids whose copies are up to date: 1001, 1003, 1004, 1008."""

    sync_state_set: list[Long] = field(default_factory=list)
    sync_state_set_epoch: Int = 0


class ElectedMaster(Struct, kw_only=True):
    """Answer to CONTROLLER_ELECT_MASTER."""

    broker_member_group: MemberGroup | None = None
    sync_state_set: list[Long] = field(default_factory=list)


class Replica(Struct, kw_only=True):
    """One broker of a group."""

    broker_name: str
    broker_id: Long
    broker_address: str | None = None
    alive: bool = False


class Replicas(Struct, kw_only=True):
    """The state of one broker group."""

    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: Int = 0
    sync_state_set_epoch: Int = 0
    in_sync_replicas: list[Replica] = field(default_factory=list)
    not_in_sync_replicas: list[Replica] = field(default_factory=list)


class ReplicasTable(Struct, kw_only=True):
    """Answer to CONTROLLER_GET_SYNC_STATE_DATA, by broker name."""

    replicas_info_table: dict[str, Replicas] = field(default_factory=dict)
