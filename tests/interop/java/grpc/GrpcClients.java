import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * Sends and consumes messages of every kind with the gRPC client, through a proxy whose address is
 * the argument. Prints a line for each delivery: consumer, body and delivery attempt.
 */
public class GrpcClients {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    private static final int SENT = 4;
    private static final List<String> DELIVERED = new CopyOnWriteArrayList<>();

    private final ClientConfiguration configuration;

    private GrpcClients(String endpoints) {
        configuration = ClientConfiguration.newBuilder()
            .setEndpoints(endpoints)
            .enableSsl(false)
            .setRequestTimeout(Duration.ofSeconds(20))
            .build();
    }

    public static void main(String[] args) throws Exception {
        GrpcClients clients = new GrpcClients(args[0]);
        Producer producer = clients.producer();
        SimpleConsumer simple = clients.simpleConsumer();
        for (String topic : List.of("Fifo", "Delay", "Transaction")) {
            clients.pushConsumer(topic);
        }
        clients.send(producer);
        clients.receive(simple);
        clients.await(SENT + 1 + SENT + 1 + 2);
        System.out.println("done");
        System.exit(0); // closing the consumers would wait for their long polls
    }

    private void send(Producer producer) throws Exception {
        for (int number = 0; number < SENT; number++) {
            producer.send(message("Normal", "normal " + number).setTag("A").setKeys("k").build());
            producer.send(message("Normal", "other " + number).setTag("B").build());
            producer.send(message("Fifo", "fifo " + number).setMessageGroup("group").build());
        }
        long due = System.currentTimeMillis() + 2_000;
        producer.send(message("Delay", "delayed").setDeliveryTimestamp(due).build());
        end(producer, "committed").commit();
        end(producer, "rolled back").rollback();
        end(producer, "checked");
    }

    private Transaction end(Producer producer, String body) throws Exception {
        Transaction transaction = producer.beginTransaction();
        producer.send(message("Transaction", body).build(), transaction);
        return transaction;
    }

    /** Receives all messages with tag A, the first of them once more after its lease was changed. */
    private void receive(SimpleConsumer consumer) throws Exception {
        boolean changed = false;
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        for (int done = 0; done < SENT && System.nanoTime() < deadline; ) {
            for (MessageView message : consumer.receive(8, Duration.ofSeconds(30))) {
                tell("simple", message);
                if (!changed) {
                    changed = true;
                    consumer.changeInvisibleDuration(message, Duration.ofSeconds(10));
                } else {
                    consumer.ack(message);
                    done++;
                }
            }
        }
    }

    private void await(int deliveries) throws InterruptedException {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (DELIVERED.size() < deliveries && System.nanoTime() < deadline) {
            Thread.sleep(50);
        }
    }

    private Producer producer() throws Exception {
        return PROVIDER.newProducerBuilder()
            .setClientConfiguration(configuration)
            .setTopics("Normal", "Fifo", "Delay", "Transaction")
            .setTransactionChecker(message -> TransactionResolution.COMMIT)
            .build();
    }

    private SimpleConsumer simpleConsumer() throws Exception {
        return PROVIDER.newSimpleConsumerBuilder()
            .setClientConfiguration(configuration)
            .setConsumerGroup("simple")
            .setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(
                Map.of("Normal", new FilterExpression("A", FilterExpressionType.TAG)))
            .build();
    }

    private void pushConsumer(String topic) throws Exception {
        PROVIDER.newPushConsumerBuilder()
            .setClientConfiguration(configuration)
            .setConsumerGroup("push" + topic)
            .setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL))
            .setMessageListener(message -> {
                tell("push" + topic, message);
                return ConsumeResult.SUCCESS;
            })
            .build();
    }

    private static void tell(String consumer, MessageView message) {
        String body = StandardCharsets.UTF_8.decode(message.getBody()).toString();
        System.out.println(consumer + "\t" + body + "\t" + message.getDeliveryAttempt());
        DELIVERED.add(body);
    }

    private static MessageBuilder message(String topic, String body) {
        return PROVIDER.newMessageBuilder()
            .setTopic(topic)
            .setBody(body.getBytes(StandardCharsets.UTF_8));
    }
}
