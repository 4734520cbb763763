import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;

/** Messages for a time in milliseconds, by the properties that clients of 5.x set for it. */
final class TimerCells {
    private TimerCells() {
    }

    /** Sent in the order in which they must not arrive. */
    static Map<String, Object> timer(Stage stage) throws Exception {
        DefaultMQPushConsumer consumer = stage.pushConsumer("1", "*");
        Deliveries deliveries = new Deliveries().of(consumer);
        consumer.start();
        Map<String, Object> due = new TreeMap<>();
        long now = System.currentTimeMillis();
        send(stage, "at", "TIMER_DELIVER_MS", now + 3_777);
        due.put("at", now + 3_777);
        send(stage, "seconds", "TIMER_DELAY_SEC", 2);
        due.put("seconds", now + 2_000);
        send(stage, "milliseconds", "TIMER_DELAY_MS", 1_333);
        due.put("milliseconds", now + 1_333);
        send(stage, "over", "TIMER_DELIVER_MS", now - 10_000);
        due.put("over", now);
        return Facts.of("due", due, "deliveries", deliveries.await(4));
    }

    private static void send(Stage stage, String body, String property, long value)
        throws Exception {
        Message message = stage.message(body, "tag");
        MessageAccessor.putProperty(message, property, String.valueOf(value));
        stage.producer.send(message);
    }
}
