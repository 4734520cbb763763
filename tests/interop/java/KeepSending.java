import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/**
 * Arguments: namesrvAddr topic... Sends numbers to the topics in turn until it is stopped, and prints
 * for each the milliseconds since the epoch, the topic, the number and the status or the error.
 *
 * <p>-DpollMillis=N is the interval of route updates, 30 s by default; -DpauseMillis=N (10) the pause
 * after each message.
 */
public class KeepSending {
    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("keep-sending");
        producer.setNamesrvAddr(args[0]);
        producer.setMqClientApiTimeout(15_000);
        producer.setPollNameServerInterval(Integer.getInteger("pollMillis", 30_000));
        producer.start();
        for (int n = 0; ; n++) {
            String topic = args[1 + n % (args.length - 1)];
            String outcome;
            try {
                byte[] body = Integer.toString(n).getBytes(StandardCharsets.UTF_8);
                outcome = producer.send(new Message(topic, body)).getSendStatus().name();
            } catch (Exception failure) {
                outcome = failure.getClass().getSimpleName();
            }
            System.out.println(System.currentTimeMillis() + " " + topic + " " + n + " " + outcome);
            Thread.sleep(Integer.getInteger("pauseMillis", 10));
        }
    }
}
