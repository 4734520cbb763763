import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.Predicate;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.message.MessageExt;

/** What a listener was handed, in order; it wants again what `refuse` says. */
final class Deliveries {
    private final List<Map<String, Object>> facts = new ArrayList<>();
    private final Predicate<MessageExt> refuse;

    Deliveries(Predicate<MessageExt> refuse) {
        this.refuse = refuse;
    }

    Deliveries() {
        this(message -> false);
    }

    Deliveries of(DefaultMQPushConsumer consumer) {
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
            taken(messages)
                ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        return this;
    }

    Deliveries inOrderOf(DefaultMQPushConsumer consumer) {
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
            taken(messages)
                ? ConsumeOrderlyStatus.SUCCESS
                : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        return this;
    }

    private boolean taken(List<MessageExt> messages) {
        boolean taken = true;
        for (MessageExt message : messages) {
            synchronized (facts) {
                facts.add(Facts.of(message));
            }
            taken &= !refuse.test(message);
        }
        return taken;
    }

    int count() {
        synchronized (facts) {
            return facts.size();
        }
    }

    long count(String bodyStart) {
        return facts().stream()
            .filter(message -> message.get("body").toString().startsWith(bodyStart))
            .count();
    }

    List<Map<String, Object>> facts() {
        synchronized (facts) {
            return new ArrayList<>(facts);
        }
    }

    List<Map<String, Object>> await(int count) throws Exception {
        Stage.await(() -> count() >= count);
        Stage.settle();
        return facts();
    }
}
