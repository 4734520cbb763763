import java.nio.ByteBuffer;
import java.util.Map;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.message.MessageVersion;
import org.apache.rocketmq.store.CommitLog;
import org.apache.rocketmq.store.MessageExtEncoder;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** Prints the cases that only 5.x has: what its store makes of a message, version 2, the CRC property. */
public class RecordGolden5 {
    public static void main(String[] args) throws Exception {
        stored("stored", MessageVersion.MESSAGE_VERSION_V1, "TopicTest");
        stored("stored, topic of 128 bytes", MessageVersion.MESSAGE_VERSION_V2, "t".repeat(128));
        stored("stored, topic of 255 bytes", MessageVersion.MESSAGE_VERSION_V2, "%RETRY%" + "g".repeat(248));
        sealed("sealed", "TAGS\u0001TagA\u0002");
        sealed("sealed, last separator missing", "TAGS\u0001TagA");
        sealed("sealed, no properties", "");
        for (int crc : new int[] {0, 7, 123456789, Integer.MAX_VALUE}) {
            ByteBuffer property = ByteBuffer.allocate(CommitLog.CRC32_RESERVED_LEN);
            MessageDecoder.createCrc32(property, crc);
            Map<String, Object> line = RecordGolden.line("crc_property", String.valueOf(crc));
            line.put("crc", crc);
            line.put("hex", RecordGolden.hex(property.array()));
            RecordGolden.print(line);
        }
    }

    private static void stored(String name, MessageVersion version, String topic) throws Exception {
        MessageExtBrokerInner message = inner(topic);
        message.setVersion(version);
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        Map<String, Object> line = RecordGolden.describe(name, message);
        line.put("hex", RecordGolden.hex(encode(message, new MessageStoreConfig())));
        RecordGolden.print(line);
    }

    private static void sealed(String name, String properties) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setEnabledAppendPropCRC(true);
        MessageExtBrokerInner message = inner("TopicTest");
        message.setPropertiesString(properties);
        Map<String, Object> line = RecordGolden.describe(name, message);
        byte[] record = encode(message, config);
        int end = record.length - CommitLog.CRC32_RESERVED_LEN;
        ByteBuffer seal = ByteBuffer.wrap(record, end, CommitLog.CRC32_RESERVED_LEN);
        MessageDecoder.createCrc32(seal, UtilAll.crc32(record, 0, end));
        line.put("kind", "sealed");
        line.put("properties", properties);
        line.put("hex", RecordGolden.hex(record));
        RecordGolden.print(line);
    }

    private static MessageExtBrokerInner inner(String topic) throws Exception {
        return RecordGolden.fill(new MessageExtBrokerInner(), topic, "hello", "10.0.0.5", "10.0.0.1", "TAGS", "TagA");
    }

    /** The store fills in the physical offset when it appends; here that is done by hand. */
    private static byte[] encode(MessageExtBrokerInner message, MessageStoreConfig config) {
        MessageExtEncoder encoder = new MessageExtEncoder(config);
        if (encoder.encode(message) != null) {
            throw new IllegalStateException("the store refuses " + message);
        }
        ByteBuffer buffer = encoder.getEncoderBuffer();
        byte[] record = new byte[buffer.getInt(0)];
        buffer.get(record);
        ByteBuffer.wrap(record).putLong(MessageDecoder.MESSAGE_PHYSIC_OFFSET_POSITION, message.getCommitLogOffset());
        return record;
    }
}
