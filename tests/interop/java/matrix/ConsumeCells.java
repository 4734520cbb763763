import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.producer.SendResult;

/** Several messages at a time, and one by order of an administrator. */
final class ConsumeCells {
    private static final int MANY = 24;
    private static final int AT_ONCE = 4;

    private ConsumeCells() {
    }

    /** All are there when the consumer starts. Of the batch with message 0 only the first is taken. */
    static Map<String, Object> batchConsume(Stage stage) throws Exception {
        for (int n = 0; n < MANY; n++) {
            stage.producer.send(stage.message("message " + n));
        }
        DefaultMQPushConsumer consumer = stage.pushConsumer("1", "*");
        consumer.setConsumeMessageBatchMaxSize(AT_ONCE);
        List<List<String>> batches = Collections.synchronizedList(new ArrayList<>());
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            batches.add(messages.stream().map(Facts::body).collect(Collectors.toList()));
            if (messages.get(0).getReconsumeTimes() == 0
                && Facts.body(messages.get(0)).equals("message 0")) {
                context.setAckIndex(0);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Stage.await(() -> count(batches) >= MANY + AT_ONCE - 1);
        Stage.settle();
        return Facts.of("batches", batches);
    }

    private static int count(List<List<String>> batches) {
        synchronized (batches) {
            return batches.stream().mapToInt(List::size).sum();
        }
    }

    static Map<String, Object> consumeDirectly(Stage stage) throws Exception {
        DefaultMQPushConsumer consumer = stage.pushConsumer("1", "*");
        Deliveries deliveries = new Deliveries().of(consumer);
        consumer.start();
        SendResult sent = stage.producer.send(stage.message("message", "tag"));
        deliveries.await(1);
        Object result = ask(stage, consumer, sent.getOffsetMsgId());
        Object verdict = result.getClass().getMethod("getConsumeResult").invoke(result);
        return Facts.of(
            "result", verdict, "id", sent.getMsgId(), "deliveries", deliveries.await(2));
    }

    /** By name: since 5.0 the request names the topic too. */
    private static Object ask(Stage stage, DefaultMQPushConsumer consumer, String id)
        throws Exception {
        MQClientAPIImpl api = consumer.getDefaultMQPushConsumerImpl().getmQClientFactory()
            .getMQClientAPIImpl();
        String client = consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId();
        for (Method method : MQClientAPIImpl.class.getMethods()) {
            if (!method.getName().equals("consumeMessageDirectly")) {
                continue;
            }
            if (method.getParameterCount() == 5) {
                return method.invoke(api, stage.clients.broker, stage.group, client, id, 10_000L);
            }
            return method.invoke(
                api, stage.clients.broker, stage.group, client, stage.topic, id, 10_000L);
        }
        throw new NoSuchMethodException("consumeMessageDirectly");
    }
}
