import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * Sends and receives as several users, in order. Arguments: namesrvAddr, then words such as
 * send:user:secret:topic and receive:user:secret:topic:group. Prints a line for each of them.
 */
public class SignedTraffic {
    public static void main(String[] args) throws Exception {
        for (int n = 1; n < args.length; n++) {
            String[] step = args[n].split(":");
            RPCHook hook = step[1].isEmpty() ? null
                : new AclClientRPCHook(new SessionCredentials(step[1], step[2]));
            String outcome;
            try {
                outcome = step[0].equals("send")
                    ? send(args[0], hook, step[3], n) : receive(args[0], hook, step[3], step[4]);
            } catch (MQBrokerException refused) {
                outcome = refused.getResponseCode() + " " + refused.getErrorMessage();
            } catch (MQClientException failed) {
                outcome = failed.getResponseCode() + " " + failed.getMessage() + " " + failed.getCause();
            }
            System.out.println(n + " " + outcome.replace('\n', ' '));
        }
        System.exit(0);
    }

    private static String send(String namesrv, RPCHook hook, String topic, int n) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("signed-" + n, hook);
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName("signed-" + n);
        producer.setSendMsgTimeout(10_000);
        producer.setMqClientApiTimeout(15_000);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        try {
            byte[] body = "one".getBytes(StandardCharsets.UTF_8);
            return producer.send(new Message(topic, body)).getSendStatus().name();
        } finally {
            producer.shutdown();
        }
    }

    private static String receive(String namesrv, RPCHook hook, String topic, String group)
        throws Exception {
        CountDownLatch received = new CountDownLatch(1);
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer(group, hook, new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(group);
        consumer.setMqClientApiTimeout(15_000);
        consumer.setHeartbeatBrokerInterval(1_000);  // a lost first one would cost 30 s
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            received.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            boolean found = received.await(Integer.getInteger("deadline", 60), TimeUnit.SECONDS);
            return found ? "RECEIVED" : "NOTHING";
        } finally {
            consumer.shutdown();
        }
    }
}
