import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/** Arguments: namesrvAddr topic count [--tls]. */
public class SendMessages {
    public static void main(String[] args) {
        try {
            send(args[0], args[1], Integer.parseInt(args[2]), Arrays.asList(args).contains("--tls"));
            System.exit(0);
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1);
        }
    }

    private static void send(String namesrv, String topic, int count, boolean tls) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("send-" + topic);
        producer.setNamesrvAddr(namesrv);
        producer.setMqClientApiTimeout(15_000);
        producer.setUseTLS(tls);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        for (int n = 0; n < count; n++) {
            byte[] body = ("message " + n).getBytes(StandardCharsets.UTF_8);
            SendResult result = producer.send(new Message(topic, body));
            if (result.getSendStatus() != SendStatus.SEND_OK) {
                throw new IllegalStateException("message " + n + ": " + result);
            }
        }
        System.out.println("sent " + count);
        producer.shutdown();
    }
}
