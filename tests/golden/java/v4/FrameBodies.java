import com.alibaba.fastjson.serializer.SerializerFeature;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.common.DataVersion;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.protocol.body.ClusterInfo;
import org.apache.rocketmq.common.protocol.body.KVTable;
import org.apache.rocketmq.common.protocol.body.RegisterBrokerBody;
import org.apache.rocketmq.common.protocol.body.TopicConfigSerializeWrapper;
import org.apache.rocketmq.common.protocol.body.TopicList;
import org.apache.rocketmq.common.protocol.route.BrokerData;
import org.apache.rocketmq.common.protocol.route.QueueData;
import org.apache.rocketmq.common.protocol.route.TopicRouteData;

/** What brokers tell a NameServer and what it answers, in 4.9. */
class FrameBodies {
    static void print() {
        RegisterBrokerBody registration = registration();
        FrameGolden.print("plain registration", "two topics", registration.encode(false));
        FrameGolden.print("compressed registration", "two topics", registration.encode(true));
        RegisterBrokerBody none = new RegisterBrokerBody();
        none.getTopicConfigSerializeWrapper().setDataVersion(version());
        FrameGolden.print("plain registration", "nothing", none.encode(false));
        FrameGolden.print("compressed registration", "nothing", none.encode(true));
        FrameGolden.print("DataVersion", "4.9", version().encode());
        routes();
        lists();
    }

    private static RegisterBrokerBody registration() {
        TopicConfig plain = new TopicConfig("TopicTest", 4, 8, 6);
        TopicConfig typed = new TopicConfig("%RETRY%group", 1, 1, 6);
        TopicConfigSerializeWrapper topics = new TopicConfigSerializeWrapper();
        topics.getTopicConfigTable().put(plain.getTopicName(), plain);
        topics.getTopicConfigTable().put(typed.getTopicName(), typed);
        topics.setDataVersion(version());
        RegisterBrokerBody made = new RegisterBrokerBody();
        made.setTopicConfigSerializeWrapper(topics);
        made.setFilterServerList(Arrays.asList("10.0.0.1:30000"));
        return made;
    }

    private static DataVersion version() {
        DataVersion made = new DataVersion();
        made.setTimestamp(1700000000000L);
        made.getCounter().set(5);
        return made;
    }

    private static void routes() {
        TopicRouteData empty = new TopicRouteData();
        FrameGolden.print("TopicRoute", "empty", empty.encode());
        TopicRouteData route = new TopicRouteData();
        route.setQueueDatas(Arrays.asList(queues("broker-a"), queues("broker-b")));
        route.setBrokerDatas(Arrays.asList(broker("broker-a"), broker("broker-b")));
        route.setFilterServerTable(new HashMap<>());
        route.getFilterServerTable().put("10.0.0.1:10911", Arrays.asList("10.0.0.1:30000"));
        route.setOrderTopicConf("broker-a:4;broker-b:4");
        FrameGolden.print("TopicRoute", "full", route.encode());
        FrameGolden.print("TopicRoute", "full, standard JSON", route.encode(
            SerializerFeature.BrowserCompatible,
            SerializerFeature.QuoteFieldNames,
            SerializerFeature.SkipTransientField,
            SerializerFeature.MapSortField));
    }

    private static QueueData queues(String broker) {
        QueueData made = new QueueData();
        made.setBrokerName(broker);
        made.setReadQueueNums(4);
        made.setWriteQueueNums(8);
        made.setPerm(6);
        made.setTopicSysFlag(1);
        return made;
    }

    private static BrokerData broker(String name) {
        HashMap<Long, String> addresses = new HashMap<>();
        addresses.put(0L, "10.0.0.1:10911");
        addresses.put(1L, "10.0.0.2:10911");
        return new BrokerData("DefaultCluster", name, addresses);
    }

    private static void lists() {
        ClusterInfo cluster = new ClusterInfo();
        FrameGolden.print("ClusterInfo", "empty", cluster.encode());
        cluster.setBrokerAddrTable(new HashMap<>());
        cluster.getBrokerAddrTable().put("broker-a", broker("broker-a"));
        cluster.setClusterAddrTable(new HashMap<>());
        Set<String> names = new HashSet<>(Arrays.asList("broker-a"));
        cluster.getClusterAddrTable().put("DefaultCluster", names);
        FrameGolden.print("ClusterInfo", "full", cluster.encode());
        KVTable table = new KVTable();
        FrameGolden.print("KvTable", "empty", table.encode());
        table.getTable().put("order", "broker-a:4;\u00fc");
        FrameGolden.print("KvTable", "full", table.encode());
        TopicList list = new TopicList();
        FrameGolden.print("TopicList", "empty", list.encode());
        list.setTopicList(new TreeSet<>(Arrays.asList("%RETRY%group", "TopicTest")));
        list.setBrokerAddr("10.0.0.1:10911");
        FrameGolden.print("TopicList", "full", list.encode());
    }
}
