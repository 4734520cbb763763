"""The table of the protocol: header, body and server role of every request code."""

from dataclasses import dataclass
from enum import Flag, auto

from bolide.protocol.bodies import access as access_bodies
from bolide.protocol.bodies import consumers as consumer_bodies
from bolide.protocol.bodies import controller as controller_bodies
from bolide.protocol.bodies import filters as filter_bodies
from bolide.protocol.bodies import groups as group_bodies
from bolide.protocol.bodies import offsets as offset_bodies
from bolide.protocol.bodies import pop as pop_bodies
from bolide.protocol.bodies import queues as queue_bodies
from bolide.protocol.bodies import replication as replication_bodies
from bolide.protocol.bodies import routes as route_bodies
from bolide.protocol.bodies import stats as stats_bodies
from bolide.protocol.bodies import topics as topic_bodies
from bolide.protocol.bodies.audit import AuditPage
from bolide.protocol.bodies.data_version import DataVersion
from bolide.protocol.bodies.heartbeat import ClientCheck, Heartbeat
from bolide.protocol.bodies.locks import LockReply, LockRequest
from bolide.protocol.bodies.registration import RegisterBrokerBody
from bolide.protocol.bodies.timers import PendingTimers
from bolide.protocol.bodies.transactions import Transactions
from bolide.protocol.codes import RequestCode
from bolide.protocol.header import Header, NoHeader
from bolide.protocol.headers import (
    access,
    clients,
    controller,
    filters,
    groups,
    namesrv,
    offsets,
    pop,
    pull,
    query,
    replication,
    runtime,
    send,
    timers,
    topics,
    transactions,
)


class Role(Flag):
    """Roles of the processes that speak the protocol."""

    BROKER = auto()
    NAMESRV = auto()
    CLIENT = auto()
    CONTROLLER = auto()


NO_ROLE = Role(0)

Shape = type[object] | None
"""The type of a body; bytes stay as they are, str is UTF-8 text, None means no body."""


@dataclass(frozen=True, slots=True)
class RequestKind:
    """One row of the table. `SendHeader.from_short` decodes headers with short names."""

    header: type[Header] = NoHeader
    reply: type[Header] = NoHeader
    body: Shape = None
    reply_body: Shape = None
    answered_by: Role = Role.BROKER
    short_names: bool = False


def _unused(*codes: RequestCode) -> dict[RequestCode, RequestKind]:
    """Codes that RocketMQ defines but no server answers."""
    return {code: RequestKind(answered_by=NO_ROLE) for code in codes}


_SEND = {
    RequestCode.SEND_MESSAGE: RequestKind(send.SendHeader, send.SendReply, bytes),
    RequestCode.SEND_MESSAGE_V2: RequestKind(
        send.SendHeader, send.SendReply, bytes, short_names=True
    ),
    RequestCode.SEND_BATCH_MESSAGE: RequestKind(
        send.SendHeader, send.SendReply, bytes, short_names=True
    ),
    RequestCode.SEND_REPLY_MESSAGE: RequestKind(send.SendHeader, send.SendReply, bytes),
    RequestCode.SEND_REPLY_MESSAGE_V2: RequestKind(
        send.SendHeader, send.SendReply, bytes, short_names=True
    ),
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: RequestKind(
        send.PushReplyHeader, body=bytes, answered_by=Role.CLIENT
    ),
    RequestCode.CONSUMER_SEND_MSG_BACK: RequestKind(send.SendBackHeader),
    RequestCode.RECALL_MESSAGE: RequestKind(send.RecallHeader, send.RecallReply),
    RequestCode.END_TRANSACTION: RequestKind(transactions.EndTransactionHeader),
    RequestCode.CHECK_TRANSACTION_STATE: RequestKind(
        transactions.CheckTransactionHeader, body=bytes, answered_by=Role.CLIENT
    ),
    RequestCode.RESUME_CHECK_HALF_MESSAGE: RequestKind(transactions.ResumeCheckHeader),
    RequestCode.SWITCH_TIMER_ENGINE: RequestKind(runtime.TimerEngineHeader),
    RequestCode.BOLIDE_LIST_TIMERS: RequestKind(timers.ListTimersHeader, reply_body=PendingTimers),
    RequestCode.BOLIDE_RECALL_TIMERS: RequestKind(
        timers.RecallTimersHeader, reply_body=PendingTimers
    ),
    RequestCode.BOLIDE_LIST_TRANSACTIONS: RequestKind(
        transactions.ListTransactionsHeader, reply_body=Transactions
    ),
    RequestCode.BOLIDE_RESOLVE_TRANSACTION: RequestKind(transactions.ResolveTransactionHeader),
}

_CLIENTS = {
    RequestCode.HEART_BEAT: RequestKind(reply=clients.HeartbeatReply, body=Heartbeat),
    RequestCode.UNREGISTER_CLIENT: RequestKind(clients.UnregisterClientHeader),
    RequestCode.CHECK_CLIENT_CONFIG: RequestKind(body=ClientCheck),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: RequestKind(
        clients.ConsumerGroupHeader, reply_body=consumer_bodies.ConsumerIds
    ),
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: RequestKind(
        clients.ConsumerGroupHeader, answered_by=Role.CLIENT
    ),
    RequestCode.LOCK_BATCH_MQ: RequestKind(body=LockRequest, reply_body=LockReply),
    RequestCode.UNLOCK_BATCH_MQ: RequestKind(body=LockRequest),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: RequestKind(
        clients.ConsumerGroupHeader, reply_body=consumer_bodies.ConsumerConnections
    ),
    RequestCode.GET_PRODUCER_CONNECTION_LIST: RequestKind(
        clients.ProducerGroupHeader, reply_body=consumer_bodies.ProducerConnections
    ),
    RequestCode.GET_ALL_PRODUCER_INFO: RequestKind(reply_body=consumer_bodies.ProducerTable),
    RequestCode.GET_CONSUMER_RUNNING_INFO: RequestKind(
        clients.RunningInfoHeader,
        reply_body=consumer_bodies.RunningConsumer,
        answered_by=Role.BROKER | Role.CLIENT,
    ),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: RequestKind(
        clients.ConsumeDirectlyHeader,
        body=bytes,
        reply_body=consumer_bodies.DirectConsumption,
        answered_by=Role.BROKER | Role.CLIENT,
    ),
}

_PULL = {
    RequestCode.PULL_MESSAGE: RequestKind(pull.PullHeader, pull.PullReply, reply_body=bytes),
    RequestCode.LITE_PULL_MESSAGE: RequestKind(pull.PullHeader, pull.PullReply, reply_body=bytes),
    RequestCode.QUERY_MESSAGE: RequestKind(
        query.QueryMessageHeader, query.QueryMessageReply, reply_body=bytes
    ),
    RequestCode.VIEW_MESSAGE_BY_ID: RequestKind(query.ViewMessageHeader, reply_body=bytes),
    RequestCode.QUERY_CONSUME_QUEUE: RequestKind(
        query.ConsumeQueueHeader, reply_body=queue_bodies.ConsumeQueueSlice
    ),
}

_OFFSETS = {
    RequestCode.QUERY_CONSUMER_OFFSET: RequestKind(offsets.QueryOffsetHeader, offsets.OffsetReply),
    RequestCode.UPDATE_CONSUMER_OFFSET: RequestKind(offsets.CommitOffsetHeader),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: RequestKind(
        offsets.SearchOffsetHeader, offsets.OffsetReply
    ),
    RequestCode.GET_MAX_OFFSET: RequestKind(offsets.MaxOffsetHeader, offsets.OffsetReply),
    RequestCode.GET_MIN_OFFSET: RequestKind(offsets.QueueHeader, offsets.OffsetReply),
    RequestCode.GET_EARLIEST_MSG_STORETIME: RequestKind(
        offsets.QueueHeader, offsets.StoreTimeReply
    ),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: RequestKind(
        offsets.ResetOffsetHeader, reply_body=offset_bodies.ResetOffsets
    ),
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: RequestKind(
        offsets.ResetOffsetHeader, body=offset_bodies.ResetOffsets, answered_by=Role.CLIENT
    ),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: RequestKind(
        offsets.ConsumerStatusHeader, reply_body=offset_bodies.ConsumerStatus
    ),
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: RequestKind(
        offsets.ConsumerStatusHeader,
        reply_body=offset_bodies.ConsumerStatus,
        answered_by=Role.CLIENT,
    ),
    RequestCode.CLONE_GROUP_OFFSET: RequestKind(offsets.CloneOffsetsHeader),
    RequestCode.QUERY_CORRECTION_OFFSET: RequestKind(
        offsets.CorrectionOffsetHeader, reply_body=offset_bodies.CorrectionOffsets
    ),
    RequestCode.QUERY_CONSUME_TIME_SPAN: RequestKind(
        groups.TopicGroupHeader, reply_body=offset_bodies.ConsumeTimeSpans
    ),
}

_POP = {
    RequestCode.POP_MESSAGE: RequestKind(pop.PopHeader, pop.PopReply, reply_body=bytes),
    RequestCode.PEEK_MESSAGE: RequestKind(pop.PeekHeader, pop.PopReply, reply_body=bytes),
    RequestCode.ACK_MESSAGE: RequestKind(pop.AckHeader),
    RequestCode.BATCH_ACK_MESSAGE: RequestKind(body=pop_bodies.BatchAcks),
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: RequestKind(
        pop.ChangeInvisibleTimeHeader, pop.ChangeInvisibleTimeReply
    ),
    RequestCode.NOTIFICATION: RequestKind(pop.NotificationHeader, pop.NotificationReply),
    RequestCode.POLLING_INFO: RequestKind(pop.PollingHeader, pop.PollingReply),
    RequestCode.POP_ROLLBACK: RequestKind(),
    RequestCode.QUERY_ASSIGNMENT: RequestKind(
        body=pop_bodies.AssignmentQuery, reply_body=pop_bodies.Assignments
    ),
    RequestCode.SET_MESSAGE_REQUEST_MODE: RequestKind(body=pop_bodies.RequestModeSetting),
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: RequestKind(reply_body=pop_bodies.RequestModeTable),
}

_TOPICS = {
    RequestCode.UPDATE_AND_CREATE_TOPIC: RequestKind(topics.CreateTopicHeader),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: RequestKind(body=topic_bodies.TopicConfigList),
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: RequestKind(
        topics.CreateTopicHeader, body=queue_bodies.QueueMappingDetail
    ),
    RequestCode.DELETE_TOPIC_IN_BROKER: RequestKind(topics.TopicHeader),
    RequestCode.GET_TOPIC_CONFIG: RequestKind(
        topics.TopicConfigHeader, reply_body=topic_bodies.MappedTopicConfig
    ),
    RequestCode.GET_ALL_TOPIC_CONFIG: RequestKind(
        topics.AllTopicsHeader,
        topics.AllTopicsReply,
        reply_body=topic_bodies.MappedTopicConfigTable,
    ),
    RequestCode.GET_TOPIC_STATS_INFO: RequestKind(
        topics.TopicHeader, reply_body=topic_bodies.TopicStats
    ),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: RequestKind(
        topics.TopicHeader, reply_body=group_bodies.GroupList
    ),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: RequestKind(reply_body=route_bodies.TopicList),
}

_GROUPS = {
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: RequestKind(body=group_bodies.GroupConfig),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: RequestKind(
        body=group_bodies.GroupConfigList
    ),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: RequestKind(
        groups.GroupHeader, reply_body=group_bodies.GroupConfig
    ),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: RequestKind(
        groups.AllGroupsHeader, groups.AllGroupsReply, reply_body=group_bodies.GroupConfigTable
    ),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: RequestKind(groups.DeleteGroupHeader),
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: RequestKind(
        groups.GroupForbiddenHeader, reply_body=group_bodies.GroupForbidden
    ),
    RequestCode.GET_CONSUME_STATS: RequestKind(
        groups.ConsumeStatsHeader, reply_body=stats_bodies.ConsumeStats
    ),
    RequestCode.QUERY_TOPICS_BY_CONSUMER: RequestKind(
        groups.GroupHeader, reply_body=route_bodies.TopicList
    ),
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: RequestKind(
        groups.TopicGroupHeader, reply_body=group_bodies.GroupSubscription
    ),
}

_FILTERS = {
    RequestCode.BOLIDE_UPDATE_FILTER_FUNCTION: RequestKind(filters.FilterFunctionHeader, body=str),
    RequestCode.BOLIDE_DELETE_FILTER_FUNCTION: RequestKind(filters.FilterFunctionHeader),
    RequestCode.BOLIDE_LIST_FILTER_FUNCTIONS: RequestKind(
        reply_body=filter_bodies.FilterFunctionStates
    ),
    RequestCode.BOLIDE_GET_FILTER_FUNCTION: RequestKind(
        filters.FilterFunctionHeader, reply_body=filter_bodies.FilterFunction
    ),
}

_RUNTIME = {
    RequestCode.BOLIDE_READ_AUDIT: RequestKind(access.ReadAuditHeader, reply_body=AuditPage),
    RequestCode.UPDATE_BROKER_CONFIG: RequestKind(body=str),
    RequestCode.GET_BROKER_CONFIG: RequestKind(reply=runtime.BrokerConfigReply, reply_body=str),
    RequestCode.GET_BROKER_RUNTIME_INFO: RequestKind(reply_body=route_bodies.KvTable),
    RequestCode.GET_BROKER_CONSUME_STATS: RequestKind(
        runtime.BrokerConsumeStatsHeader, reply_body=stats_bodies.BrokerConsumeStats
    ),
    RequestCode.VIEW_BROKER_STATS_DATA: RequestKind(
        runtime.StatsHeader, reply_body=stats_bodies.BrokerStats
    ),
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: RequestKind(),
    RequestCode.CLEAN_UNUSED_TOPIC: RequestKind(),
    RequestCode.DELETE_EXPIRED_COMMITLOG: RequestKind(),
    RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: RequestKind(body=str),
    RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: RequestKind(body=str),
    RequestCode.GET_COLD_DATA_FLOW_CTR_INFO: RequestKind(reply_body=consumer_bodies.ColdReadInfo),
    RequestCode.SET_COMMITLOG_READ_MODE: RequestKind(runtime.ReadAheadHeader),
    RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: RequestKind(
        runtime.QueueWriteCheckHeader, reply_body=queue_bodies.QueueWriteCheck
    ),
    RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON: RequestKind(runtime.ExportConfigHeader),
    RequestCode.ADD_BROKER: RequestKind(runtime.AddBrokerHeader),
    RequestCode.REMOVE_BROKER: RequestKind(runtime.RemoveBrokerHeader),
}

_REPLICATION = {
    RequestCode.GET_ALL_CONSUMER_OFFSET: RequestKind(reply_body=offset_bodies.ConsumerOffsets),
    RequestCode.GET_ALL_DELAY_OFFSET: RequestKind(reply_body=str),
    RequestCode.GET_TIMER_CHECK_POINT: RequestKind(reply_body=bytes),
    RequestCode.GET_TIMER_METRICS: RequestKind(reply_body=replication_bodies.TimerMetrics),
    RequestCode.EXCHANGE_BROKER_HA_INFO: RequestKind(
        replication.HaAddresses, replication.HaAddresses
    ),
    RequestCode.GET_BROKER_HA_STATUS: RequestKind(reply_body=replication_bodies.HaStatus),
    RequestCode.RESET_MASTER_FLUSH_OFFSET: RequestKind(replication.ResetFlushOffsetHeader),
    RequestCode.GET_BROKER_EPOCH_CACHE: RequestKind(reply_body=replication_bodies.EpochCache),
    RequestCode.BOLIDE_GET_REPLICA_STATE: RequestKind(
        replication.ReplicaStateHeader, replication.ReplicaStateReply, reply_body=bytes
    ),
    RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: RequestKind(namesrv.MinBrokerIdChangeHeader),
    RequestCode.NOTIFY_BROKER_ROLE_CHANGED: RequestKind(
        controller.RoleChangedHeader, body=controller_bodies.SyncStateSet
    ),
}

_ACCESS = {
    RequestCode.AUTH_CREATE_USER: RequestKind(access.UserHeader, body=access_bodies.User),
    RequestCode.AUTH_UPDATE_USER: RequestKind(access.UserHeader, body=access_bodies.User),
    RequestCode.AUTH_DELETE_USER: RequestKind(access.UserHeader),
    RequestCode.AUTH_GET_USER: RequestKind(access.UserHeader, reply_body=access_bodies.User),
    RequestCode.AUTH_LIST_USER: RequestKind(
        access.ListUsersHeader, reply_body=list[access_bodies.User]
    ),
    RequestCode.AUTH_CREATE_ACL: RequestKind(access.SubjectHeader, body=access_bodies.Acl),
    RequestCode.AUTH_UPDATE_ACL: RequestKind(access.SubjectHeader, body=access_bodies.Acl),
    RequestCode.AUTH_DELETE_ACL: RequestKind(access.DeleteAclHeader),
    RequestCode.AUTH_GET_ACL: RequestKind(access.SubjectHeader, reply_body=access_bodies.Acl),
    RequestCode.AUTH_LIST_ACL: RequestKind(
        access.ListAclsHeader, reply_body=list[access_bodies.Acl]
    ),
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: RequestKind(access.PlainAclHeader),
    RequestCode.DELETE_ACL_CONFIG: RequestKind(access.AccessKeyHeader),
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO: RequestKind(reply=access.AclVersionReply),
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: RequestKind(access.WhiteAddressesHeader),
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: RequestKind(reply_body=access_bodies.PlainAccounts),
    RequestCode.BOLIDE_WHO_AM_I: RequestKind(
        reply=access.WhoAmIReply, answered_by=Role.BROKER | Role.NAMESRV
    ),
    RequestCode.BOLIDE_CAN_I: RequestKind(
        access.CanIHeader, access.CanIReply, answered_by=Role.BROKER | Role.NAMESRV
    ),
}

_NAMESRV = {
    RequestCode.GET_ROUTEINFO_BY_TOPIC: RequestKind(
        namesrv.RouteHeader, reply_body=route_bodies.TopicRoute, answered_by=Role.NAMESRV
    ),
    RequestCode.GET_BROKER_CLUSTER_INFO: RequestKind(
        reply_body=route_bodies.ClusterInfo, answered_by=Role.NAMESRV
    ),
    RequestCode.REGISTER_BROKER: RequestKind(
        namesrv.RegisterBrokerHeader,
        namesrv.RegisterBrokerReply,
        RegisterBrokerBody,
        route_bodies.KvTable,
        Role.NAMESRV,
    ),
    RequestCode.UNREGISTER_BROKER: RequestKind(
        namesrv.UnregisterBrokerHeader, answered_by=Role.NAMESRV
    ),
    RequestCode.QUERY_DATA_VERSION: RequestKind(
        namesrv.QueryDataVersionHeader,
        namesrv.QueryDataVersionReply,
        DataVersion,
        DataVersion,
        Role.NAMESRV,
    ),
    RequestCode.BROKER_HEARTBEAT: RequestKind(
        namesrv.BrokerHeartbeatHeader, answered_by=Role.NAMESRV | Role.CONTROLLER
    ),
    RequestCode.GET_BROKER_MEMBER_GROUP: RequestKind(
        namesrv.BrokerMemberGroupHeader,
        reply_body=route_bodies.MemberGroupBody,
        answered_by=Role.NAMESRV,
    ),
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: RequestKind(
        namesrv.RegisterTopicHeader, body=route_bodies.TopicRoute, answered_by=Role.NAMESRV
    ),
    RequestCode.PUT_KV_CONFIG: RequestKind(namesrv.PutKvHeader, answered_by=Role.NAMESRV),
    RequestCode.GET_KV_CONFIG: RequestKind(
        namesrv.KvHeader, namesrv.KvReply, answered_by=Role.NAMESRV
    ),
    RequestCode.DELETE_KV_CONFIG: RequestKind(namesrv.KvHeader, answered_by=Role.NAMESRV),
    RequestCode.GET_KVLIST_BY_NAMESPACE: RequestKind(
        namesrv.KvListHeader, reply_body=route_bodies.KvTable, answered_by=Role.NAMESRV
    ),
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: RequestKind(
        namesrv.BrokerNameHeader, namesrv.WipeWritePermReply, answered_by=Role.NAMESRV
    ),
    RequestCode.ADD_WRITE_PERM_OF_BROKER: RequestKind(
        namesrv.BrokerNameHeader, namesrv.AddWritePermReply, answered_by=Role.NAMESRV
    ),
    RequestCode.DELETE_TOPIC_IN_NAMESRV: RequestKind(
        namesrv.DeleteTopicHeader, answered_by=Role.NAMESRV
    ),
    RequestCode.GET_TOPICS_BY_CLUSTER: RequestKind(
        namesrv.ClusterHeader, reply_body=route_bodies.TopicList, answered_by=Role.NAMESRV
    ),
    RequestCode.UPDATE_NAMESRV_CONFIG: RequestKind(body=str, answered_by=Role.NAMESRV),
    RequestCode.GET_NAMESRV_CONFIG: RequestKind(reply_body=str, answered_by=Role.NAMESRV),
} | {
    code: RequestKind(reply_body=route_bodies.TopicList, answered_by=Role.NAMESRV)
    for code in (
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    )
}

_CONTROLLER = {
    RequestCode.CONTROLLER_GET_METADATA_INFO: RequestKind(
        reply=controller.MetadataReply, answered_by=Role.CONTROLLER
    ),
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: RequestKind(
        controller.NextBrokerIdHeader, controller.NextBrokerIdReply, answered_by=Role.CONTROLLER
    ),
    RequestCode.CONTROLLER_APPLY_BROKER_ID: RequestKind(
        controller.ApplyBrokerIdHeader, controller.ApplyBrokerIdReply, answered_by=Role.CONTROLLER
    ),
    RequestCode.CONTROLLER_REGISTER_BROKER: RequestKind(
        controller.RegisterBrokerHeader,
        controller.RegisterBrokerReply,
        reply_body=controller_bodies.SyncStateSet,
        answered_by=Role.CONTROLLER,
    ),
    RequestCode.CONTROLLER_ELECT_MASTER: RequestKind(
        controller.ElectMasterHeader,
        controller.ElectMasterReply,
        reply_body=controller_bodies.ElectedMaster,
        answered_by=Role.CONTROLLER,
    ),
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: RequestKind(
        controller.AlterSyncStateSetHeader,
        controller.AlterSyncStateSetReply,
        controller_bodies.SyncStateSet,
        controller_bodies.SyncStateSet,
        Role.CONTROLLER,
    ),
    RequestCode.CONTROLLER_GET_REPLICA_INFO: RequestKind(
        controller.ReplicaHeader,
        controller.ReplicaReply,
        reply_body=controller_bodies.SyncStateSet,
        answered_by=Role.CONTROLLER,
    ),
    RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: RequestKind(
        body=list[str], reply_body=controller_bodies.ReplicasTable, answered_by=Role.CONTROLLER
    ),
    RequestCode.UPDATE_CONTROLLER_CONFIG: RequestKind(body=str, answered_by=Role.CONTROLLER),
    RequestCode.GET_CONTROLLER_CONFIG: RequestKind(reply_body=str, answered_by=Role.CONTROLLER),
    RequestCode.CLEAN_BROKER_DATA: RequestKind(
        controller.CleanBrokerHeader, answered_by=Role.CONTROLLER
    ),
}

_UNSERVED = {
    RequestCode.POP_LITE_MESSAGE: RequestKind(),
    RequestCode.LITE_SUBSCRIPTION_CTL: RequestKind(),
    RequestCode.ACK_LITE_MESSAGE: RequestKind(),
    RequestCode.NOTIFY_UNSUBSCRIBE_LITE: RequestKind(answered_by=Role.CLIENT),
    RequestCode.GET_BROKER_LITE_INFO: RequestKind(),
    RequestCode.GET_PARENT_TOPIC_INFO: RequestKind(),
    RequestCode.GET_LITE_TOPIC_INFO: RequestKind(),
    RequestCode.GET_LITE_CLIENT_INFO: RequestKind(),
    RequestCode.GET_LITE_GROUP_INFO: RequestKind(),
    RequestCode.TRIGGER_LITE_DISPATCH: RequestKind(),
    RequestCode.BROKER_CLOSE_CHANNEL_REQUEST: RequestKind(answered_by=Role.CONTROLLER),
    RequestCode.CHECK_NOT_ACTIVE_BROKER_REQUEST: RequestKind(answered_by=Role.CONTROLLER),
    RequestCode.GET_BROKER_LIVE_INFO_REQUEST: RequestKind(answered_by=Role.CONTROLLER),
    RequestCode.GET_SYNC_STATE_DATA_REQUEST: RequestKind(answered_by=Role.CONTROLLER),
    RequestCode.RAFT_BROKER_HEART_BEAT_EVENT_REQUEST: RequestKind(answered_by=Role.CONTROLLER),
}
"""Requests of features that Bolide does not have; most headers are not typed."""

_UNUSED = _unused(
    RequestCode.QUERY_BROKER_OFFSET,
    RequestCode.GET_TOPIC_CONFIG_LIST,
    RequestCode.GET_TOPIC_NAME_LIST,
    RequestCode.TRIGGER_DELETE_FILES,
    RequestCode.GET_CLIENT_CONFIG,
    RequestCode.SUSPEND_CONSUMER,
    RequestCode.RESUME_CONSUMER,
    RequestCode.RESET_CONSUMER_OFFSET_IN_CONSUMER,
    RequestCode.RESET_CONSUMER_OFFSET_IN_BROKER,
    RequestCode.ADJUST_CONSUMER_THREAD_POOL,
    RequestCode.WHO_CONSUME_THE_MESSAGE,
    RequestCode.REGISTER_FILTER_SERVER,
    RequestCode.REGISTER_MESSAGE_FILTER_CLASS,
)

REQUESTS: dict[RequestCode, RequestKind] = (
    _SEND
    | _CLIENTS
    | _PULL
    | _OFFSETS
    | _POP
    | _TOPICS
    | _GROUPS
    | _FILTERS
    | _RUNTIME
    | _REPLICATION
    | _ACCESS
    | _UNSERVED
    | _NAMESRV
    | _CONTROLLER
    | _UNUSED
)
"""All request codes; codes without a server have no role."""
