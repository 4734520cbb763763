import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** Timers that are taken back before they are due, which clients can do since 5.3. */
public class RecallCell implements Cell {
    @Override
    public Map<String, Object> play(Stage stage) throws Exception {
        DefaultMQPushConsumer consumer = stage.pushConsumer("1", "*");
        Deliveries deliveries = new Deliveries().of(consumer);
        consumer.start();
        SendResult recalled = send(stage, "recalled", 4_000);
        send(stage, "kept", 5_000);
        String id = stage.producer.recallMessage(stage.topic, recalled.getRecallHandle());
        return Facts.of(
            "id", recalled.getMsgId(), "told", id, "deliveries", deliveries.await(1));
    }

    private static SendResult send(Stage stage, String body, long delay) throws Exception {
        Message message = stage.message(body, "tag");
        message.setDelayTimeMs(delay);
        return stage.producer.send(message);
    }
}
