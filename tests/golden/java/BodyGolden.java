import java.util.Arrays;
import java.util.BitSet;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.message.MessageQueueAssignment;
import org.apache.rocketmq.common.message.MessageQueueForC;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.remoting.protocol.*;
import org.apache.rocketmq.remoting.protocol.admin.*;
import org.apache.rocketmq.remoting.protocol.body.*;
import org.apache.rocketmq.remoting.protocol.header.GetConsumerListByGroupResponseBody;
import org.apache.rocketmq.remoting.protocol.heartbeat.*;
import org.apache.rocketmq.remoting.protocol.statictopic.*;
import org.apache.rocketmq.remoting.protocol.subscription.*;

/**
 * Fills RocketMQ's bodies with fixed values and prints a line for each: its class and its JSON as
 * a string, because the dialect is not JSON that every reader takes.
 */
public class BodyGolden {
    private static final MessageQueue FIRST = new MessageQueue("T", "broker-a", 0);
    private static final MessageQueue SECOND = new MessageQueue("T", "broker-a", 1);

    public static void main(String[] args) {
        clients();
        topics();
        groups();
        offsets();
        consumers();
        pop();
        stats();
        replication();
        controller();
        access();
    }

    private static void print(Object body) {
        String text = RemotingSerializable.toJson(body, false);
        String escaped = text.replace("\\", "\\\\").replace("\"", "\\\"");
        System.out.println("{\"class\":\"" + body.getClass().getSimpleName()
            + "\",\"body\":\"" + escaped + "\"}");
    }

    private static void clients() {
        ProducerData producer = new ProducerData();
        producer.setGroupName("PG");
        ConsumerData consumer = new ConsumerData();
        consumer.setGroupName("CG");
        consumer.setConsumeType(ConsumeType.CONSUME_PASSIVELY);
        consumer.setMessageModel(MessageModel.CLUSTERING);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP);
        consumer.getSubscriptionDataSet().add(subscription());
        HeartbeatData heartbeat = new HeartbeatData();
        heartbeat.setClientID("10.0.0.1@7");
        heartbeat.setProducerDataSet(set(producer));
        heartbeat.setConsumerDataSet(set(consumer));
        heartbeat.setHeartbeatFingerprint(-12);
        heartbeat.setWithoutSub(true);
        print(heartbeat);

        CheckClientRequestBody check = new CheckClientRequestBody();
        check.setClientId("10.0.0.1@7");
        check.setGroup("CG");
        check.setNamespace("ns");
        check.setSubscriptionData(subscription());
        print(check);

        LockBatchRequestBody lock = new LockBatchRequestBody();
        lock.setClientId("10.0.0.1@7");
        lock.setConsumerGroup("CG");
        lock.setMqSet(set(FIRST));
        print(lock);
        UnlockBatchRequestBody unlock = new UnlockBatchRequestBody();
        unlock.setClientId("10.0.0.1@7");
        unlock.setConsumerGroup("CG");
        unlock.setMqSet(set(FIRST));
        print(unlock);
        LockBatchResponseBody locked = new LockBatchResponseBody();
        print(locked);
        locked.setLockOKMQSet(set(FIRST));
        print(locked);
    }

    private static SubscriptionData subscription() {
        SubscriptionData made = new SubscriptionData("T", "a||b");
        made.setTagsSet(new TreeSet<>(Arrays.asList("a", "b")));
        made.setCodeSet(new TreeSet<>(Arrays.asList(97, 98)));
        made.setSubVersion(1700000000000L);
        return made;
    }

    private static void topics() {
        TopicConfigSerializeWrapper table = new TopicConfigSerializeWrapper();
        table.setDataVersion(version());
        table.getTopicConfigTable().put("T", topic());
        print(table);

        TopicConfigAndMappingSerializeWrapper mapped = new TopicConfigAndMappingSerializeWrapper();
        mapped.setDataVersion(version());
        mapped.setMappingDataVersion(version());
        mapped.getTopicConfigTable().put("T", topic());
        mapped.getTopicQueueMappingDetailMap().put("T", mapping());
        print(mapped);

        print(new TopicConfigAndQueueMapping(topic(), mapping()));
        print(mapping());
        CreateTopicListRequestBody list = new CreateTopicListRequestBody();
        list.setTopicConfigList(List.of(topic()));
        print(list);

        TopicOffset offset = new TopicOffset();
        offset.setMinOffset(1);
        offset.setMaxOffset(9);
        offset.setLastUpdateTimestamp(1700000000000L);
        TopicStatsTable stats = new TopicStatsTable();
        stats.getOffsetTable().put(FIRST, offset);
        print(stats);
    }

    private static TopicConfig topic() {
        TopicConfig made = new TopicConfig("T", 4, 8, 6);
        made.getAttributes().put("message.type", "FIFO");
        return made;
    }

    private static TopicQueueMappingDetail mapping() {
        TopicQueueMappingDetail made = new TopicQueueMappingDetail("T", 2, "broker-a", 1);
        made.getHostedQueues().put(
            0, List.of(new LogicQueueMappingItem(0, 0, "broker-a", 0, 0, -1, -1, -1)));
        return made;
    }

    private static DataVersion version() {
        DataVersion made = new DataVersion();
        made.setTimestamp(1700000000000L);
        made.setStateVersion(3);
        made.getCounter().set(5);
        return made;
    }

    private static void groups() {
        SubscriptionGroupConfig plain = new SubscriptionGroupConfig();
        plain.setGroupName("G");
        print(plain);

        ExponentialRetryPolicy exponential = new ExponentialRetryPolicy(10, 20, 3);
        GroupRetryPolicy policy = new GroupRetryPolicy();
        policy.setType(GroupRetryPolicyType.EXPONENTIAL);
        policy.setExponentialRetryPolicy(exponential);
        policy.setCustomizedRetryPolicy(new CustomizedRetryPolicy(new long[] {1000, 2000}));
        SimpleSubscriptionData simple = new SimpleSubscriptionData("T", "TAG", "*", 7);
        SubscriptionGroupConfig full = new SubscriptionGroupConfig();
        full.setGroupName("H");
        full.setGroupRetryPolicy(policy);
        full.setSubscriptionDataSet(set(simple));
        full.setAttributes(Map.of("k", "v"));
        print(full);

        SubscriptionGroupWrapper table = new SubscriptionGroupWrapper();
        table.setDataVersion(version());
        table.getSubscriptionGroupTable().put("G", plain);
        ConcurrentMap<String, Integer> forbidden = new ConcurrentHashMap<>();
        forbidden.put("T", 2);
        table.getForbiddenTable().put("G", forbidden);
        print(table);

        SubscriptionGroupList list = new SubscriptionGroupList(List.of(plain));
        print(list);
        GroupForbidden answer = new GroupForbidden();
        answer.setGroup("G");
        answer.setTopic("T");
        answer.setReadable(false);
        print(answer);
        GroupList names = new GroupList();
        names.setGroupList(new HashSet<>(Set.of("G")));
        print(names);
        QuerySubscriptionResponseBody query = new QuerySubscriptionResponseBody();
        query.setGroup("G");
        query.setTopic("T");
        query.setSubscriptionData(subscription());
        print(query);
    }

    private static void offsets() {
        ConcurrentMap<Integer, Long> queues = new ConcurrentHashMap<>();
        queues.put(0, 10L);
        queues.put(1, 20L);
        ConsumerOffsetSerializeWrapper all = new ConsumerOffsetSerializeWrapper();
        all.setDataVersion(version());
        all.getOffsetTable().put("T@G", queues);
        print(all);

        ResetOffsetBody reset = new ResetOffsetBody();
        reset.setOffsetTable(Map.of(FIRST, 6L));
        print(reset);
        ResetOffsetBodyForC resetForC = new ResetOffsetBodyForC();
        resetForC.setOffsetTable(List.of(new MessageQueueForC("T", "broker-a", 0, 6)));
        print(resetForC);

        GetConsumerStatusBody status = new GetConsumerStatusBody();
        status.setMessageQueueTable(Map.of(FIRST, 6L));
        status.setConsumerTable(Map.of("10.0.0.1@7", Map.of(SECOND, 7L)));
        print(status);

        QueryCorrectionOffsetBody correction = new QueryCorrectionOffsetBody();
        correction.setCorrectionOffsets(Map.of(0, 1L));
        print(correction);

        QueueTimeSpan span = new QueueTimeSpan();
        span.setMessageQueue(FIRST);
        span.setMinTimeStamp(1);
        span.setMaxTimeStamp(2);
        span.setConsumeTimeStamp(3);
        span.setDelayTime(4);
        QueryConsumeTimeSpanBody spans = new QueryConsumeTimeSpanBody();
        spans.setConsumeTimeSpanSet(List.of(span));
        print(spans);
    }

    private static void consumers() {
        GetConsumerListByGroupResponseBody ids = new GetConsumerListByGroupResponseBody();
        ids.setConsumerIdList(List.of("10.0.0.1@7"));
        print(ids);

        Connection connection = new Connection();
        connection.setClientId("10.0.0.1@7");
        connection.setClientAddr("10.0.0.1:4711");
        connection.setLanguage(LanguageCode.PYTHON);
        connection.setVersion(401);
        ConsumerConnection consumers = new ConsumerConnection();
        consumers.setConnectionSet(set(connection));
        consumers.setConsumeType(ConsumeType.CONSUME_POP);
        consumers.setMessageModel(MessageModel.BROADCASTING);
        consumers.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumers.getSubscriptionTable().put("T", subscription());
        print(consumers);
        ProducerConnection producers = new ProducerConnection();
        producers.setConnectionSet(set(connection));
        print(producers);
        ProducerInfo producer =
            new ProducerInfo("10.0.0.1@7", "10.0.0.1:4711", LanguageCode.GO, 401, 1700000000000L);
        print(new ProducerTableInfo(Map.of("PG", List.of(producer))));

        ProcessQueueInfo held = new ProcessQueueInfo();
        held.setCachedMsgSizeInMiB(3);
        held.setDroped(true);
        PopProcessQueueInfo popped = new PopProcessQueueInfo();
        popped.setWaitAckCount(2);
        ConsumeStatus status = new ConsumeStatus();
        status.setConsumeOKTPS(1.5);
        ConsumerRunningInfo running = new ConsumerRunningInfo();
        running.getProperties().setProperty("PROP_CONSUMEORDERLY", "false");
        running.getSubscriptionSet().add(subscription());
        running.getMqTable().put(FIRST, held);
        running.getMqPopTable().put(SECOND, popped);
        running.getStatusTable().put("T", status);
        running.getUserConsumerInfo().put("k", "v");
        running.setJstack("stack");
        print(running);

        ConsumeMessageDirectlyResult direct = new ConsumeMessageDirectlyResult();
        direct.setConsumeResult(CMResult.CR_LATER);
        direct.setRemark("r");
        print(direct);
    }

    private static void pop() {
        QueryAssignmentRequestBody query = new QueryAssignmentRequestBody();
        query.setTopic("T");
        query.setConsumerGroup("G");
        query.setClientId("10.0.0.1@7");
        query.setStrategyName("AVG");
        query.setMessageModel(MessageModel.CLUSTERING);
        print(query);
        MessageQueueAssignment assignment = new MessageQueueAssignment();
        assignment.setMessageQueue(FIRST);
        assignment.setMode(MessageRequestMode.POP);
        assignment.setAttachments(Map.of("k", "v"));
        QueryAssignmentResponseBody assignments = new QueryAssignmentResponseBody();
        assignments.setMessageQueueAssignments(set(assignment));
        print(assignments);

        SetMessageRequestModeRequestBody mode = new SetMessageRequestModeRequestBody();
        mode.setTopic("T");
        mode.setConsumerGroup("G");
        mode.setMode(MessageRequestMode.POP);
        mode.setPopShareQueueNum(2);
        print(mode);
        ConcurrentHashMap<String, SetMessageRequestModeRequestBody> byGroup =
            new ConcurrentHashMap<>(Map.of("G", mode));
        MessageRequestModeSerializeWrapper modes = new MessageRequestModeSerializeWrapper();
        modes.setMessageRequestModeMap(new ConcurrentHashMap<>(Map.of("T", byGroup)));
        print(modes);

        BitSet bits = new BitSet();
        bits.set(0);
        bits.set(9);
        BatchAck ack = new BatchAck();
        ack.setConsumerGroup("G");
        ack.setTopic("T");
        ack.setRetry("1");
        ack.setStartOffset(100);
        ack.setQueueId(2);
        ack.setReviveQueueId(3);
        ack.setPopTime(1700000000000L);
        ack.setInvisibleTime(30000);
        ack.setBitSet(bits);
        BatchAckMessageRequestBody acks = new BatchAckMessageRequestBody();
        acks.setBrokerName("broker-a");
        acks.setAcks(List.of(ack));
        print(acks);
    }

    private static void stats() {
        BrokerStatsItem item = new BrokerStatsItem();
        item.setSum(7);
        item.setTps(0.25);
        item.setAvgpt(1.5);
        BrokerStatsData data = new BrokerStatsData();
        data.setStatsMinute(item);
        data.setStatsHour(new BrokerStatsItem());
        data.setStatsDay(new BrokerStatsItem());
        print(data);

        OffsetWrapper progress = new OffsetWrapper();
        progress.setBrokerOffset(9);
        progress.setConsumerOffset(5);
        progress.setPullOffset(6);
        progress.setLastTimestamp(1700000000000L);
        ConsumeStats stats = new ConsumeStats();
        stats.setConsumeTps(2.0);
        stats.getOffsetTable().put(FIRST, progress);
        print(stats);
        ConsumeStatsList list = new ConsumeStatsList();
        list.setBrokerAddr("10.0.0.2:10911");
        list.setTotalDiff(4);
        list.setTotalInflightDiff(1);
        list.setConsumeStatsList(List.of(Map.of("G", List.of(stats))));
        print(list);

        ConsumeQueueData entry = new ConsumeQueueData();
        entry.setPhysicOffset(100);
        entry.setPhysicSize(200);
        entry.setTagsCode(97);
        QueryConsumeQueueResponseBody slice = new QueryConsumeQueueResponseBody();
        slice.setMaxQueueIndex(9);
        slice.setMinQueueIndex(1);
        slice.setQueueData(List.of(entry));
        slice.setSubscriptionData(subscription());
        slice.setFilterData("null");
        print(slice);
    }

    private static void replication() {
        HARuntimeInfo.HAConnectionRuntimeInfo slave = new HARuntimeInfo.HAConnectionRuntimeInfo();
        slave.setAddr("10.0.0.3:10912");
        slave.setSlaveAckOffset(90);
        slave.setDiff(10);
        slave.setInSync(true);
        slave.setTransferFromWhere(80);
        HARuntimeInfo status = new HARuntimeInfo();
        status.setMaster(true);
        status.setMasterCommitLogMaxOffset(100);
        status.setInSyncSlaveNums(1);
        status.setHaConnectionInfo(List.of(slave));
        print(status);

        EpochEntryCache cache = new EpochEntryCache(
            "c", "broker-a", 1, List.of(new EpochEntry(1, 0, 50), new EpochEntry(2, 50)), 99);
        print(cache);
    }

    private static void controller() {
        print(new SyncStateSet(new LinkedHashSet<>(List.of(1L, 2L)), 4));
        BrokerMemberGroup members = new BrokerMemberGroup("c", "broker-a");
        members.setBrokerAddrs(Map.of(1L, "10.0.0.2:10911"));
        ElectMasterResponseBody elected = new ElectMasterResponseBody(set(1L));
        elected.setBrokerMemberGroup(members);
        print(elected);

        BrokerReplicasInfo.ReplicaIdentity alive =
            new BrokerReplicasInfo.ReplicaIdentity("broker-a", 1L, "10.0.0.2:10911", true);
        BrokerReplicasInfo.ReplicasInfo replicas = new BrokerReplicasInfo.ReplicasInfo(
            1L, "10.0.0.2:10911", 3, 4, List.of(alive), Collections.emptyList());
        BrokerReplicasInfo table = new BrokerReplicasInfo();
        table.addReplicaInfo("broker-a", replicas);
        print(table);
    }

    private static void access() {
        UserInfo user = new UserInfo();
        user.setUsername("a");
        user.setPassword("secret");
        user.setUserType("Normal");
        user.setUserStatus("enable");
        print(user);

        AclInfo.PolicyEntryInfo entry = new AclInfo.PolicyEntryInfo();
        entry.setResource("Topic:*");
        entry.setActions(List.of("Pub", "Sub"));
        entry.setSourceIps(List.of("10.0.0.0/8"));
        entry.setDecision("Allow");
        AclInfo.PolicyInfo policy = new AclInfo.PolicyInfo();
        policy.setPolicyType("Custom");
        policy.setEntries(List.of(entry));
        AclInfo acl = new AclInfo();
        acl.setSubject("User:a");
        acl.setPolicies(List.of(policy));
        print(acl);
    }

    @SafeVarargs
    private static <T> HashSet<T> set(T... members) {
        return new LinkedHashSet<>(Arrays.asList(members));
    }
}
