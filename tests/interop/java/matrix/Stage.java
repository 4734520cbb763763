import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.function.Predicate;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** What one cell plays on: a topic, a group, and consumers that end with it. */
final class Stage implements AutoCloseable {
    private static final long PATIENCE = 45_000;
    private static final long SETTLING = 300;

    final Clients clients;
    final String topic;
    final String group;
    final DefaultMQProducer producer;
    private final Deque<Runnable> closings = new ArrayDeque<>();

    Stage(Clients clients, String cell) {
        this.clients = clients;
        this.topic = clients.prefix + "_" + cell;
        this.group = topic + "_group";
        this.producer = clients.producer;
    }

    Message message(String body) {
        return new Message(topic, body.getBytes(StandardCharsets.UTF_8));
    }

    Message message(String body, String tags) {
        return new Message(topic, tags, body.getBytes(StandardCharsets.UTF_8));
    }

    /** The queues of the topic by number, once its route is known. */
    List<MessageQueue> queues(String topic) throws Exception {
        List<MessageQueue> queues = new ArrayList<>();
        await(() -> {
            try {
                queues.addAll(clients.reader.fetchSubscribeMessageQueues(topic));
            } catch (MQClientException unknown) {
                return false;
            }
            return !queues.isEmpty();
        });
        Collections.sort(queues);
        return queues;
    }

    /** What the queues of a topic hold, once they hold so many. */
    List<Object> stored(String topic, int count) throws Exception {
        return stored(topic, found -> found.size() >= count);
    }

    /** What the queues of a topic hold, once it is enough. */
    List<Object> stored(String topic, Predicate<List<Object>> isEnough) throws Exception {
        List<Object> found = new ArrayList<>();
        Map<MessageQueue, Long> positions = new HashMap<>();
        List<MessageQueue> queues = queues(topic);
        await(() -> {
            for (MessageQueue queue : queues) {
                PullResult result =
                    clients.reader.pull(queue, "*", positions.getOrDefault(queue, 0L), 32);
                positions.put(queue, result.getNextBeginOffset());
                if (result.getPullStatus() == PullStatus.FOUND) {
                    result.getMsgFoundList().forEach(message -> found.add(Facts.of(message)));
                }
            }
            return isEnough.test(found);
        });
        return found;
    }

    /** A consumer of the topic, from its first message on, that is not started. */
    DefaultMQPushConsumer pushConsumer(String instance, String expression) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        clients.set(consumer, topic + "_" + instance);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, expression);
        atEnd(consumer::shutdown);
        return consumer;
    }

    static int queuesHeld(DefaultMQPushConsumer consumer, String topic) {
        return (int) consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl()
            .getProcessQueueTable().keySet().stream()
            .filter(queue -> queue.getTopic().equals(topic))
            .count();
    }

    void atEnd(Runnable closing) {
        closings.push(closing);
    }

    /** Waits for it, but not for ever: the facts tell whether it came. */
    static void await(Callable<Boolean> condition) throws Exception {
        long deadline = System.currentTimeMillis() + PATIENCE;
        while (!condition.call() && System.currentTimeMillis() < deadline) {
            Thread.sleep(20);
        }
    }

    /** Time for what must not come. */
    static void settle() throws InterruptedException {
        Thread.sleep(SETTLING);
    }

    static List<Object> facts(List<MessageExt> messages) {
        List<Object> facts = new ArrayList<>();
        messages.forEach(message -> facts.add(Facts.of(message)));
        return facts;
    }

    @Override
    public void close() {
        closings.forEach(Runnable::run);
    }
}
