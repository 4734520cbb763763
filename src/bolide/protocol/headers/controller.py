"""Headers of the controller, which elects masters (5.x)."""

from bolide.protocol.header import Header, Int, Long


class MetadataReply(Header, frozen=True, kw_only=True):
    """Answer to CONTROLLER_GET_METADATA_INFO; peers as "n0:host:port;n1:…".

    RocketMQ's controllers write peers without ids when they run on JRaft.
    """

    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool
    peers: str | None = None
    quorum_id: str | None = None
    """Ours: equal at the controllers of one quorum only; empty before there was a leader."""


class NextBrokerIdHeader(Header, frozen=True):
    """CONTROLLER_GET_NEXT_BROKER_ID."""

    cluster_name: str
    broker_name: str


class NextBrokerIdReply(Header, frozen=True):
    """The next free id of the broker group, from 1."""

    cluster_name: str
    broker_name: str
    next_broker_id: Long


class ApplyBrokerIdHeader(Header, frozen=True):
    """CONTROLLER_APPLY_BROKER_ID; the check code is "address;milliseconds"."""

    cluster_name: str
    broker_name: str
    applied_broker_id: Long
    register_check_code: str


class ApplyBrokerIdReply(Header, frozen=True):
    """Answer to CONTROLLER_APPLY_BROKER_ID."""

    cluster_name: str | None = None
    broker_name: str | None = None


class RegisterBrokerHeader(Header, frozen=True, kw_only=True):
    """CONTROLLER_REGISTER_BROKER."""

    cluster_name: str
    broker_name: str
    broker_id: Long
    broker_address: str
    invoke_time: Long = 0
    restarted: bool = False
    """Ours: the process of the broker is new. If it was master, it must be elected again."""
    lost_tail: bool = False
    """Ours: after a power cut the log may lack what was not on the disk."""
    process_id: str | None = None
    """Ours: another one for each process of the broker, so that a late repeat is told apart."""
    confirms_terms: bool = False
    """Ours: as master it takes no message before it has sent `begins` for its epoch."""


class RegisterBrokerReply(Header, frozen=True):
    """The current master, if there is one."""

    cluster_name: str | None = None
    broker_name: str | None = None
    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: Int | None = None
    sync_state_set_epoch: Int | None = None
    quorum_id: str | None = None
    """Ours: of the controller; see `MetadataReply`."""


class ElectMasterHeader(Header, frozen=True, kw_only=True):
    """CONTROLLER_ELECT_MASTER; id -1 lets the controller choose."""

    cluster_name: str
    broker_name: str
    broker_id: Long
    designate_elect: bool
    invoke_time: Long = 0


class ElectMasterReply(Header, frozen=True):
    """Answer to CONTROLLER_ELECT_MASTER."""

    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: Int | None = None
    sync_state_set_epoch: Int | None = None


class AlterSyncStateSetHeader(Header, frozen=True, kw_only=True):
    """CONTROLLER_ALTER_SYNC_STATE_SET."""

    broker_name: str
    master_broker_id: Long
    master_epoch: Int
    invoke_time: Long = 0
    renew: bool = False
    """Ours: a set of the same members gets a new epoch, too, which voids changes of the old one."""
    begins: bool = False
    """Ours: the master confirms that its term begins. The set is the present one and stays; other
    controllers refuse it for that reason, and keep no earlier set."""


class AlterSyncStateSetReply(Header, frozen=True):
    """Answer to CONTROLLER_ALTER_SYNC_STATE_SET."""

    new_sync_state_set_epoch: Int


class ReplicaHeader(Header, frozen=True):
    """CONTROLLER_GET_REPLICA_INFO."""

    broker_name: str


class ReplicaReply(Header, frozen=True):
    """Answer to CONTROLLER_GET_REPLICA_INFO."""

    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: Int | None = None


class RoleChangedHeader(Header, frozen=True, kw_only=True):
    """NOTIFY_BROKER_ROLE_CHANGED, controller to broker; no master while none is elected."""

    master_address: str | None = None
    master_epoch: Int
    sync_state_set_epoch: Int
    master_broker_id: Long | None = None
    quorum_id: str | None = None
    """Ours: of the controller; see `MetadataReply`."""


class BrokerHeartbeatReply(Header, frozen=True, kw_only=True):
    """Our controller's answer to BROKER_HEARTBEAT; RocketMQ's brokers do not wait for one.

    The lease counts from the moment at which the broker sent its heartbeat; 0 is none, which is
    what all but the master get. Without a master its id and address are absent; for a broker that
    is no member of the group the epochs are absent, too.
    """

    lease_millis: Int = 0
    heartbeat_millis: Int = 0
    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: Int | None = None
    sync_state_set_epoch: Int | None = None
    controller_leader_address: str | None = None
    quorum_id: str | None = None
    """See `MetadataReply`."""
    is_member: bool | None = None
    """False if the sender is not the broker that registered with its id, as the leader knows."""


class CleanBrokerHeader(Header, frozen=True, kw_only=True):
    """CLEAN_BROKER_DATA; ids as "1;2", without them the whole group."""

    cluster_name: str | None = None
    broker_name: str
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool = False
    invoke_time: Long = 0
