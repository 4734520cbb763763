import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageQueue;

/** Offsets by queue number. */
final class Positions {
    private Positions() {
    }

    static Map<Integer, Long> of(Map<MessageQueue, Long> offsets) {
        Map<Integer, Long> positions = new TreeMap<>();
        offsets.forEach((queue, offset) -> positions.put(queue.getQueueId(), offset));
        return positions;
    }
}
