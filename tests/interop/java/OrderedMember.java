import java.io.FileOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Arguments: namesrvAddr group topic book [--broadcast]. Handles a topic in order until it is stopped,
 * and appends a line for each message to the book: its client id, and topic and body.
 */
public class OrderedMember {
    public static void main(String[] args) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[1]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setMqClientApiTimeout(15_000);
        consumer.setHeartbeatBrokerInterval(1_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setSuspendCurrentQueueTimeMillis(100);
        if (args.length > 4) {
            // By an instance: the package of the enum is another one in 4.9.
            consumer.setMessageModel(consumer.getMessageModel().valueOf("BROADCASTING"));
        }
        FileOutputStream book = new FileOutputStream(args[3], true);
        consumer.subscribe(args[2], "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt message : messages) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                String line = "java " + message.getTopic() + " " + body + "\n";
                try {
                    book.write(line.getBytes(StandardCharsets.UTF_8));
                } catch (java.io.IOException failure) {
                    return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                }
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        CountDownLatch stopped = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.shutdown();
            stopped.countDown();
        }));
        System.out.println("ready " + consumer.buildMQClientId());
        stopped.await();
    }
}
