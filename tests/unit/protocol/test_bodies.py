"""The bodies of all requests and replies."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bolide.protocol import fastjson
from bolide.protocol.bodies.consumers import DirectConsumption, RunningConsumer
from bolide.protocol.bodies.groups import GroupConfig, RetryPolicy
from bolide.protocol.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumeType,
    Heartbeat,
    MessageModel,
)
from bolide.protocol.bodies.locks import LockReply
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.offsets import (
    ConsumerOffsets,
    ConsumerStatus,
    CorrectionOffsets,
    ResetOffsets,
)
from bolide.protocol.bodies.pop import Assignments, BatchAck, BatchAcks, bit_set
from bolide.protocol.bodies.queues import QueueMappingDetail
from bolide.protocol.bodies.replication import HaStatus
from bolide.protocol.bodies.stats import BrokerStats, ConsumeStats
from bolide.protocol.bodies.topics import TopicConfig, TopicStats
from bolide.protocol.requests import REQUESTS
from tests.support.struct_strategies import instances

SHAPES = sorted(
    {shape for kind in REQUESTS.values() for shape in (kind.body, kind.reply_body)}
    - {None, bytes, str},
    key=str,
)

QUEUE = '{"brokerName":"b","queueId":0,"topic":"T"}'
SUBSCRIPTION = (
    '{"classFilterMode":false,"codeSet":[97,98],"expressionType":"TAG","subString":"a||b",'
    '"subVersion":1700000000000,"tagsSet":["a","b"],"topic":"T"}'
)
ITEM = (
    '{"bname":"broker-a","endOffset":-1,"gen":0,"logicOffset":0,"queueId":0,"startOffset":0,'
    '"timeOfEnd":-1,"timeOfStart":-1}'
)
REFERENCE = '{"messageQueue":{"$ref":"$.messageQueueAssignments[0].messageQueue"}}'
WINDOW = '{"avgpt":0.0,"sum":0,"tps":0.0}'

# The examples of requests.md that were produced by Java, with values where it has only names.
EXAMPLES: list[tuple[type[Any], str]] = [
    (
        Heartbeat,
        (
            '{"clientID":"ip@x","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
            '"consumeType":"CONSUME_PASSIVELY","groupName":"G","messageModel":"CLUSTERING",'
            f'"subscriptionDataSet":[{SUBSCRIPTION}],"unitMode":false}}],"heartbeatFingerprint":0,'
            '"producerDataSet":[{"groupName":"P"}],"withoutSub":false}'
        ),
    ),
    (
        TopicConfig,
        (
            '{"attributes":{},"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG",'
            '"topicName":"T","topicSysFlag":0,"writeQueueNums":4}'
        ),
    ),
    (
        GroupConfig,
        (
            '{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,'
            '"consumeFromMinEnable":true,"consumeMessageOrderly":false,"consumeTimeoutMinute":15,'
            '"groupName":"G","groupRetryPolicy":{"type":"CUSTOMIZED"},"groupSysFlag":0,'
            '"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,'
            '"whichBrokerWhenConsumeSlowly":1}'
        ),
    ),
    (
        RetryPolicy,
        (
            '{"exponentialRetryPolicy":{"initial":5000,"max":7200000,"multiplier":2},'
            '"type":"EXPONENTIAL"}'
        ),
    ),
    (RetryPolicy, '{"customizedRetryPolicy":{"next":[1000,2000]},"type":"CUSTOMIZED"}'),
    (
        QueueMappingDetail,
        (
            '{"bname":"broker-a","currIdMap":{},"dirty":false,"epoch":1,'
            f'"hostedQueues":{{0:[{ITEM}]}},"scope":"__global__","topic":"T","totalQueues":2}}'
        ),
    ),
    (
        TopicStats,
        (
            f'{{"offsetTable":{{{QUEUE}:{{"lastUpdateTimestamp":0,"maxOffset":0,"minOffset":0}}}},'
            '"topicPutTps":0.0}'
        ),
    ),
    (
        ConsumeStats,
        (
            f'{{"consumeTps":0.0,"offsetTable":{{{QUEUE}:{{"brokerOffset":5,"consumerOffset":0,'
            '"lastTimestamp":0,"pullOffset":0}}}'
        ),
    ),
    (BrokerStats, f'{{"statsDay":{WINDOW},"statsHour":{WINDOW},"statsMinute":{WINDOW}}}'),
    (ResetOffsets, f'{{"offsetTable":{{{QUEUE}:6}}}}'),
    (ConsumerStatus, f'{{"consumerTable":{{"c":{{{QUEUE}:6}}}},"messageQueueTable":{{}}}}'),
    (ConsumerStatus, f'{{"consumerTable":{{}},"messageQueueTable":{{{QUEUE}:6}}}}'),
    (CorrectionOffsets, '{"correctionOffsets":{0:1}}'),
    (
        ConsumerOffsets,
        (
            '{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":1700000000000},'
            '"offsetTable":{"topic@group":{0:5}}}'
        ),
    ),
    (
        DirectConsumption,
        '{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"spentTimeMills":0}',
    ),
    (LockReply, f'{{"lockOKMQSet":[{QUEUE}]}}'),
    (
        BatchAcks,
        (
            '{"acks":[{"b":"AQI=","c":"G","it":60000,"pt":1700000000000,"q":0,"r":"0","rq":3,"so":7,'
            '"t":"T"}],"brokerName":"b"}'
        ),
    ),
    (
        HaStatus,
        (
            '{"haClientRuntimeInfo":{"lastReadTimestamp":0,"lastWriteTimestamp":0,'
            '"masterFlushOffset":0,"maxOffset":0,"transferredByteInSecond":0},"haConnectionInfo":'
            '[{"addr":"a","diff":0,"inSync":true,"slaveAckOffset":0,"transferFromWhere":0,'
            '"transferredByteInSecond":0}],"inSyncSlaveNums":1,"master":true,'
            '"masterCommitLogMaxOffset":0}'
        ),
    ),
    (
        RunningConsumer,
        (
            '{"mqPopTable":{},"mqTable":{},"properties":{"PROP_CONSUMEORDERLY":"false"},"statusTable":'
            '{"T":{"consumeFailedMsgs":0,"consumeFailedTPS":0.0,"consumeOKTPS":0.0,"consumeRT":0.0,'
            f'"pullRT":0.0,"pullTPS":0.0}}}},"subscriptionSet":[{SUBSCRIPTION}],'
            '"userConsumerInfo":{}}'
        ),
    ),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@given(data=st.data())
@settings(max_examples=20)
def test_json_gives_back_the_body(shape: type[Any], data: st.DataObject) -> None:
    made = data.draw(instances(shape))
    assert fastjson.decode(fastjson.encode(made), shape) == made


@pytest.mark.parametrize(("shape", "text"), EXAMPLES)
def test_java_text_is_read_and_written_alike(shape: type[Any], text: str) -> None:
    assert fastjson.encode(fastjson.decode(text, shape)).decode() == text


def test_heartbeat_of_an_old_client_takes_defaults() -> None:
    read = fastjson.decode('{"clientID":"c","somethingNew":{1:2}}', Heartbeat)
    assert read == Heartbeat(client_id="c")


def test_heartbeat_of_a_cpp_client_numbers_its_enums() -> None:
    text = (
        '{"clientID":"c","consumerDataSet":[{"consumeFromWhere":5,"consumeType":1,'
        '"groupName":"G","messageModel":0,"subscriptionDataSet":[{"subString":"*",'
        '"subVersion":"17","topic":"T"}]}]}'
    )
    (group,) = fastjson.decode(text, Heartbeat).consumer_data_set
    assert group.consume_type is ConsumeType.CONSUME_PASSIVELY
    assert group.message_model is MessageModel.BROADCASTING
    assert group.consume_from_where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
    assert group.subscription_data_set[0].sub_version == 17


@pytest.mark.parametrize("number", [-1, 3])
def test_number_of_no_enum_member_is_refused(number: int) -> None:
    text = f'{{"clientID":"c","consumerDataSet":[{{"groupName":"G","consumeType":{number}}}]}}'
    with pytest.raises(fastjson.BadJson, match="ConsumeType"):
        fastjson.decode(text, Heartbeat)


def test_missing_group_name_is_refused_and_named() -> None:
    with pytest.raises(fastjson.BadJson, match="groupName"):
        fastjson.decode("{}", GroupConfig)


def test_batch_ack_tells_its_queue_offsets() -> None:
    ack = BatchAck(
        consumer_group="G",
        topic="T",
        start_offset=100,
        queue_id=0,
        revive_queue_id=0,
        pop_time=0,
        invisible_time=0,
        bit_set=bit_set([9, 0]),
    )
    assert list(ack.offsets()) == [100, 109]


@given(distances=st.sets(st.integers(0, 200)))
def test_bit_set_ends_with_its_highest_bit(distances: set[int]) -> None:
    bits = bit_set(distances)
    assert not bits.endswith(b"\x00")
    assert len(bits) == (max(distances) // 8 + 1 if distances else 0)


def test_queue_may_come_as_a_reference_to_the_one_before() -> None:
    text = f'{{"messageQueueAssignments":[{{"messageQueue":{QUEUE}}},{REFERENCE}]}}'
    first, second = fastjson.decode(text, Assignments).message_queue_assignments or []
    assert first.message_queue == second.message_queue == MessageQueue("T", "b", 0)
