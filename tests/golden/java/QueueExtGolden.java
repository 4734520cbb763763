import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import org.apache.rocketmq.store.ConsumeQueueExt;
import org.apache.rocketmq.store.ConsumeQueueExt.CqExtUnit;

/** Writes units of a consume queue extension into files of 64 bytes and prints both. */
public class QueueExtGolden {
    public static void main(String[] args) throws Exception {
        Path root = Files.createTempDirectory("ext");
        ConsumeQueueExt queue = new ConsumeQueueExt("T", 0, root.toString(), 64, 64);
        put(queue, 2598919L, 1700000000123L, new byte[] {1, 2, 3, 4, 5, 6, 7, (byte) 0x80});
        put(queue, -5L, 1700000000124L, null);
        put(queue, 0L, 1700000000125L, new byte[] {(byte) 0xff, 0, 0, 0, 0, 0, 0, 1});
        queue.flush(0);
        File[] files = root.resolve("T").resolve("0").toFile().listFiles();
        Arrays.sort(files);
        for (File file : files) {
            System.out.println("{\"file\":\"" + file.getName() + "\",\"hex\":\""
                + hex(Files.readAllBytes(file.toPath())) + "\"}");
        }
    }

    private static void put(ConsumeQueueExt queue, long tags, long time, byte[] bits) {
        long address = queue.put(new CqExtUnit(tags, time, bits));
        System.out.println("{\"address\":" + address + ",\"tags\":" + tags + ",\"time\":" + time
            + ",\"bits\":\"" + (bits == null ? "" : hex(bits)) + "\"}");
    }

    private static String hex(byte[] data) {
        StringBuilder text = new StringBuilder();
        for (byte each : data) {
            text.append(String.format("%02x", each));
        }
        return text.toString();
    }
}
