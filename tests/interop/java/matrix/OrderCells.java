import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.common.message.MessageQueue;

/** Order without broker locks, and order that is laid down at the name server. */
final class OrderCells {
    private static final int MANY = 12;

    private OrderCells() {
    }

    /** The name server says how many of the queues take part: producers see no others. */
    static Map<String, Object> orderConfig(Stage stage) throws Exception {
        DefaultMQPushConsumer consumer = stage.pushConsumer("1", "*");
        Deliveries deliveries = new Deliveries().inOrderOf(consumer);
        consumer.start();
        List<MessageQueue> queues = stage.producer.fetchPublishMessageQueues(stage.topic);
        for (int n = 0; n < MANY; n++) {
            stage.producer.send(
                stage.message("message " + n),
                (known, message, order) -> known.get((Integer) order % known.size()),
                n);
        }
        return Facts.of("queues", queues.size(), "deliveries", deliveries.await(MANY));
    }

    static Map<String, Object> broadcastOrdered(Stage stage) throws Exception {
        for (MessageQueue queue : stage.queues(stage.topic)) {
            for (int n = 0; n < MANY; n++) {
                stage.producer.send(stage.message("message " + n), queue);
            }
        }
        int expected = MANY * stage.queues(stage.topic).size();
        Deliveries[] deliveries = new Deliveries[2];
        for (int n = 0; n < 2; n++) {
            DefaultMQPushConsumer consumer = stage.pushConsumer("member" + n, "*");
            PushCells.broadcasting(consumer);
            deliveries[n] = new Deliveries().inOrderOf(consumer);
            consumer.start();
        }
        return Facts.of(
            "first", deliveries[0].await(expected), "second", deliveries[1].await(expected));
    }
}
