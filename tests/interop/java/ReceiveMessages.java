import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/** Arguments: namesrvAddr topic count [--tls]; gives up after -Ddeadline seconds (60). */
public class ReceiveMessages {
    public static void main(String[] args) {
        int count = Integer.parseInt(args[2]);
        try {
            int received = receive(args[0], args[1], count, Arrays.asList(args).contains("--tls"));
            System.out.println("received " + received);
            System.exit(received == count ? 0 : 1);
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1);
        }
    }

    private static int receive(String namesrv, String topic, int count, boolean tls) throws Exception {
        Set<String> bodies = ConcurrentHashMap.newKeySet();
        CountDownLatch missing = new CountDownLatch(count);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("receive-" + topic);
        consumer.setNamesrvAddr(namesrv);
        consumer.setMqClientApiTimeout(15_000);
        consumer.setHeartbeatBrokerInterval(1_000);
        consumer.setUseTLS(tls);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAwaitTerminationMillisWhenShutdown(1_000);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> {
                if (bodies.add(new String(message.getBody(), StandardCharsets.UTF_8))) {
                    missing.countDown();
                }
            });
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        System.out.println("ready");
        missing.await(Integer.getInteger("deadline", 60), TimeUnit.SECONDS);
        consumer.shutdown();
        return bodies.size();
    }
}
