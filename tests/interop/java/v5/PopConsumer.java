import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A push consumer whose queues the broker gives out, so that it pops where the broker says so.
 *
 * <p>Arguments: namesrvAddr topic group count [--fail-once] [--hang] [--tags=A||B]. Prints
 * "got body times" for each delivery; ends when it has consumed `count` different bodies, or after
 * -Ddeadline seconds (60). With --fail-once each body fails at first, with --hang none is ever done.
 * -DinvisibleMillis says how long a message stays with it (5000).
 */
public class PopConsumer {
    public static void main(String[] args) {
        try {
            int count = Integer.parseInt(args[3]);
            int done = consume(args[0], args[1], args[2], count, Arrays.asList(args));
            System.out.println("consumed " + done);
            System.exit(done == count ? 0 : 1);
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1);
        }
    }

    private static int consume(String namesrv, String topic, String group, int count, List<String> options)
        throws Exception {
        Set<String> failed = ConcurrentHashMap.newKeySet();
        Set<String> done = ConcurrentHashMap.newKeySet();
        CountDownLatch missing = new CountDownLatch(count);
        String tags = options.stream().filter(each -> each.startsWith("--tags=")).findFirst()
            .map(each -> each.substring("--tags=".length())).orElse("*");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setMqClientApiTimeout(15_000);
        consumer.setHeartbeatBrokerInterval(1_000);
        consumer.setClientRebalance(false);
        consumer.setPopInvisibleTime(Integer.getInteger("invisibleMillis", 5_000));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAwaitTerminationMillisWhenShutdown(1_000);
        consumer.subscribe(topic, tags);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                System.out.println("got " + body + " " + message.getReconsumeTimes());
                if (options.contains("--hang")) {
                    sleepForever();
                }
                if (options.contains("--fail-once") && failed.add(body)) {
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
                if (done.add(body)) {
                    missing.countDown();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        System.out.println("ready");
        missing.await(Integer.getInteger("deadline", 60), TimeUnit.SECONDS);
        Thread.sleep(Integer.getInteger("lingerMillis", 300)); // acknowledgements are on their way
        consumer.shutdown();
        return done.size();
    }

    private static void sleepForever() {
        try {
            Thread.sleep(Long.MAX_VALUE);
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }
}
