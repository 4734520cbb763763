"""Our bodies against JSON that the Java classes wrote; see the README beside this file."""

import json
from pathlib import Path
from typing import Any

import pytest

from bolide.protocol import fastjson
from bolide.protocol.bodies import (
    access,
    consumers,
    controller,
    groups,
    heartbeat,
    locks,
    offsets,
    pop,
    queues,
    replication,
    stats,
    topics,
)

OURS: dict[str, type[Any]] = {
    "AclInfo": access.Acl,
    "BatchAckMessageRequestBody": pop.BatchAcks,
    "BrokerReplicasInfo": controller.ReplicasTable,
    "BrokerStatsData": stats.BrokerStats,
    "CheckClientRequestBody": heartbeat.ClientCheck,
    "ConsumeMessageDirectlyResult": consumers.DirectConsumption,
    "ConsumeStats": stats.ConsumeStats,
    "ConsumeStatsList": stats.BrokerConsumeStats,
    "ConsumerConnection": consumers.ConsumerConnections,
    "ConsumerOffsetSerializeWrapper": offsets.ConsumerOffsets,
    "ConsumerRunningInfo": consumers.RunningConsumer,
    "CreateTopicListRequestBody": topics.TopicConfigList,
    "ElectMasterResponseBody": controller.ElectedMaster,
    "EpochEntryCache": replication.EpochCache,
    "GetConsumerListByGroupResponseBody": consumers.ConsumerIds,
    "GetConsumerStatusBody": offsets.ConsumerStatus,
    "GroupForbidden": groups.GroupForbidden,
    "GroupList": groups.GroupList,
    "HARuntimeInfo": replication.HaStatus,
    "HeartbeatData": heartbeat.Heartbeat,
    "LockBatchRequestBody": locks.LockRequest,
    "LockBatchResponseBody": locks.LockReply,
    "MessageRequestModeSerializeWrapper": pop.RequestModeTable,
    "ProducerConnection": consumers.ProducerConnections,
    "ProducerTableInfo": consumers.ProducerTable,
    "QueryAssignmentRequestBody": pop.AssignmentQuery,
    "QueryAssignmentResponseBody": pop.Assignments,
    "QueryConsumeQueueResponseBody": queues.ConsumeQueueSlice,
    "QueryConsumeTimeSpanBody": offsets.ConsumeTimeSpans,
    "QueryCorrectionOffsetBody": offsets.CorrectionOffsets,
    "QuerySubscriptionResponseBody": groups.GroupSubscription,
    "ResetOffsetBody": offsets.ResetOffsets,
    "ResetOffsetBodyForC": offsets.ResetOffsetsForC,
    "SetMessageRequestModeRequestBody": pop.RequestModeSetting,
    "SubscriptionGroupConfig": groups.GroupConfig,
    "SubscriptionGroupList": groups.GroupConfigList,
    "SubscriptionGroupWrapper": groups.GroupConfigTable,
    "SyncStateSet": controller.SyncStateSet,
    "TopicConfigAndMappingSerializeWrapper": topics.MappedTopicConfigTable,
    "TopicConfigAndQueueMapping": topics.MappedTopicConfig,
    "TopicConfigSerializeWrapper": topics.TopicConfigTable,
    "TopicQueueMappingDetail": queues.QueueMappingDetail,
    "TopicStatsTable": topics.TopicStats,
    "UnlockBatchRequestBody": locks.LockRequest,
    "UserInfo": access.User,
}

GOLDEN = [
    json.loads(line)
    for line in (Path(__file__).parent / "bodies-5.x.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden["class"])
def test_java_body_is_read_and_written_alike(golden: dict[str, str]) -> None:
    read = fastjson.decode(golden["body"], OURS[golden["class"]])
    assert fastjson.encode(read).decode() == golden["body"]


def test_every_body_listed_was_captured() -> None:
    assert OURS.keys() == {golden["class"] for golden in GOLDEN}
