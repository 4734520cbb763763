import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** Arguments: namesrvAddr topic count. Prints the status of each send. */
public class SendStatuses {
    public static void main(String[] args) {
        try {
            DefaultMQProducer producer = new DefaultMQProducer("send-statuses");
            producer.setNamesrvAddr(args[0]);
            producer.setMqClientApiTimeout(15_000);
            producer.setSendMsgTimeout(10_000);
            producer.start();
            for (int n = 0; n < Integer.parseInt(args[2]); n++) {
                byte[] body = ("message " + n).getBytes(StandardCharsets.UTF_8);
                System.out.println(producer.send(new Message(args[1], body)).getSendStatus());
            }
            System.exit(0);
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1);
        }
    }
}
