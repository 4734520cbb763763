import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The lite pull consumer, which clients have since 4.6: subscribe, poll, seek, commit; assign. */
public class LitePullCell implements Cell {
    private static final int MANY = 12;

    @Override
    public Map<String, Object> play(Stage stage) throws Exception {
        for (int n = 0; n < MANY; n++) {
            stage.producer.send(stage.message("message " + n));
        }
        DefaultLitePullConsumer consumer = consumer(stage, stage.group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(stage.topic, "*");
        consumer.start();
        List<Object> polled = poll(consumer, MANY);
        consumer.commitSync();
        Map<Integer, Long> committed = new TreeMap<>();
        for (MessageQueue queue : stage.queues(stage.topic)) {
            committed.put(queue.getQueueId(), consumer.committed(queue));
        }
        return Facts.of("polled", polled, "committed", committed, "assigned", assigned(stage));
    }

    /** One queue by choice, from its second message on. */
    private static List<Object> assigned(Stage stage) throws Exception {
        DefaultLitePullConsumer consumer = consumer(stage, stage.group + "_assigned");
        consumer.start();
        List<MessageQueue> queues = stage.queues(stage.topic);
        consumer.assign(queues.subList(0, 1));
        consumer.seek(queues.get(0), 1);
        return poll(consumer, MANY / queues.size() - 1);
    }

    private static DefaultLitePullConsumer consumer(Stage stage, String group) {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group);
        stage.clients.set(consumer, group);
        consumer.setAutoCommit(false);
        stage.atEnd(consumer::shutdown);
        return consumer;
    }

    private static List<Object> poll(DefaultLitePullConsumer consumer, int count) throws Exception {
        List<MessageExt> messages = new ArrayList<>();
        Stage.await(() -> {
            messages.addAll(consumer.poll(200));
            return messages.size() >= count;
        });
        messages.addAll(consumer.poll(200));
        return Stage.facts(messages);
    }
}
