"""Our headers against the header classes of RocketMQ 5.5.0; see the README beside this file."""

import json
from pathlib import Path

import pytest
from msgspec import inspect
from msgspec.structs import FieldInfo, fields

from bolide.protocol.header import Header, NoHeader
from bolide.protocol.headers import (
    access,
    clients,
    controller,
    groups,
    namesrv,
    offsets,
    pop,
    pull,
    query,
    replication,
    runtime,
    send,
    topics,
    transactions,
)
from bolide.protocol.requests import REQUESTS

GOLDEN = {
    golden["class"]: golden
    for golden in map(
        json.loads, (Path(__file__).parent / "headers-5.x.jsonl").read_text().splitlines()
    )
}

OURS: dict[str, type[Header]] = {
    "AckMessageRequestHeader": pop.AckHeader,
    "AddBrokerRequestHeader": runtime.AddBrokerHeader,
    "ChangeInvisibleTimeRequestHeader": pop.ChangeInvisibleTimeHeader,
    "ChangeInvisibleTimeResponseHeader": pop.ChangeInvisibleTimeReply,
    "CheckRocksdbCqWriteProgressRequestHeader": runtime.QueueWriteCheckHeader,
    "CheckTransactionStateRequestHeader": transactions.CheckTransactionHeader,
    "CloneGroupOffsetRequestHeader": offsets.CloneOffsetsHeader,
    "ConsumeMessageDirectlyResultRequestHeader": clients.ConsumeDirectlyHeader,
    "ConsumerSendMsgBackRequestHeader": send.SendBackHeader,
    "CreateAclRequestHeader": access.SubjectHeader,
    "CreateTopicListRequestHeader": NoHeader,
    "CreateTopicRequestHeader": topics.CreateTopicHeader,
    "CreateUserRequestHeader": access.UserHeader,
    "DeleteAclRequestHeader": access.DeleteAclHeader,
    "DeleteSubscriptionGroupRequestHeader": groups.DeleteGroupHeader,
    "DeleteTopicRequestHeader": topics.TopicHeader,
    "DeleteUserRequestHeader": access.UserHeader,
    "EndTransactionRequestHeader": transactions.EndTransactionHeader,
    "EndTransactionResponseHeader": NoHeader,
    "ExchangeHAInfoRequestHeader": replication.HaAddresses,
    "ExchangeHAInfoResponseHeader": replication.HaAddresses,
    "ExportRocksDBConfigToJsonRequestHeader": runtime.ExportConfigHeader,
    "GetAclRequestHeader": access.SubjectHeader,
    "GetAllProducerInfoRequestHeader": NoHeader,
    "GetAllSubscriptionGroupRequestHeader": groups.AllGroupsHeader,
    "GetAllSubscriptionGroupResponseHeader": groups.AllGroupsReply,
    "GetAllTopicConfigRequestHeader": topics.AllTopicsHeader,
    "GetAllTopicConfigResponseHeader": topics.AllTopicsReply,
    "GetBrokerConfigResponseHeader": runtime.BrokerConfigReply,
    "GetBrokerMemberGroupRequestHeader": namesrv.BrokerMemberGroupHeader,
    "GetConsumeStatsInBrokerHeader": runtime.BrokerConsumeStatsHeader,
    "GetConsumeStatsRequestHeader": groups.ConsumeStatsHeader,
    "GetConsumerConnectionListRequestHeader": clients.ConsumerGroupHeader,
    "GetConsumerListByGroupRequestHeader": clients.ConsumerGroupHeader,
    "GetConsumerListByGroupResponseHeader": NoHeader,
    "GetConsumerRunningInfoRequestHeader": clients.RunningInfoHeader,
    "GetConsumerStatusRequestHeader": offsets.ConsumerStatusHeader,
    "GetEarliestMsgStoretimeRequestHeader": offsets.QueueHeader,
    "GetEarliestMsgStoretimeResponseHeader": offsets.StoreTimeReply,
    "GetMaxOffsetRequestHeader": offsets.MaxOffsetHeader,
    "GetMaxOffsetResponseHeader": offsets.OffsetReply,
    "GetMinOffsetRequestHeader": offsets.QueueHeader,
    "GetMinOffsetResponseHeader": offsets.OffsetReply,
    "GetProducerConnectionListRequestHeader": clients.ProducerGroupHeader,
    "GetSubscriptionGroupConfigRequestHeader": groups.GroupHeader,
    "GetTopicConfigRequestHeader": topics.TopicConfigHeader,
    "GetTopicStatsInfoRequestHeader": topics.TopicHeader,
    "GetTopicsByClusterRequestHeader": namesrv.ClusterHeader,
    "GetUserRequestHeader": access.UserHeader,
    "HeartbeatRequestHeader": NoHeader,
    "ListAclsRequestHeader": access.ListAclsHeader,
    "ListUsersRequestHeader": access.ListUsersHeader,
    "LockBatchMqRequestHeader": NoHeader,
    "NotificationRequestHeader": pop.NotificationHeader,
    "NotificationResponseHeader": pop.NotificationReply,
    "NotifyBrokerRoleChangedRequestHeader": controller.RoleChangedHeader,
    "NotifyConsumerIdsChangedRequestHeader": clients.ConsumerGroupHeader,
    "NotifyMinBrokerIdChangeRequestHeader": namesrv.MinBrokerIdChangeHeader,
    "PeekMessageRequestHeader": pop.PeekHeader,
    "PollingInfoRequestHeader": pop.PollingHeader,
    "PollingInfoResponseHeader": pop.PollingReply,
    "PopMessageRequestHeader": pop.PopHeader,
    "PopMessageResponseHeader": pop.PopReply,
    "PullMessageRequestHeader": pull.PullHeader,
    "PullMessageResponseHeader": pull.PullReply,
    "QueryConsumeQueueRequestHeader": query.ConsumeQueueHeader,
    "QueryConsumeTimeSpanRequestHeader": groups.TopicGroupHeader,
    "QueryConsumerOffsetRequestHeader": offsets.QueryOffsetHeader,
    "QueryConsumerOffsetResponseHeader": offsets.OffsetReply,
    "QueryCorrectionOffsetHeader": offsets.CorrectionOffsetHeader,
    "QueryMessageRequestHeader": query.QueryMessageHeader,
    "QueryMessageResponseHeader": query.QueryMessageReply,
    "QuerySubscriptionByConsumerRequestHeader": groups.TopicGroupHeader,
    "QueryTopicConsumeByWhoRequestHeader": topics.TopicHeader,
    "QueryTopicsByConsumerRequestHeader": groups.GroupHeader,
    "RecallMessageRequestHeader": send.RecallHeader,
    "RecallMessageResponseHeader": send.RecallReply,
    "RemoveBrokerRequestHeader": runtime.RemoveBrokerHeader,
    "ReplyMessageRequestHeader": send.PushReplyHeader,
    "ResetMasterFlushOffsetHeader": replication.ResetFlushOffsetHeader,
    "ResetOffsetRequestHeader": offsets.ResetOffsetHeader,
    "ResumeCheckHalfMessageRequestHeader": transactions.ResumeCheckHeader,
    "SearchOffsetRequestHeader": offsets.SearchOffsetHeader,
    "SearchOffsetResponseHeader": offsets.OffsetReply,
    "SendMessageRequestHeader": send.SendHeader,
    "SendMessageResponseHeader": send.SendReply,
    "UnlockBatchMqRequestHeader": NoHeader,
    "UnregisterClientRequestHeader": clients.UnregisterClientHeader,
    "UnregisterClientResponseHeader": NoHeader,
    "UpdateAclRequestHeader": access.SubjectHeader,
    "UpdateConsumerOffsetRequestHeader": offsets.CommitOffsetHeader,
    "UpdateConsumerOffsetResponseHeader": NoHeader,
    "UpdateGroupForbiddenRequestHeader": groups.GroupForbiddenHeader,
    "UpdateUserRequestHeader": access.UserHeader,
    "ViewBrokerStatsDataRequestHeader": runtime.StatsHeader,
    "ViewMessageRequestHeader": query.ViewMessageHeader,
    "ViewMessageResponseHeader": NoHeader,
    "controller.AlterSyncStateSetRequestHeader": controller.AlterSyncStateSetHeader,
    "controller.AlterSyncStateSetResponseHeader": controller.AlterSyncStateSetReply,
    "controller.ElectMasterRequestHeader": controller.ElectMasterHeader,
    "controller.ElectMasterResponseHeader": controller.ElectMasterReply,
    "controller.GetMetaDataResponseHeader": controller.MetadataReply,
    "controller.GetReplicaInfoRequestHeader": controller.ReplicaHeader,
    "controller.GetReplicaInfoResponseHeader": controller.ReplicaReply,
    "controller.admin.CleanControllerBrokerDataRequestHeader": controller.CleanBrokerHeader,
    "controller.register.ApplyBrokerIdRequestHeader": controller.ApplyBrokerIdHeader,
    "controller.register.ApplyBrokerIdResponseHeader": controller.ApplyBrokerIdReply,
    "controller.register.GetNextBrokerIdRequestHeader": controller.NextBrokerIdHeader,
    "controller.register.GetNextBrokerIdResponseHeader": controller.NextBrokerIdReply,
    "controller.register.RegisterBrokerToControllerRequestHeader": controller.RegisterBrokerHeader,
    "controller.register.RegisterBrokerToControllerResponseHeader": controller.RegisterBrokerReply,
    "namesrv.AddWritePermOfBrokerRequestHeader": namesrv.BrokerNameHeader,
    "namesrv.AddWritePermOfBrokerResponseHeader": namesrv.AddWritePermReply,
    "namesrv.BrokerHeartbeatRequestHeader": namesrv.BrokerHeartbeatHeader,
    "namesrv.DeleteKVConfigRequestHeader": namesrv.KvHeader,
    "namesrv.DeleteTopicFromNamesrvRequestHeader": namesrv.DeleteTopicHeader,
    "namesrv.GetKVConfigRequestHeader": namesrv.KvHeader,
    "namesrv.GetKVConfigResponseHeader": namesrv.KvReply,
    "namesrv.GetKVListByNamespaceRequestHeader": namesrv.KvListHeader,
    "namesrv.GetRouteInfoRequestHeader": namesrv.RouteHeader,
    "namesrv.PutKVConfigRequestHeader": namesrv.PutKvHeader,
    "namesrv.QueryDataVersionRequestHeader": namesrv.QueryDataVersionHeader,
    "namesrv.QueryDataVersionResponseHeader": namesrv.QueryDataVersionReply,
    "namesrv.RegisterBrokerRequestHeader": namesrv.RegisterBrokerHeader,
    "namesrv.RegisterBrokerResponseHeader": namesrv.RegisterBrokerReply,
    "namesrv.RegisterTopicRequestHeader": namesrv.RegisterTopicHeader,
    "namesrv.UnRegisterBrokerRequestHeader": namesrv.UnregisterBrokerHeader,
    "namesrv.WipeWritePermOfBrokerRequestHeader": namesrv.BrokerNameHeader,
    "namesrv.WipeWritePermOfBrokerResponseHeader": namesrv.WipeWritePermReply,
}

_LITE = "lite topics are newer than 5.3, which we speak"
_NO_CODE = "no request code carries it"
NOT_OURS = {
    "CheckTransactionStateResponseHeader": "clients answer with END_TRANSACTION instead",
    "GetLiteClientInfoRequestHeader": _LITE,
    "GetLiteGroupInfoRequestHeader": _LITE,
    "GetLiteTopicInfoRequestHeader": _LITE,
    "GetParentTopicInfoRequestHeader": _LITE,
    "InitConsumerOffsetRequestHeader": _NO_CODE,
    "LiteSubscriptionCtlRequestHeader": _LITE,
    "NotifyUnsubscribeLiteRequestHeader": _LITE,
    "PopLiteMessageRequestHeader": _LITE,
    "PopLiteMessageResponseHeader": _LITE,
    "SendMessageRequestHeaderV2": "SendHeader by its short names, tested on its own",
    "StatisticsMessagesRequestHeader": _NO_CODE,
    "TriggerLiteDispatchRequestHeader": _LITE,
    "namesrv.RegisterOrderTopicRequestHeader": _NO_CODE,
}

_NEWER = "newer than 5.3, which we speak"
LEFT_OUT = {
    ("AckMessageRequestHeader", "liteTopic"): _LITE,
    ("ChangeInvisibleTimeRequestHeader", "liteTopic"): _LITE,
    ("ChangeInvisibleTimeRequestHeader", "suspend"): _NEWER,
    ("PullMessageRequestHeader", "liteTopic"): _LITE,
    ("SearchOffsetRequestHeader", "liteTopic"): _LITE,
}

_RPC = "from RpcRequestHeader or TopicRequestHeader, which the capture leaves out"
_BESIDE = "Java puts it among the fields beside the header class"
ADDED = {
    ("CheckTransactionStateRequestHeader", "bname"): _RPC,
    ("GetTopicConfigRequestHeader", "lo"): _RPC,
    ("QueryMessageRequestHeader", "_UNIQUE_KEY_QUERY"): _BESIDE,
    ("SendMessageRequestHeader", "bname"): _RPC,
    ("SendMessageResponseHeader", "MSG_REGION"): _BESIDE,
    ("SendMessageResponseHeader", "TRACE_ON"): _BESIDE,
    ("SendMessageResponseHeader", "repeats"): "ours, for topics with a dedup.window",
    ("controller.register.RegisterBrokerToControllerRequestHeader", "restarted"): "ours",
    ("controller.AlterSyncStateSetRequestHeader", "renew"): "ours",
    ("controller.register.RegisterBrokerToControllerRequestHeader", "lostTail"): "ours",
    ("controller.register.RegisterBrokerToControllerRequestHeader", "processId"): "ours",
    ("controller.register.RegisterBrokerToControllerRequestHeader", "confirmsTerms"): "ours",
    ("controller.register.RegisterBrokerToControllerResponseHeader", "quorumId"): "ours",
    ("controller.AlterSyncStateSetRequestHeader", "begins"): "ours",
    ("controller.GetMetaDataResponseHeader", "quorumId"): "ours",
    ("NotifyBrokerRoleChangedRequestHeader", "quorumId"): "ours",
    ("namesrv.GetRouteInfoRequestHeader", "__ZONE_MODE"): _BESIDE,
    ("namesrv.GetRouteInfoRequestHeader", "__ZONE_NAME"): _BESIDE,
    ("namesrv.RegisterBrokerRequestHeader", "__ZONE_NAME"): _BESIDE,
}

_PAGES = "slaves up to 5.3 send no header"
_ABSENT_IN_JAVA = "Java's broker serves requests without it: tests/interop/test_answers.py"
OPTIONAL_HERE = {
    ("CreateTopicRequestHeader", "defaultTopic"): _ABSENT_IN_JAVA,
    ("CreateTopicRequestHeader", "order"): _ABSENT_IN_JAVA,
    ("GetConsumeStatsInBrokerHeader", "isOrder"): _ABSENT_IN_JAVA,
    ("NotificationRequestHeader", "bornTime"): _ABSENT_IN_JAVA,
    ("NotificationRequestHeader", "pollTime"): _ABSENT_IN_JAVA,
    ("NotificationRequestHeader", "queueId"): _ABSENT_IN_JAVA,
    ("PollingInfoRequestHeader", "queueId"): _ABSENT_IN_JAVA,
    ("PopMessageRequestHeader", "bornTime"): _ABSENT_IN_JAVA,
    ("PopMessageRequestHeader", "initMode"): _ABSENT_IN_JAVA,
    ("PopMessageRequestHeader", "invisibleTime"): _ABSENT_IN_JAVA,
    ("PopMessageRequestHeader", "pollTime"): _ABSENT_IN_JAVA,
    ("PopMessageRequestHeader", "queueId"): _ABSENT_IN_JAVA,
    ("PullMessageRequestHeader", "commitOffset"): _ABSENT_IN_JAVA,
    ("PullMessageRequestHeader", "subVersion"): _ABSENT_IN_JAVA,
    ("PullMessageRequestHeader", "suspendTimeoutMillis"): _ABSENT_IN_JAVA,
    ("ResetOffsetRequestHeader", "isForce"): _ABSENT_IN_JAVA,
    ("SendMessageRequestHeader", "defaultTopic"): _ABSENT_IN_JAVA,
    ("SendMessageRequestHeader", "defaultTopicQueueNums"): _ABSENT_IN_JAVA,
    ("SendMessageRequestHeader", "producerGroup"): _ABSENT_IN_JAVA,
    ("GetAllSubscriptionGroupRequestHeader", "groupSeq"): _PAGES,
    ("GetAllSubscriptionGroupResponseHeader", "totalGroupNum"): _PAGES,
    ("GetAllTopicConfigRequestHeader", "topicSeq"): _PAGES,
    ("namesrv.RegisterBrokerRequestHeader", "haServerAddr"): "the NameServer only passes it on",
}

_NEEDED = "Java marks nothing here, but cannot answer without it"
_ALWAYS = "Java always sends it and reads it unchecked"
REQUIRED_HERE = {
    ("AddBrokerRequestHeader", "configPath"): _NEEDED,
    ("CreateAclRequestHeader", "subject"): _NEEDED,
    ("GetAclRequestHeader", "subject"): _NEEDED,
    ("NotifyBrokerRoleChangedRequestHeader", "masterEpoch"): _ALWAYS,
    ("NotifyBrokerRoleChangedRequestHeader", "syncStateSetEpoch"): _ALWAYS,
    ("QueryConsumeQueueRequestHeader", "topic"): _NEEDED,
    ("QuerySubscriptionByConsumerRequestHeader", "topic"): _NEEDED,
    ("UpdateAclRequestHeader", "subject"): _NEEDED,
    ("controller.AlterSyncStateSetRequestHeader", "brokerName"): _NEEDED,
    ("controller.AlterSyncStateSetRequestHeader", "masterBrokerId"): _NEEDED,
    ("controller.AlterSyncStateSetRequestHeader", "masterEpoch"): _NEEDED,
    ("controller.AlterSyncStateSetResponseHeader", "newSyncStateSetEpoch"): _ALWAYS,
    ("controller.GetMetaDataResponseHeader", "isLeader"): _ALWAYS,
    ("controller.GetReplicaInfoRequestHeader", "brokerName"): _NEEDED,
    ("controller.register.ApplyBrokerIdRequestHeader", "appliedBrokerId"): _NEEDED,
    ("controller.register.ApplyBrokerIdRequestHeader", "brokerName"): _NEEDED,
    ("controller.register.ApplyBrokerIdRequestHeader", "clusterName"): _NEEDED,
    ("controller.register.ApplyBrokerIdRequestHeader", "registerCheckCode"): _NEEDED,
    ("controller.register.GetNextBrokerIdRequestHeader", "brokerName"): _NEEDED,
    ("controller.register.GetNextBrokerIdRequestHeader", "clusterName"): _NEEDED,
    ("controller.register.GetNextBrokerIdResponseHeader", "brokerName"): _ALWAYS,
    ("controller.register.GetNextBrokerIdResponseHeader", "clusterName"): _ALWAYS,
    ("controller.register.GetNextBrokerIdResponseHeader", "nextBrokerId"): _ALWAYS,
    ("controller.register.RegisterBrokerToControllerRequestHeader", "brokerAddress"): _NEEDED,
    ("controller.register.RegisterBrokerToControllerRequestHeader", "brokerId"): _NEEDED,
    ("controller.register.RegisterBrokerToControllerRequestHeader", "brokerName"): _NEEDED,
    ("controller.register.RegisterBrokerToControllerRequestHeader", "clusterName"): _NEEDED,
}

Exceptions = dict[tuple[str, str], str]


def test_every_java_header_is_ours_or_left_out_for_a_reason() -> None:
    assert OURS.keys() | NOT_OURS.keys() == GOLDEN.keys()
    assert not OURS.keys() & NOT_OURS.keys()


def test_headers_java_does_not_have_are_known() -> None:
    used = {
        header
        for code, kind in REQUESTS.items()
        if not code.name.startswith("BOLIDE_")
        for header in (kind.header, kind.reply)
    }
    assert used - set(OURS.values()) == {
        access.AccessKeyHeader,  # 4.9
        access.AclVersionReply,  # 4.9
        access.PlainAclHeader,  # 4.9
        access.WhiteAddressesHeader,  # 4.9
        clients.HeartbeatReply,  # fields beside a header class
        runtime.ReadAheadHeader,  # likewise
        runtime.TimerEngineHeader,  # likewise
    }


@pytest.mark.parametrize("java", OURS)
def test_wire_names_are_those_of_java(java: str) -> None:
    expected = GOLDEN[java]["fields"].keys() - _excepted(LEFT_OUT, java) | _excepted(ADDED, java)
    assert _by_wire_name(OURS[java]).keys() == expected


@pytest.mark.parametrize("java", OURS)
def test_types_are_those_of_java(java: str) -> None:
    ours = _by_wire_name(OURS[java])
    theirs = GOLDEN[java]["fields"]
    for name in ours.keys() & theirs.keys():
        assert _java_type(ours[name]) == _BOXED.get(theirs[name], theirs[name]), name


@pytest.mark.parametrize("java", OURS)
def test_required_fields_are_those_of_java(java: str) -> None:
    ours = {name for name, each in _by_wire_name(OURS[java]).items() if each.required}
    theirs = set(GOLDEN[java]["required"])
    assert theirs - ours == _excepted(OPTIONAL_HERE, java)
    assert ours - theirs == _excepted(REQUIRED_HERE, java)


def test_short_send_names_are_those_of_java() -> None:
    golden = GOLDEN["SendMessageRequestHeaderV2"]
    required = dict.fromkeys(golden["required"], "1")
    header = send.SendHeader.from_short(required | {"l": "1", "n": "1"})
    assert header.to_short().keys() == golden["fields"].keys()


def _excepted(reasons: Exceptions, java: str) -> set[str]:
    return {name for header, name in reasons if header == java}


def _by_wire_name(header: type[Header]) -> dict[str, FieldInfo]:
    return {each.encode_name: each for each in fields(header)}


_BOXED = {"int": "Integer", "long": "Long", "boolean": "Boolean"}


def _java_type(field: FieldInfo) -> str:
    kind: inspect.Type = inspect.type_info(field.type)
    if isinstance(kind, inspect.UnionType):
        (kind,) = (each for each in kind.types if not isinstance(each, inspect.NoneType))
    if isinstance(kind, inspect.IntType):
        return "Integer" if kind.le == 2**31 - 1 else "Long"
    return _JAVA_TYPES[type(kind)]


_JAVA_TYPES: dict[type[inspect.Type], str] = {
    inspect.BoolType: "Boolean",
    inspect.EnumType: "BoundaryType",
    inspect.StrType: "String",
}
