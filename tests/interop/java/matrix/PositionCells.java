import java.text.SimpleDateFormat;
import java.util.Date;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.store.OffsetStore;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageQueue;

/** Where a new group begins, and how its position is set back. */
final class PositionCells {
    private PositionCells() {
    }

    static Map<String, Object> fromFirst(Stage stage) throws Exception {
        DefaultMQPushConsumer consumer = stage.pushConsumer("1", "*");
        Deliveries deliveries = new Deliveries().of(consumer);
        send(stage, "before", 3);
        consumer.start();
        Stage.await(() -> Stage.queuesHeld(consumer, stage.topic) == 1);
        send(stage, "after", 3);
        Stage.await(() -> deliveries.count("after") >= 3);
        Stage.settle();
        return Facts.of("deliveries", deliveries.facts());
    }

    static Map<String, Object> fromLast(Stage stage) throws Exception {
        DefaultMQPushConsumer consumer = stage.pushConsumer("1", "*");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        Deliveries deliveries = new Deliveries().of(consumer);
        send(stage, "before", 3);
        awaitVisible(stage);
        consumer.start();
        Stage.await(() -> Stage.queuesHeld(consumer, stage.topic) == 1);
        send(stage, "after", 3);
        return Facts.of("deliveries", deliveries.await(3));
    }

    /**
     * A timestamp has whole seconds, so a second begins between the two sends. It is nearer to the
     * second: brokers of 4.9 look for the nearest message.
     */
    static Map<String, Object> fromTimestamp(Stage stage) throws Exception {
        send(stage, "before", 3);
        long second = ((System.currentTimeMillis() + 1500) / 1000 + 1) * 1000;
        Thread.sleep(second - System.currentTimeMillis() + 5);
        send(stage, "after", 3);
        awaitVisible(stage);
        DefaultMQPushConsumer consumer = stage.pushConsumer("1", "*");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP);
        consumer.setConsumeTimestamp(new SimpleDateFormat("yyyyMMddHHmmss").format(new Date(second)));
        Deliveries deliveries = new Deliveries().of(consumer);
        consumer.start();
        return Facts.of("deliveries", deliveries.await(3));
    }

    /** The running group is set back to the moment between the two sends. */
    static Map<String, Object> offsetReset(Stage stage) throws Exception {
        DefaultMQPushConsumer consumer = stage.pushConsumer("1", "*");
        Deliveries deliveries = new Deliveries().of(consumer);
        send(stage, "before", 4);
        Thread.sleep(1_500);
        long between = System.currentTimeMillis();
        send(stage, "after", 4);
        consumer.start();
        List<Map<String, Object>> first = deliveries.await(8);
        awaitCommitted(stage, consumer, 4);
        Map<MessageQueue, Long> told = consumer.getDefaultMQPushConsumerImpl().getmQClientFactory()
            .getMQClientAPIImpl().invokeBrokerToResetOffset(
                stage.clients.broker, stage.topic, stage.group, between, true, 10_000);
        send(stage, "wake", 2);
        Stage.await(() -> deliveries.count("after") >= 8 && deliveries.count("wake") >= 2);
        Stage.settle();
        List<Map<String, Object>> all = deliveries.facts();
        return Facts.of(
            "first", first, "told", Positions.of(told), "again", all.subList(first.size(), all.size()));
    }

    private static void awaitCommitted(Stage stage, DefaultMQPushConsumer consumer, long offset)
        throws Exception {
        List<MessageQueue> queues = stage.queues(stage.topic);
        OffsetStore offsets = consumer.getDefaultMQPushConsumerImpl().getOffsetStore();
        consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset();
        Stage.await(() -> queues.stream().allMatch(queue ->
            offsets.readOffset(queue, ReadOffsetType.READ_FROM_STORE) == offset));
    }

    private static void send(Stage stage, String body, int count) throws Exception {
        for (int n = 0; n < count; n++) {
            stage.producer.send(stage.message(body + " " + n));
        }
    }

    /** A queue's end grows a moment after the send. */
    private static void awaitVisible(Stage stage) throws Exception {
        stage.stored(stage.topic, 3);
    }
}
