import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends messages in transactions. A body such as "unknown-commit-7" says what the local transaction
 * tells, and then what the check does. Ends after so many checks, or when nothing is to be checked.
 *
 * <p>Arguments: name server, group, topic, checks to wait for, then bodies. Prints a line for each
 * message sent and for each check.
 */
public class Transactions {
    public static void main(String[] args) throws Exception {
        CountDownLatch checks = new CountDownLatch(Integer.parseInt(args[3]));
        TransactionMQProducer producer = new TransactionMQProducer(args[1]);
        producer.setNamesrvAddr(args[0]);
        producer.setMqClientApiTimeout(15_000);
        producer.setSendMsgTimeout(10_000);
        producer.setTransactionListener(new Listener(checks));
        producer.start();
        // A producer that has sent nothing is known to no broker.
        producer.getDefaultMQProducerImpl().getmQClientFactory()
            .updateTopicRouteInfoFromNameServer(args[2]);
        producer.getDefaultMQProducerImpl().getmQClientFactory()
            .sendHeartbeatToAllBrokerWithLock();
        for (int at = 4; at < args.length; at++) {
            Message message =
                new Message(args[2], "A", args[at], args[at].getBytes(StandardCharsets.UTF_8));
            TransactionSendResult sent = producer.sendMessageInTransaction(message, null);
            print("sent " + args[at] + " " + sent.getLocalTransactionState());
        }
        print("ready");
        boolean all = checks.await(60, TimeUnit.SECONDS);
        Thread.sleep(300); // the last answer is on its way
        producer.shutdown();
        System.exit(all ? 0 : 1);
    }

    private static synchronized void print(String line) {
        System.out.println(line);
    }

    private record Listener(CountDownLatch checks) implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object arg) {
            return state(message, 0);
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            String body = new String(message.getBody(), StandardCharsets.UTF_8);
            print("checked " + body + " " + message.getTopic() + " " + message.getKeys() + " "
                + message.getTransactionId().equals(message.getProperty("UNIQ_KEY")));
            LocalTransactionState state = state(message, 1);
            if (state != LocalTransactionState.UNKNOW) {
                checks.countDown();
            }
            return state;
        }

        private static LocalTransactionState state(Message message, int word) {
            String body = new String(message.getBody(), StandardCharsets.UTF_8);
            switch (body.split("-")[word]) {
                case "commit":
                    return LocalTransactionState.COMMIT_MESSAGE;
                case "rollback":
                    return LocalTransactionState.ROLLBACK_MESSAGE;
                default:
                    return LocalTransactionState.UNKNOW;
            }
        }
    }
}
