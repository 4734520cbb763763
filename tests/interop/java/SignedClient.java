import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.Set;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * Arguments: namesrvAddr job…
 *
 * A job is as:KEY:SECRET, which the next jobs sign with (as:-:- with nothing), send:TOPIC or
 * pull:TOPIC:GROUP. After "until:" one is repeated until it is allowed, after "while:" until it is
 * denied. Each prints a line: "ok" or code and text.
 */
public class SignedClient {
    private static final long PATIENCE_MS = 30_000;

    public static void main(String[] args) {
        try {
            RPCHook hook = null;
            DefaultMQProducer producer = null;
            for (int n = 1; n < args.length; n++) {
                String[] words = args[n].split(":");
                if (words[0].equals("as")) {
                    hook = words[1].equals("-")
                        ? null : new AclClientRPCHook(new SessionCredentials(words[1], words[2]));
                    producer = producer(args[0], hook, n);
                } else {
                    System.out.println(args[n] + " " + repeat(args[n], args[0], hook, producer));
                }
            }
            System.exit(0);
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1);
        }
    }

    private static DefaultMQProducer producer(String namesrv, RPCHook hook, int number)
        throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("signed-producer-" + number, hook);
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName("instance-" + number);
        producer.setMqClientApiTimeout(15_000);
        producer.setSendMsgTimeout(10_000);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        return producer;
    }

    private static String repeat(String job, String namesrv, RPCHook hook, DefaultMQProducer producer)
        throws Exception {
        String wanted = job.substring(0, job.indexOf(':'));
        if (!wanted.equals("until") && !wanted.equals("while")) {
            return run(job, namesrv, hook, producer);
        }
        String repeated = job.substring(job.indexOf(':') + 1);
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        String outcome = run(repeated, namesrv, hook, producer);
        while (outcome.equals("ok") != wanted.equals("until")
            && System.currentTimeMillis() < deadline) {
            Thread.sleep(200);
            outcome = run(repeated, namesrv, hook, producer);
        }
        return outcome;
    }

    private static String run(String job, String namesrv, RPCHook hook, DefaultMQProducer producer)
        throws Exception {
        String[] words = job.split(":");
        try {
            if (words[0].equals("send")) {
                producer.send(new Message(words[1], "1".getBytes(StandardCharsets.UTF_8)));
            } else {
                pull(namesrv, hook, words[1], words[2]);
            }
            return "ok";
        } catch (MQClientException | MQBrokerException failure) {
            return outcome(failure);
        }
    }

    private static void pull(String namesrv, RPCHook hook, String topic, String group)
        throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group, hook);
        consumer.setNamesrvAddr(namesrv);
        consumer.setMqClientApiTimeout(15_000);
        consumer.start();
        try {
            Set<MessageQueue> queues = new HashSet<>(consumer.fetchSubscribeMessageQueues(topic));
            consumer.pull(queues.iterator().next(), "*", 0, 1);
        } finally {
            consumer.shutdown();
        }
    }

    private static String outcome(Throwable failure) {
        for (Throwable each = failure; each != null; each = each.getCause()) {
            if (each instanceof MQBrokerException) {
                MQBrokerException refused = (MQBrokerException) each;
                return refused.getResponseCode() + " " + refused.getErrorMessage();
            }
        }
        return "? " + failure.getMessage();
    }
}
