import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.PopCallback;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;

/**
 * Sends messages with priorities and pops them.
 *
 * <p>Arguments: namesrvAddr brokerAddr topic then words. "send" prints the queue of each message, "pop" the
 * bodies of one pop with their priorities, in order; "retry" pops the first message, lets its time run out,
 * and returns when the broker has it in the retry topic.
 */
public class Priorities {
    private static final String GROUP = "readers";
    private final DefaultMQProducer producer = new DefaultMQProducer("writers");
    private final String broker;
    private final String topic;

    private Priorities(String namesrv, String broker, String topic) throws Exception {
        this.broker = broker;
        this.topic = topic;
        producer.setNamesrvAddr(namesrv);
        producer.setMqClientApiTimeout(15_000);
        producer.start();
    }

    public static void main(String[] args) {
        try {
            Priorities program = new Priorities(args[0], args[1], args[2]);
            for (int n = 3; n < args.length; n++) {
                program.run(args[n]);
            }
            System.exit(0);
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1);
        }
    }

    private void run(String word) throws Exception {
        if (word.equals("send")) {
            for (int priority : new int[] {1, 3, 0, 2, 9}) {
                send("p" + priority, priority, null);
            }
            send("none", -1, null);
            send("delayed", 2, "DELAY");
            send("sharded", 2, "__SHARDINGKEY");
        } else if (word.equals("low")) {
            send("low", 0, null);
        } else if (word.equals("pop")) {
            for (MessageExt message : pop(32, 60_000)) {
                System.out.println("popped " + new String(message.getBody(), StandardCharsets.UTF_8)
                    + " " + message.getPriority() + " " + message.getReconsumeTimes());
            }
        } else if (word.equals("retry")) {
            pop(1, 1_000);
            awaitRetry();
        }
    }

    private void send(String body, int priority, String property) throws Exception {
        Message message = new Message(topic, body.getBytes(StandardCharsets.UTF_8));
        if (priority >= 0) {
            message.setPriority(priority);
        }
        if (property != null) {
            message.getProperties().put(property, "1");
        }
        SendResult sent = producer.send(message, new MessageQueue(topic, "broker-a", 1));
        System.out.println("sent " + body + " " + sent.getMessageQueue().getQueueId());
    }

    private List<MessageExt> pop(int count, long invisible) throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup(GROUP);
        header.setTopic(topic);
        header.setQueueId(-1);
        header.setMaxMsgNums(count);
        header.setInvisibleTime(invisible);
        header.setInitMode(0);
        header.setPollTime(1_000);
        header.setBornTime(System.currentTimeMillis());
        header.setExpType("TAG");
        header.setExp("*");
        header.setBrokerName("broker-a");
        CompletableFuture<PopResult> future = new CompletableFuture<>();
        MQClientAPIImpl api = producer.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl();
        api.popMessageAsync("broker-a", broker, header, 20_000, new PopCallback() {
            @Override
            public void onSuccess(PopResult result) {
                future.complete(result);
            }

            @Override
            public void onException(Throwable failure) {
                future.completeExceptionally(failure);
            }
        });
        List<MessageExt> found = future.get(30, TimeUnit.SECONDS).getMsgFoundList();
        return found == null ? new ArrayList<>() : found;
    }

    private void awaitRetry() throws Exception {
        MessageQueue retries = new MessageQueue("%RETRY%" + GROUP + "_" + topic, "broker-a", 0);
        for (int n = 0; n < 600; n++) {
            try {
                if (producer.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl()
                    .getMaxOffset(broker, retries, 3_000) > 0) {
                    return;
                }
            } catch (Exception notYet) {
                // the topic is created with its first message
            }
            Thread.sleep(100);
        }
        throw new IllegalStateException("the message was not revived");
    }
}
