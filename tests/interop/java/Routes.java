import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageQueue;

/** Arguments: namesrvAddr topic [--tls]; prints one "broker queueId" line for each writable queue. */
public class Routes {
    public static void main(String[] args) {
        try {
            print(args[0], args[1], Arrays.asList(args).contains("--tls"));
            System.exit(0);
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1);
        }
    }

    private static void print(String namesrv, String topic, boolean tls) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("routes-" + topic);
        producer.setNamesrvAddr(namesrv);
        producer.setMqClientApiTimeout(15_000);
        producer.setUseTLS(tls);
        producer.start();
        List<MessageQueue> queues = producer.fetchPublishMessageQueues(topic);
        for (MessageQueue queue : queues.stream().sorted().collect(Collectors.toList())) {
            System.out.println(queue.getBrokerName() + " " + queue.getQueueId());
        }
        System.out.println("queues " + queues.size());
    }
}
