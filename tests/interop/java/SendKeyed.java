import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Arguments: namesrvAddr topic brokerName key... Sends each key alone, then all as a batch. */
public class SendKeyed {
    public static void main(String[] args) {
        try {
            send(args);
            System.exit(0);
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1);
        }
    }

    private static void send(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("send-keyed");
        producer.setNamesrvAddr(args[0]);
        producer.setMqClientApiTimeout(15_000);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        MessageQueue queue = new MessageQueue(args[1], args[2], 0);
        List<Message> messages = new ArrayList<>();
        for (int n = 3; n < args.length; n++) {
            Message message = new Message(args[1], args[n].getBytes(StandardCharsets.UTF_8));
            message.putUserProperty("DEDUP_KEY", args[n]);
            messages.add(message);
            print(producer.send(message, queue));
        }
        print(producer.send(messages, queue));
        producer.shutdown();
    }

    private static void print(SendResult result) {
        System.out.println(result.getSendStatus() + " " + result.getOffsetMsgId() + " " + result.getQueueOffset());
    }
}
