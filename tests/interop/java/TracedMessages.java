import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * Arguments: namesrvAddr topic traceTopic count. Sends and consumes messages with trace on; the
 * first one fails once: its listener throws.
 */
public class TracedMessages {
    public static void main(String[] args) {
        try {
            int count = Integer.parseInt(args[3]);
            Set<String> ids = ConcurrentHashMap.newKeySet();
            CountDownLatch missing = new CountDownLatch(count);
            DefaultMQPushConsumer consumer = consume(args[0], args[1], args[2], ids, missing);
            DefaultMQProducer producer = new DefaultMQProducer("PG-" + args[1], true, args[2]);
            producer.setNamesrvAddr(args[0]);
            producer.setMqClientApiTimeout(15_000);
            producer.setSendMsgTimeout(10_000);
            producer.start();
            for (int n = 0; n < count; n++) {
                byte[] body = ("message " + n).getBytes(StandardCharsets.UTF_8);
                producer.send(new Message(args[1], "paid", "key-" + n, body));
            }
            boolean done = missing.await(60, TimeUnit.SECONDS);
            producer.shutdown();
            consumer.shutdown();
            System.out.println("consumed " + ids.size());
            System.exit(done ? 0 : 1);
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1);
        }
    }

    private static DefaultMQPushConsumer consume(
            String namesrv, String topic, String traceTopic, Set<String> ids, CountDownLatch missing)
            throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
                "CG-" + topic, null, new AllocateMessageQueueAveragely(), true, traceTopic);
        consumer.setNamesrvAddr(namesrv);
        consumer.setMqClientApiTimeout(15_000);
        consumer.setHeartbeatBrokerInterval(1_000);
        consumer.setPollNameServerInterval(500); // the retry topic is made while it runs
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAwaitTerminationMillisWhenShutdown(1_000);
        consumer.subscribe(topic, "*");
        Set<String> failed = Collections.newSetFromMap(new ConcurrentHashMap<>());
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> {
                if (message.getKeys().equals("key-0") && failed.add(message.getKeys())) {
                    throw new IllegalStateException("once");
                }
                if (ids.add(message.getMsgId())) {
                    missing.countDown();
                }
            });
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }
}
