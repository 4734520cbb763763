import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Reading by position, by id and by key. */
final class PullCells {
    private static final int MANY = 10;

    private PullCells() {
    }

    static Map<String, Object> pull(Stage stage) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(stage.group);
        stage.clients.set(consumer, stage.topic);
        stage.atEnd(consumer::shutdown);
        consumer.start();
        MessageQueue queue = stage.queues(stage.topic).get(0);
        for (int n = 0; n < MANY; n++) {
            stage.producer.send(stage.message("message " + n, "tag" + n % 2), queue);
        }
        Stage.await(() -> consumer.maxOffset(queue) == MANY);
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("all", fact(consumer.pull(queue, "*", 0, 32)));
        facts.put("some", fact(consumer.pull(queue, "*", 2, 3)));
        facts.put("tagged", fact(consumer.pull(queue, "tag1", 0, 32)));
        facts.put("unmatched", fact(consumer.pull(queue, "other", 0, 32)));
        facts.put("at_end", fact(consumer.pull(queue, "*", MANY, 32)));
        facts.put("beyond", fact(consumer.pull(queue, "*", MANY + 5, 32)));
        facts.put("bounds", Facts.of("min", consumer.minOffset(queue), "max", consumer.maxOffset(queue)));
        facts.put("committed", committed(consumer, queue));
        facts.put("since", since(stage, consumer, queue));
        facts.put("awaited", awaited(stage, consumer, queue));
        return facts;
    }

    private static long committed(DefaultMQPullConsumer consumer, MessageQueue queue) throws Exception {
        consumer.getDefaultMQPullConsumerImpl().getOffsetStore()
            .updateConsumeOffsetToBroker(queue, 7, false);
        return consumer.fetchConsumeOffset(queue, true);
    }

    private static List<Object> since(Stage stage, DefaultMQPullConsumer consumer, MessageQueue queue)
        throws Exception {
        List<Object> found = new ArrayList<>();
        long born = consumer.pull(queue, "*", MANY - 1, 1).getMsgFoundList().get(0).getStoreTimestamp();
        found.add(consumer.searchOffset(queue, 1));
        found.add(consumer.searchOffset(queue, born + 60_000));
        return found;
    }

    /** A pull that waits for its message. */
    private static Map<String, Object> awaited(
        Stage stage, DefaultMQPullConsumer consumer, MessageQueue queue) throws Exception {
        CompletableFuture<Map<String, Object>> pulled = new CompletableFuture<>();
        new Thread(() -> {
            try {
                PullResult result = consumer.pullBlockIfNotFound(queue, "*", MANY, 32);
                long now = System.currentTimeMillis();
                Map<String, Object> fact = fact(result);
                fact.put("came", now);
                pulled.complete(fact);
            } catch (Exception failure) {
                pulled.completeExceptionally(failure);
            }
        }).start();
        Thread.sleep(500);
        long sent = System.currentTimeMillis();
        stage.producer.send(stage.message("awaited"), queue);
        Map<String, Object> fact = pulled.get();
        fact.put("took", (Long) fact.get("came") - sent);
        return fact;
    }

    private static Map<String, Object> fact(PullResult result) {
        List<Object> bodies = new ArrayList<>();
        if (result.getMsgFoundList() != null) {
            result.getMsgFoundList().forEach(message -> bodies.add(Facts.body(message)));
        }
        return Facts.of(
            "status", result.getPullStatus(),
            "next", result.getNextBeginOffset(),
            "min", result.getMinOffset(),
            "max", result.getMaxOffset(),
            "bodies", bodies);
    }

    static Map<String, Object> query(Stage stage) throws Exception {
        List<SendResult> sent = new ArrayList<>();
        for (int n = 0; n < 4; n++) {
            Message message = stage.message("message " + n, "tag");
            message.setKeys(n < 3 ? "popular number" + n : "lonely");
            sent.add(stage.producer.send(message));
        }
        List<Object> byId = new ArrayList<>();
        List<Object> byUniqueId = new ArrayList<>();
        for (SendResult result : sent) {
            byId.add(Facts.of(stage.producer.viewMessage(stage.topic, result.getOffsetMsgId())));
            byUniqueId.add(Facts.body(byUniqueId(stage, result.getMsgId())));
        }
        return Facts.of(
            "sent", sentFacts(sent),
            "by_id", byId,
            "by_unique_id", byUniqueId,
            "popular", byKey(stage, "popular", 3),
            "number2", byKey(stage, "number2", 1),
            "lonely", byKey(stage, "lonely", 1));
    }

    private static List<Object> sentFacts(List<SendResult> sent) {
        List<Object> facts = new ArrayList<>();
        sent.forEach(result -> facts.add(Facts.of(result)));
        return facts;
    }

    /** The index is written a moment after the message. */
    private static MessageExt byUniqueId(Stage stage, String id) throws Exception {
        MessageExt[] found = new MessageExt[1];
        Stage.await(() -> {
            try {
                found[0] = stage.producer.viewMessage(stage.topic, id);
            } catch (Exception notYet) {
                return false;
            }
            return found[0] != null;
        });
        return found[0];
    }

    private static List<Object> byKey(Stage stage, String key, int count) throws Exception {
        List<Object> found = new ArrayList<>();
        Stage.await(() -> {
            found.clear();
            try {
                stage.producer.queryMessage(stage.topic, key, 32, 0, System.currentTimeMillis() + 60_000)
                    .getMessageList().forEach(message -> found.add(Facts.body(message)));
            } catch (Exception notYet) {
                return false;
            }
            return found.size() >= count;
        });
        return found;
    }
}
