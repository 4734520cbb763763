import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * Arguments: namesrvAddr topic prefix. Sends one message after the other until it is stopped, each
 * with the prefix and a number as its body, and prints for each the body, when the send began and
 * ended, the status or the error, and the id of the broker.
 *
 * <p>Times are nanoseconds of System.nanoTime, on Linux the monotonic clock of all processes.
 *
 * <p>-DpollMillis=N is the interval of route updates, 30 s by default.
 */
public class TimedSends {
    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("timed-sends");
        producer.setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(1000);
        producer.setPollNameServerInterval(Integer.getInteger("pollMillis", 30_000));
        producer.start();
        for (int n = 0; ; n++) {
            String body = args[2] + n;
            String outcome;
            long began = System.nanoTime();
            try {
                SendResult sent = producer.send(new Message(args[1], body.getBytes(StandardCharsets.UTF_8)));
                outcome = sent.getSendStatus().name() + " " + sent.getOffsetMsgId();
            } catch (Exception failure) {
                outcome = failure.getClass().getSimpleName() + " -";
            }
            System.out.println(body + " " + began + " " + System.nanoTime() + " " + outcome);
            Thread.sleep(20);
        }
    }
}
