import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Calendar;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.compression.CompressorFactory;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;

/** Prints one JSON line for each case of the record codec; runs on the jars of 4.9 and of 5.x. */
public class RecordGolden {
    static final String V6_CLIENT = "2001:db8::25";
    static final String V6_BROKER = "2001:db8::1";

    public static void main(String[] args) throws Exception {
        records();
        compressed();
        batches();
        properties();
        ids();
        hashes();
    }

    private static void records() throws Exception {
        record("plain", message("TopicTest", "hello", "10.0.0.5", "10.0.0.1"));
        record("empty body", message("TopicTest", "", "10.0.0.5", "10.0.0.1"));
        record("properties", message("TopicTest", "hello", "10.0.0.5", "10.0.0.1",
            "TAGS", "TagA", "KEYS", "k1 k2", "UNIQ_KEY", "0A0000051234AABBCCDD000102030004"));
        record("born host v6", message("TopicTest", "hello", V6_CLIENT, "10.0.0.1", "TAGS", "TagA"));
        record("store host v6", message("TopicTest", "hello", "10.0.0.5", V6_BROKER, "TAGS", "TagA"));
        record("both hosts v6", message("TopicTest", "hello", V6_CLIENT, V6_BROKER));
        record("not ascii", message("主题", "正文 \uD83D\uDE80", "10.0.0.5", "10.0.0.1",
            "TAGS", "标签", "name é", "value \uD83D\uDE80"));
        record("topic of 127 bytes", message("t".repeat(127), "x", "10.0.0.5", "10.0.0.1"));

        MessageExt all = message("%RETRY%group", "again", "192.168.255.254", "127.0.0.1", "RETRY_TOPIC", "T");
        all.setFlag(-7);
        all.setSysFlag(0x8 | 0x2);
        all.setReconsumeTimes(16);
        all.setPreparedTransactionOffset(0x0102030405060708L);
        all.setQueueId(Integer.MAX_VALUE);
        all.setQueueOffset(Long.MAX_VALUE);
        record("every field set", all);
    }

    private static void compressed() throws Exception {
        byte[] plain = "hello bolide ".repeat(40).getBytes(StandardCharsets.UTF_8);
        for (CompressionType type : CompressionType.values()) {
            byte[] body = CompressorFactory.getCompressor(type).compress(plain, 5);
            MessageExt message = message("TopicTest", "", "10.0.0.5", "10.0.0.1");
            message.setBody(body);
            message.setSysFlag(0x1 | type.getCompressionFlag());
            Map<String, Object> line = describe("body in " + type, message);
            line.put("plain", hex(plain));
            line.put("hex", hex(MessageDecoder.encode(message, false)));
            print(line);
        }
    }

    private static void batches() {
        Message tagged = new Message("T", "b1".getBytes(StandardCharsets.UTF_8));
        MessageAccessor.setProperties(tagged, pairs("TAGS", "TagA"));
        Message bare = new Message("T", "b2".getBytes(StandardCharsets.UTF_8));
        MessageAccessor.setProperties(bare, pairs());
        Message flagged = new Message("T", new byte[0]);
        MessageAccessor.setProperties(flagged, pairs("名", "值", "WAIT", "true"));
        flagged.setFlag(-1);
        batch("two messages", List.of(tagged, bare));
        batch("empty body and flag", List.of(flagged));
        batch("many", List.of(flagged, tagged, bare, tagged));
    }

    private static void properties() {
        written("none", pairs());
        written("one", pairs("TAGS", "TagA"));
        written("two", pairs("TAGS", "TagA", "KEYS", "k1 k2"));
        written("empty value", pairs("a", "", "b", "1"));
        written("value with 0x01", pairs("a", "1\u00012"));
        String[] texts = {"", "\u0002", "a\u00011", "a\u00011\u0002", "a\u00011\u0002\u0002b\u00012", "a", "\u00011",
            "a\u0001", "a\u00011\u0002a\u00012\u0002", "ab\u0002c\u00013", "a\u0001\u00011\u0002", "\u0001a\u00011\u0002"};
        for (String text : texts) {
            Map<String, Object> line = line("parse", text);
            line.put("text", text);
            line.put("properties", new TreeMap<>(MessageDecoder.string2messageProperties(text)));
            print(line);
        }
    }

    private static void ids() throws Exception {
        for (String ip : List.of("10.0.0.1", "255.254.253.252", V6_BROKER)) {
            for (long offset : new long[] {0, 4096, Long.MAX_VALUE}) {
                Map<String, Object> line = line("offset_id", ip + " " + offset);
                line.put("ip", ip);
                line.put("port", 10911);
                line.put("offset", offset);
                line.put("id", MessageDecoder.createMessageId(host(ip, 10911), offset));
                print(line);
            }
        }
        unique("0A000005FFFEAABBCCDD00BC614E0001");
        unique("20010DB80000000000000000000000251234AABBCCDD00BC614EFFFF");
    }

    private static void hashes() {
        for (String text : List.of("", "a", "TagA", "TagB", "中文", "polygenelubricants", "rocket \uD83D\uDE80",
            "TopicTest#OrderID188", "é", "x".repeat(300))) {
            Map<String, Object> line = line("hash", text);
            line.put("text", text);
            line.put("hash", text.hashCode());
            print(line);
        }
    }

    private static void unique(String id) {
        Map<String, Object> line = line("unique_id", id);
        line.put("id", id);
        line.put("ip", hex(MessageClientIDSetter.getIPFromID(id)));
        line.put("pid", MessageClientIDSetter.getPidFromID(id));
        Calendar near = Calendar.getInstance();
        near.setTime(MessageClientIDSetter.getNearlyTimeFromID(id));
        // The date hangs on the day of the run; its distance from the start of its month does not.
        line.put("month_ms", (near.get(Calendar.DAY_OF_MONTH) - 1) * 86_400_000L
            + near.get(Calendar.HOUR_OF_DAY) * 3_600_000L + near.get(Calendar.MINUTE) * 60_000L
            + near.get(Calendar.SECOND) * 1_000L + near.get(Calendar.MILLISECOND));
        print(line);
    }

    private static void written(String name, Map<String, String> properties) {
        Map<String, Object> line = line("properties", name);
        line.put("properties", properties);
        line.put("text", MessageDecoder.messageProperties2String(properties));
        print(line);
    }

    private static void batch(String name, List<Message> messages) {
        List<Object> items = new ArrayList<>();
        for (Message message : messages) {
            Map<String, Object> item = new LinkedHashMap<>();
            item.put("flag", message.getFlag());
            item.put("body", hex(message.getBody()));
            item.put("properties", message.getProperties());
            items.add(item);
        }
        Map<String, Object> line = line("batch", name);
        line.put("messages", items);
        line.put("hex", hex(MessageDecoder.encodeMessages(messages)));
        print(line);
    }

    private static void record(String name, MessageExt message) throws Exception {
        Map<String, Object> line = describe(name, message);
        line.put("hex", hex(MessageDecoder.encode(message, false)));
        print(line);
    }

    static MessageExt message(String topic, String body, String born, String store, String... properties)
        throws Exception {
        return fill(new MessageExt(), topic, body, born, store, properties);
    }

    static <M extends MessageExt> M fill(M message, String topic, String body, String born, String store,
        String... properties) throws Exception {
        message.setTopic(topic);
        message.setBody(body.getBytes(StandardCharsets.UTF_8));
        MessageAccessor.setProperties(message, pairs(properties));
        message.setQueueId(3);
        message.setQueueOffset(7);
        message.setCommitLogOffset(4096);
        message.setBornTimestamp(1700000000000L);
        message.setStoreTimestamp(1700000000123L);
        message.setBornHost(host(born, 54321));
        message.setStoreHost(host(store, 10911));
        return message;
    }

    /** Completes the message (CRC, IPv6 flags) and says what is in it. */
    static Map<String, Object> describe(String name, MessageExt message) {
        message.setBodyCRC(UtilAll.crc32(message.getBody()));
        InetSocketAddress born = (InetSocketAddress) message.getBornHost();
        InetSocketAddress store = (InetSocketAddress) message.getStoreHost();
        if (born.getAddress().getAddress().length == 16) {
            message.setBornHostV6Flag();
        }
        if (store.getAddress().getAddress().length == 16) {
            message.setStoreHostAddressV6Flag();
        }
        Map<String, Object> line = line("record", name);
        line.put("topic", message.getTopic());
        line.put("body", hex(message.getBody()));
        line.put("properties", message.getProperties());
        line.put("flag", message.getFlag());
        line.put("queue_id", message.getQueueId());
        line.put("queue_offset", message.getQueueOffset());
        line.put("physical_offset", message.getCommitLogOffset());
        line.put("sys_flag", message.getSysFlag());
        line.put("born_timestamp", message.getBornTimestamp());
        line.put("born_host", hostText(born));
        line.put("store_timestamp", message.getStoreTimestamp());
        line.put("store_host", hostText(store));
        line.put("reconsume_times", message.getReconsumeTimes());
        line.put("prepared_transaction_offset", message.getPreparedTransactionOffset());
        line.put("body_crc", message.getBodyCRC());
        return line;
    }

    static Map<String, Object> line(String kind, String name) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("kind", kind);
        line.put("name", name);
        return line;
    }

    static void print(Map<String, Object> line) {
        System.out.println(json(line));
    }

    static String hex(byte[] bytes) {
        return UtilAll.bytes2string(bytes).toLowerCase();
    }

    private static Map<String, String> pairs(String... namesAndValues) {
        Map<String, String> map = new LinkedHashMap<>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            map.put(namesAndValues[i], namesAndValues[i + 1]);
        }
        return map;
    }

    private static InetSocketAddress host(String ip, int port) throws Exception {
        return new InetSocketAddress(InetAddress.getByName(ip), port);
    }

    private static Object hostText(InetSocketAddress host) {
        return List.of(hex(host.getAddress().getAddress()), host.getPort());
    }

    private static String json(Object value) {
        if (value instanceof Map) {
            return ((Map<?, ?>) value).entrySet().stream()
                .map(entry -> json(entry.getKey()) + ":" + json(entry.getValue()))
                .collect(Collectors.joining(",", "{", "}"));
        }
        if (value instanceof List) {
            return ((List<?>) value).stream().map(RecordGolden::json).collect(Collectors.joining(",", "[", "]"));
        }
        return value instanceof Number ? value.toString() : quote(value.toString());
    }

    private static String quote(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char unit : text.toCharArray()) {
            boolean plain = unit >= ' ' && unit <= '~' && unit != '"' && unit != '\\';
            quoted.append(plain ? String.valueOf(unit) : String.format("\\u%04x", (int) unit));
        }
        return quoted.append('"').toString();
    }
}
