import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Listeners: concurrent, in order, broadcast, by tags. */
final class PushCells {
    private static final int MANY = 40;

    private PushCells() {
    }

    static Map<String, Object> concurrent(Stage stage) throws Exception {
        DefaultMQPushConsumer consumer = stage.pushConsumer("1", "*");
        Deliveries deliveries = new Deliveries().of(consumer);
        for (int n = 0; n < MANY / 2; n++) {
            stage.producer.send(stage.message("message " + n));
        }
        consumer.start();
        for (int n = MANY / 2; n < MANY; n++) {
            stage.producer.send(stage.message("message " + n));
        }
        return Facts.of("deliveries", deliveries.await(MANY));
    }

    /** Message 3 of each queue is refused twice. */
    static Map<String, Object> ordered(Stage stage) throws Exception {
        DefaultMQPushConsumer consumer = stage.pushConsumer("1", "*");
        consumer.setSuspendCurrentQueueTimeMillis(100);
        Deliveries deliveries = new Deliveries(message ->
            Facts.body(message).equals("message 3") && message.getReconsumeTimes() < 2)
            .inOrderOf(consumer);
        int expected = 0;
        for (MessageQueue queue : stage.queues(stage.topic)) {
            for (int n = 0; n < 10; n++) {
                stage.producer.send(stage.message("message " + n), queue);
            }
            expected += 10 + 2;
        }
        consumer.start();
        return Facts.of("deliveries", deliveries.await(expected));
    }

    static Map<String, Object> broadcast(Stage stage) throws Exception {
        Deliveries[] deliveries = new Deliveries[2];
        for (int n = 0; n < 2; n++) {
            DefaultMQPushConsumer consumer = stage.pushConsumer("member" + n, "*");
            broadcasting(consumer);
            deliveries[n] = new Deliveries().of(consumer);
            consumer.start();
        }
        for (int n = 0; n < MANY; n++) {
            stage.producer.send(stage.message("message " + n));
        }
        return Facts.of("first", deliveries[0].await(MANY), "second", deliveries[1].await(MANY));
    }

    /** By name: the package of MessageModel is another one since 5.0. */
    static void broadcasting(DefaultMQPushConsumer consumer) throws Exception {
        Class<?> model = consumer.getMessageModel().getClass();
        Object broadcasting = model.getMethod("valueOf", String.class).invoke(null, "BROADCASTING");
        consumer.getClass().getMethod("setMessageModel", model).invoke(consumer, broadcasting);
    }

    /** "Aa" and "BB" have one hash: only the client can tell them apart. */
    static Map<String, Object> tags(Stage stage) throws Exception {
        DefaultMQPushConsumer consumer = stage.pushConsumer("1", "A || Aa");
        Deliveries deliveries = new Deliveries().of(consumer);
        consumer.start();
        for (int n = 0; n < 3; n++) {
            for (String tag : new String[] {"A", "B", "Aa", "BB", null}) {
                stage.producer.send(stage.message(tag + " " + n, tag));
            }
        }
        return Facts.of("deliveries", deliveries.await(6));
    }

    static Map<String, Object> sql(Stage stage) throws Exception {
        DefaultMQPushConsumer consumer = stage.pushConsumer("1", "*");
        consumer.subscribe(stage.topic, MessageSelector.bySql(
            "number BETWEEN 2 AND 7 AND TAGS IN ('even', 'other') AND nothing IS NULL"));
        Deliveries deliveries = new Deliveries().of(consumer);
        consumer.start();
        for (int n = 0; n < 10; n++) {
            Message message = stage.message("message " + n, n % 2 == 0 ? "even" : "odd");
            message.putUserProperty("number", String.valueOf(n));
            stage.producer.send(message);
        }
        return Facts.of("deliveries", deliveries.await(3));
    }
}
