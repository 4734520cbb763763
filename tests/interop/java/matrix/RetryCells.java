import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.common.message.Message;

/** Messages that come later: refused ones, and delayed ones. */
final class RetryCells {
    private RetryCells() {
    }

    /** Every other message is refused once. */
    static Map<String, Object> retrySuccess(Stage stage) throws Exception {
        DefaultMQPushConsumer consumer = stage.pushConsumer("1", "*");
        Deliveries deliveries = new Deliveries(message ->
            Facts.body(message).endsWith("odd") && message.getReconsumeTimes() == 0).of(consumer);
        consumer.start();
        for (int n = 0; n < 6; n++) {
            stage.producer.send(stage.message(n + (n % 2 == 0 ? " even" : " odd"), "tag" + n));
        }
        return Facts.of("deliveries", deliveries.await(9));
    }

    static Map<String, Object> deadLetter(Stage stage) throws Exception {
        DefaultMQPushConsumer consumer = stage.pushConsumer("1", "*");
        consumer.setMaxReconsumeTimes(2);
        Deliveries deliveries =
            new Deliveries(message -> Facts.body(message).startsWith("bad")).of(consumer);
        consumer.start();
        Message bad = stage.message("bad", "tag");
        bad.putUserProperty("colour", "red");
        stage.producer.send(bad);
        stage.producer.send(stage.message("good", "tag"));
        List<Map<String, Object>> delivered = deliveries.await(4);
        List<Object> dead = stage.stored("%DLQ%" + stage.group, 1);
        return Facts.of("deliveries", delivered, "dead", dead);
    }

    /** Levels 1 and 2 and none, sent in the order in which they must not arrive. */
    static Map<String, Object> delayLevel(Stage stage) throws Exception {
        DefaultMQPushConsumer consumer = stage.pushConsumer("1", "*");
        Deliveries deliveries = new Deliveries().of(consumer);
        consumer.start();
        Set<String> ids = new HashSet<>();
        for (int level = 2; level >= 0; level--) {
            Message message = stage.message("level " + level, "tag");
            message.setDelayTimeLevel(level);
            ids.add(stage.producer.send(message).getMsgId());
        }
        return Facts.of("ids", ids, "deliveries", deliveries.await(3));
    }
}
