import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.MQAdminImpl;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Prints what a broker's store holds, as a client sees it: one JSON object a line.
 *
 * <p>Each queue with its bounds, each message, and what look-ups by key, by id and by time find:
 * every key of every message, some ids and some times of every queue; and what a pull by tags finds.
 */
public class StoreFacts {
    private static final int BATCH = 32;
    private static final String SOME_TAGS = "paid || \u6807\u7b7e";
    private static final int KEY_LIMIT = 64;
    private static final int ID_STRIDE = 16;

    // What the client itself adds to a message it has pulled.
    private static final Set<String> CLIENT_PROPERTIES = new TreeSet<>(Arrays.asList("MIN_OFFSET", "MAX_OFFSET"));

    private final DefaultMQPullConsumer consumer;
    private final MQAdminImpl lookup;
    private final Map<String, Set<String>> keys = new TreeMap<>();
    private final Map<String, Set<String>> uniqueKeys = new TreeMap<>();

    StoreFacts(DefaultMQPullConsumer consumer) {
        this.consumer = consumer;
        this.lookup = consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory().getMQAdminImpl();
    }

    void print(List<MessageQueue> queues) throws Exception {
        for (MessageQueue queue : queues) {
            printQueue(queue);
        }
        printKeys(keys, false);
        printKeys(uniqueKeys, true);
    }

    private void printQueue(MessageQueue queue) throws Exception {
        long min = consumer.minOffset(queue);
        long max = consumer.maxOffset(queue);
        Map<String, Object> facts = place("queue", queue);
        facts.put("min", min);
        facts.put("max", max);
        facts.put("committed", committed(queue));
        facts.put("tagged", tagged(queue, min, max));
        print(facts);
        List<MessageExt> messages = pull(queue, "*", min, max);
        for (MessageExt message : messages) {
            print(facts(message));
            noteKeys(message);
        }
        for (int at = 0; at < messages.size(); at += ID_STRIDE) {
            printById((MessageClientExt) messages.get(at));
        }
        printTimes(queue, messages);
    }

    private Long committed(MessageQueue queue) throws MQClientException {
        long offset = consumer.fetchConsumeOffset(queue, true);
        return offset < 0 ? null : offset;
    }

    private List<Long> tagged(MessageQueue queue, long min, long max) throws Exception {
        List<MessageExt> messages = pull(queue, SOME_TAGS, min, max);
        return messages.stream().map(MessageExt::getQueueOffset).collect(Collectors.toList());
    }

    private List<MessageExt> pull(MessageQueue queue, String tags, long min, long max) throws Exception {
        List<MessageExt> messages = new ArrayList<>();
        long next = min;
        while (next < max) {
            PullResult result = consumer.pull(queue, tags, next, BATCH);
            if (result.getNextBeginOffset() <= next) {
                throw new IllegalStateException(queue + " at " + next + " of " + max + ": " + result);
            }
            if (result.getPullStatus() == PullStatus.FOUND) {
                messages.addAll(result.getMsgFoundList());
            }
            next = result.getNextBeginOffset();
        }
        return messages;
    }

    private void noteKeys(MessageExt message) {
        String unique = message.getProperty("UNIQ_KEY");
        if (unique != null) {
            uniqueKeys.computeIfAbsent(message.getTopic(), topic -> new TreeSet<>()).add(unique);
        }
        if (message.getKeys() != null) {
            for (String key : message.getKeys().split(" ")) {
                keys.computeIfAbsent(message.getTopic(), topic -> new TreeSet<>()).add(key);
            }
        }
    }

    private void printById(MessageClientExt message) throws Exception {
        MessageExt found = consumer.viewMessage(message.getTopic(), message.getOffsetMsgId());
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("kind", "id");
        facts.put("id", message.getOffsetMsgId());
        facts.put("physical_offset", found.getCommitLogOffset());
        facts.put("body", Base64.getEncoder().encodeToString(found.getBody()));
        print(facts);
    }

    private void printTimes(MessageQueue queue, List<MessageExt> messages) throws MQClientException {
        Set<Long> times = new TreeSet<>(Arrays.asList(0L, System.currentTimeMillis() + 1_000));
        for (int part = 0; part <= 4 && !messages.isEmpty(); part++) {
            long time = messages.get((messages.size() - 1) * part / 4).getStoreTimestamp();
            times.addAll(Arrays.asList(time - 1, time, time + 1));
        }
        for (long time : times) {
            Map<String, Object> facts = place("time", queue);
            facts.put("time", time);
            facts.put("offset", consumer.searchOffset(queue, time));
            print(facts);
        }
    }

    private void printKeys(Map<String, Set<String>> keysOfTopics, boolean unique) throws Exception {
        for (Map.Entry<String, Set<String>> topic : keysOfTopics.entrySet()) {
            for (String key : topic.getValue()) {
                Map<String, Object> facts = new LinkedHashMap<>();
                facts.put("kind", unique ? "unique key" : "key");
                facts.put("topic", topic.getKey());
                facts.put("key", key);
                facts.put("offsets", find(topic.getKey(), key, unique));
                print(facts);
            }
        }
    }

    /** The physical offsets of the messages found; none is an answer too. */
    List<Long> find(String topic, String key, boolean unique) throws InterruptedException {
        try {
            QueryResult result = unique
                ? lookup.queryMessageByUniqKey(topic, key, KEY_LIMIT, 0, Long.MAX_VALUE)
                : lookup.queryMessage(topic, key, KEY_LIMIT, 0, Long.MAX_VALUE);
            return result.getMessageList().stream().map(MessageExt::getCommitLogOffset).collect(Collectors.toList());
        } catch (MQClientException nothing) {
            return new ArrayList<>();
        }
    }

    private static Map<String, Object> facts(MessageExt message) {
        Map<String, Object> facts = new LinkedHashMap<>();
        Map<String, String> properties = new TreeMap<>(message.getProperties());
        properties.keySet().removeAll(CLIENT_PROPERTIES);
        facts.put("kind", "message");
        facts.put("topic", message.getTopic());
        facts.put("body", Base64.getEncoder().encodeToString(message.getBody()));
        facts.put("properties", properties);
        facts.put("flag", message.getFlag());
        facts.put("queue_id", message.getQueueId());
        facts.put("queue_offset", message.getQueueOffset());
        facts.put("physical_offset", message.getCommitLogOffset());
        facts.put("sys_flag", message.getSysFlag());
        facts.put("born_timestamp", message.getBornTimestamp());
        facts.put("born_host", host((InetSocketAddress) message.getBornHost()));
        facts.put("store_timestamp", message.getStoreTimestamp());
        facts.put("store_host", host((InetSocketAddress) message.getStoreHost()));
        facts.put("reconsume_times", message.getReconsumeTimes());
        facts.put("prepared_transaction_offset", message.getPreparedTransactionOffset());
        facts.put("body_crc", message.getBodyCRC());
        facts.put("size", message.getStoreSize());
        return facts;
    }

    private static List<Object> host(InetSocketAddress host) {
        return Arrays.asList(host.getAddress().getHostAddress(), host.getPort());
    }

    private static Map<String, Object> place(String kind, MessageQueue queue) {
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("kind", kind);
        facts.put("topic", queue.getTopic());
        facts.put("queue_id", queue.getQueueId());
        return facts;
    }

    private static void print(Map<String, Object> facts) {
        System.out.println(json(facts));
    }

    private static String json(Object value) {
        if (value instanceof Map) {
            return ((Map<?, ?>) value).entrySet().stream()
                .map(member -> json(member.getKey()) + ":" + json(member.getValue()))
                .collect(Collectors.joining(",", "{", "}"));
        }
        if (value instanceof List) {
            return ((List<?>) value).stream().map(StoreFacts::json).collect(Collectors.joining(",", "[", "]"));
        }
        return value instanceof String ? quoted((String) value) : String.valueOf(value);
    }

    private static String quoted(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char unit : text.toCharArray()) {
            boolean plain = unit >= ' ' && unit <= '~' && unit != '"' && unit != '\\';
            quoted.append(plain ? String.valueOf(unit) : String.format("\\u%04x", (int) unit));
        }
        return quoted.append('"').toString();
    }
}
