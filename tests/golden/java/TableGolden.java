import java.lang.reflect.Method;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.broker.filter.ConsumerFilterManager;
import org.apache.rocketmq.broker.offset.ConsumerOffsetManager;
import org.apache.rocketmq.broker.subscription.SubscriptionGroupManager;
import org.apache.rocketmq.broker.topic.TopicConfigManager;
import org.apache.rocketmq.common.*;
import org.apache.rocketmq.filter.util.BloomFilterData;
import org.apache.rocketmq.remoting.protocol.*;

/**
 * Fills a broker's tables with fixed values and prints a line for each: the file's name and its
 * text as a string. What only one of 4.9 and 5.x has is reached by reflection.
 */
public class TableGolden {
    private static final long TIME = 1700000000000L;

    public static void main(String[] args) throws Exception {
        topics();
        groups();
        consumerOffsets();
        delayOffsets();
        consumerFilters();
    }

    private static void print(String file, String text) {
        String escaped = text.replace("\\", "\\\\").replace("\"", "\\\"")
            .replace("\n", "\\n").replace("\t", "\\t");
        System.out.println("{\"file\":\"" + file + "\",\"text\":\"" + escaped + "\"}");
    }

    private static void topics() throws Exception {
        TopicConfigManager topics = new TopicConfigManager();
        topics.getTopicConfigTable().clear();
        topics.getTopicConfigTable().put("Orders", new TopicConfig("Orders", 8, 4, 6));
        TopicConfig ordered = new TopicConfig("%RETRY%G", 1, 1, 4);
        ordered.setTopicSysFlag(1);
        ordered.setOrder(true);
        Method attributes = find(ordered, "setAttributes");
        if (attributes != null) {
            attributes.invoke(ordered, Map.of("message.type", "FIFO"));
        }
        topics.getTopicConfigTable().put("%RETRY%G", ordered);
        pin(topics);
        print("topics.json", topics.encode(true));
    }

    private static void groups() throws Exception {
        SubscriptionGroupManager groups = new SubscriptionGroupManager();
        var config = groups.getSubscriptionGroupTable().values().iterator().next();
        groups.getSubscriptionGroupTable().clear();
        config.setGroupName("G");
        config.setRetryMaxTimes(3);
        config.setConsumeBroadcastEnable(false);
        groups.getSubscriptionGroupTable().put("G", config);
        Method forbidden = find(groups, "getForbiddenTable");
        if (forbidden != null) {
            ConcurrentMap<String, Integer> bits = new ConcurrentHashMap<>(Map.of("Orders", 4));
            @SuppressWarnings("unchecked")
            var table = (ConcurrentMap<String, ConcurrentMap<String, Integer>>)
                forbidden.invoke(groups);
            table.put("G", bits);
        }
        pin(groups);
        print("subscriptionGroup.json", groups.encode(true));
    }

    private static void consumerOffsets() throws Exception {
        ConsumerOffsetManager offsets = new ConsumerOffsetManager();
        offsets.getOffsetTable().put("Orders@G", new ConcurrentHashMap<>(Map.of(0, 10L, 1, 20L)));
        offsets.getOffsetTable().put("%RETRY%G@G",
            new ConcurrentHashMap<>(Map.of(0, 9007199254740993L)));
        pin(offsets);
        print("consumerOffset.json", offsets.encode(true));
    }

    private static void delayOffsets() throws Exception {
        Class<?> kind;
        try {
            kind = Class.forName("org.apache.rocketmq.broker.schedule.DelayOffsetSerializeWrapper");
        } catch (ClassNotFoundException e) {
            kind = Class.forName("org.apache.rocketmq.store.schedule.DelayOffsetSerializeWrapper");
        }
        Object offsets = kind.getDeclaredConstructor().newInstance();
        find(offsets, "setOffsetTable")
            .invoke(offsets, new ConcurrentHashMap<>(Map.of(1, 0L, 2, 15L, 18, 7L)));
        Method version = find(offsets, "setDataVersion");
        if (version != null) {
            version.invoke(offsets, pinned(new DataVersion()));
        }
        print("delayOffset.json", ((RemotingSerializable) offsets).toJson(true));
    }

    private static void consumerFilters() throws Exception {
        ConsumerFilterManager filters = new ConsumerFilterManager();
        for (String group : new String[] {"G", "Left"}) {
            filters.register("Orders", group, "a > 3 AND b = 'x,1:y{\"'", "SQL92", TIME);
            var filter = filters.get("Orders", group);
            filter.setBornTime(TIME);
            filter.setDeadTime(group.equals("Left") ? TIME + 1 : 0);
            filter.setBloomFilterData(new BloomFilterData(new int[] {24, 26, 83}, 112));
        }
        // encode() would drop the one that left long ago.
        print("consumerFilter.json", RemotingSerializable.toJson(filters, true));
    }

    private static void pin(Object manager) throws Exception {
        Method version = find(manager, "getDataVersion");
        if (version != null) {
            pinned((DataVersion) version.invoke(manager));
        }
    }

    private static DataVersion pinned(DataVersion version) {
        version.setTimestamp(TIME);
        version.setCounter(new AtomicLong(5));
        return version;
    }

    private static Method find(Object object, String name) {
        for (Method method : object.getClass().getMethods()) {
            if (method.getName().equals(name)) {
                return method;
            }
        }
        return null;
    }
}
