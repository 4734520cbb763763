import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.spring.core.RocketMQLocalRequestCallback;
import org.apache.rocketmq.spring.core.RocketMQTemplate;
import org.apache.rocketmq.spring.support.RocketMQHeaders;
import org.springframework.beans.factory.annotation.Autowired;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.messaging.Message;
import org.springframework.messaging.support.MessageBuilder;

/** What the program does, job by job; the sends come first, so that their deliveries have time. */
class SpringJobs {
    private static final int MANY = 6;
    private static final long TIMEOUT = 10_000;

    interface Job {
        Map<String, Object> run() throws Exception;
    }

    @Value("${program.prefix}")
    String prefix;

    @Autowired
    RocketMQTemplate template;

    @Autowired
    SpringTransactions transactions;

    @Autowired
    SpringListeners.Plain plain;

    @Autowired
    SpringListeners.Tagged tagged;

    @Autowired
    SpringListeners.Sql sql;

    @Autowired
    SpringListeners.Broadcast broadcast;

    @Autowired
    SpringListeners.Orders orders;

    @Autowired
    SpringListeners.Orderly orderly;

    @Autowired
    SpringListeners.Failing failing;

    @Autowired
    SpringListeners.Dead dead;

    @Autowired
    SpringListeners.Committed committed;

    Map<String, Job> all() {
        Map<String, Job> jobs = new LinkedHashMap<>();
        jobs.put("dead-letter-sent", this::sendBad);
        jobs.put("transaction-sent", this::sendTransactions);
        jobs.put("sync", this::sync);
        jobs.put("async", this::async);
        jobs.put("batch", this::batch);
        jobs.put("one-way", this::oneWay);
        jobs.put("delayed", this::delayed);
        jobs.put("orders", this::orders);
        jobs.put("orderly", this::orderly);
        jobs.put("request", this::request);
        jobs.put("plain", () -> facts("plain", plain.await(4 * MANY + 2), "broadcast",
            broadcast.await(4 * MANY + 2), "tagged", tagged.await(4), "sql", sql.await(3)));
        jobs.put("transaction", () -> facts("deliveries", committed.await(3),
            "checked", transactions.await("unknown 0", "unknown 1")));
        jobs.put("dead-letter", () -> facts("dead", dead.await(1), "deliveries", failing.await(4)));
        return jobs;
    }

    private static Map<String, Object> facts(Object... namesAndValues) {
        Map<String, Object> facts = new LinkedHashMap<>();
        for (int n = 0; n < namesAndValues.length; n += 2) {
            facts.put((String) namesAndValues[n], namesAndValues[n + 1]);
        }
        return facts;
    }

    private static Map<String, Object> fact(SendResult result) {
        return facts(
            "status", result.getSendStatus().toString(),
            "id", result.getMsgId(),
            "offset_id", result.getOffsetMsgId(),
            "queue", result.getMessageQueue().getQueueId(),
            "offset", result.getQueueOffset());
    }

    private Message<String> message(String body) {
        return MessageBuilder.withPayload(body).build();
    }

    private Map<String, Object> sync() {
        String[] tags = {"red", "green", "blue"};
        List<Object> sent = new ArrayList<>();
        for (int n = 0; n < MANY; n++) {
            Message<String> message = MessageBuilder.withPayload("sync " + n + " Grüße")
                .setHeader(RocketMQHeaders.KEYS, "key" + n)
                .setHeader("size", n)
                .build();
            sent.add(fact(template.syncSend(prefix + "_plain:" + tags[n % tags.length], message)));
        }
        return facts("sent", sent);
    }

    private Map<String, Object> async() throws Exception {
        List<CompletableFuture<SendResult>> results = new ArrayList<>();
        for (int n = 0; n < MANY; n++) {
            CompletableFuture<SendResult> result = new CompletableFuture<>();
            results.add(result);
            template.asyncSend(prefix + "_plain", "async " + n, new SendCallback() {
                @Override
                public void onSuccess(SendResult sent) {
                    result.complete(sent);
                }

                @Override
                public void onException(Throwable failure) {
                    result.completeExceptionally(failure);
                }
            });
        }
        List<Object> sent = new ArrayList<>();
        for (CompletableFuture<SendResult> result : results) {
            sent.add(fact(result.get(30, TimeUnit.SECONDS)));
        }
        return facts("sent", sent);
    }

    private Map<String, Object> batch() {
        List<Message<String>> messages = new ArrayList<>();
        for (int n = 0; n < MANY; n++) {
            messages.add(message("batch " + n));
        }
        return facts("sent", fact(template.syncSend(prefix + "_plain", messages)));
    }

    private Map<String, Object> oneWay() {
        for (int n = 0; n < MANY; n++) {
            template.sendOneWay(prefix + "_plain", "one-way " + n);
        }
        return facts();
    }

    private Map<String, Object> delayed() {
        return facts(
            "level", fact(template.syncSend(prefix + "_plain", message("level"), TIMEOUT, 2)),
            "timer", fact(template.syncSendDelayTimeMills(prefix + "_plain", "timer", 1_500)));
    }

    private Map<String, Object> orders() throws Exception {
        SpringListeners.Order order = new SpringListeners.Order();
        order.name = "Äpfel";
        order.amount = 7;
        SendResult sent = template.syncSend(prefix + "_orders", order);
        return facts("sent", fact(sent), "orders", orders.await(1));
    }

    private Map<String, Object> orderly() throws Exception {
        List<Object> sent = new ArrayList<>();
        Set<Integer> queues = new HashSet<>();
        for (int n = 0; n < MANY; n++) {
            for (String key : new String[] {"first", "second"}) {
                SendResult result =
                    template.syncSendOrderly(prefix + "_orderly", key + " " + n, key);
                queues.add(result.getMessageQueue().getQueueId());
                sent.add(fact(result));
            }
        }
        // One message of each queue comes twice.
        return facts("sent", sent, "deliveries", orderly.await(2 * MANY + queues.size()));
    }

    /**
     * By callback: the client of this starter takes the answer to the send of a request for its reply
     * if it waits, and gives up at once, with Apache's broker, too.
     */
    private Map<String, Object> request() throws Exception {
        List<Object> replies = new ArrayList<>();
        for (String body : new String[] {"first", "second"}) {
            CompletableFuture<String> reply = new CompletableFuture<>();
            template.sendAndReceive(prefix + "_requests", body,
                new RocketMQLocalRequestCallback<String>() {
                    @Override
                    public void onSuccess(String message) {
                        reply.complete(message);
                    }

                    @Override
                    public void onException(Throwable failure) {
                        reply.completeExceptionally(failure);
                    }
                }, TIMEOUT);
            replies.add(reply.get(30, TimeUnit.SECONDS));
        }
        return facts("replies", replies);
    }

    private Map<String, Object> sendBad() {
        Message<String> bad = MessageBuilder.withPayload("bad").setHeader("colour", "red").build();
        return facts(
            "bad", fact(template.syncSend(prefix + "_failing:tag", bad)),
            "good", fact(template.syncSend(prefix + "_failing", "good")));
    }

    private Map<String, Object> sendTransactions() {
        List<Object> sent = new ArrayList<>();
        String[] bodies = {"unknown 0", "unknown 1", "commit 0", "rollback 0", "commit 1"};
        for (String body : bodies) {
            String verdict = body.split(" ")[0].toUpperCase();
            SendResult result = template.sendMessageInTransaction(
                prefix + "_transactions:tag", message(body), verdict);
            sent.add(facts("status", result.getSendStatus().toString(), "id", result.getMsgId()));
        }
        return facts("sent", sent);
    }
}
