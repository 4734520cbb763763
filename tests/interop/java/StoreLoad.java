import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Sends a mixed load, commits offsets, waits until the broker has settled, and prints StoreFacts.
 *
 * <p>Arguments: namesrvAddr brokerName round topic:queues... The round seeds the choices and names
 * the keys, so that two rounds differ. Topics that are only to be looked at begin with "-".
 */
public class StoreLoad {
    private static final int SINGLES = 240;
    private static final int BATCHES = 12;
    private static final int BATCH = 10;
    private static final int MAX_BODY = 4_000;
    private static final int[] DELAY_LEVELS = {1, 9, 1, 18, 1};  // 9 and 18 are minutes and hours away
    private static final String[] TAGS = {null, "paid", "sent", "\u6807\u7b7e"};
    private static final long PATIENCE_MILLIS = 30_000;

    private final DefaultMQProducer producer = new DefaultMQProducer("store-load");
    private final DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("store-readers");
    private final List<MessageQueue> written = new ArrayList<>();
    private final List<MessageQueue> watched = new ArrayList<>();
    private final String round;
    private final Random random;

    public static void main(String[] args) {
        try {
            new StoreLoad(args).run();
            System.exit(0);
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1);
        }
    }

    private StoreLoad(String[] args) {
        producer.setNamesrvAddr(args[0]);
        producer.setMqClientApiTimeout(15_000);
        producer.setSendMsgTimeout(10_000);
        consumer.setNamesrvAddr(args[0]);
        consumer.setMqClientApiTimeout(15_000);
        round = args[2];
        random = new Random(round.hashCode());
        for (String topic : Arrays.copyOfRange(args, 3, args.length)) {
            String[] words = topic.split(":");
            boolean only = words[0].startsWith("-");
            for (int queue = 0; queue < Integer.parseInt(words[1]); queue++) {
                (only ? watched : written).add(new MessageQueue(words[0].substring(only ? 1 : 0), args[1], queue));
            }
        }
        watched.addAll(written);
    }

    private void run() throws Exception {
        producer.start();
        consumer.start();
        for (int n = 0; n < SINGLES; n++) {
            require(producer.send(message(written.get(n % written.size()), n), written.get(n % written.size())));
        }
        for (int n = 0; n < BATCHES; n++) {
            MessageQueue queue = written.get(n % written.size());
            require(producer.send(batch(queue, n), queue));
        }
        for (int level : DELAY_LEVELS) {
            require(producer.send(delayed(level, "delayed-" + level + "-" + round)));
        }
        consumer.pull(written.get(0), "*", 0, 1);  // the broker makes the group, which a commit must find
        for (MessageQueue queue : written) {
            long offset = consumer.maxOffset(queue) / 2;
            consumer.getOffsetStore().updateConsumeOffsetToBroker(queue, offset, false);
        }
        StoreFacts facts = new StoreFacts(consumer);
        settle(facts);
        facts.print(watched);
    }

    private Message message(MessageQueue queue, int n) {
        byte[] body = new byte[n % 40 == 0 ? (n % 80 == 0 ? 1 : MAX_BODY) : 1 + random.nextInt(MAX_BODY)];
        random.nextBytes(body);
        Message message = new Message(queue.getTopic(), body);
        message.setFlag(n % 3);
        message.setTags(TAGS[n % TAGS.length]);
        message.setWaitStoreMsgOK(n % 5 != 0);
        if (n % 2 == 0) {
            message.putUserProperty("n", String.valueOf(n));
            message.putUserProperty("\u540d", "\u00e4 \ud83d\ude00");
        }
        if (n % 4 == 1) {
            message.setKeys("one-" + round + "-" + n);
        } else if (n % 4 == 2) {
            message.setKeys(Arrays.asList("many-" + round + "-" + n, "popular", "\u043a\u043b\u044e\u0447-" + n % 7));
        }
        return message;
    }

    private List<Message> batch(MessageQueue queue, int n) {
        List<Message> batch = new ArrayList<>();
        for (int part = 0; part < BATCH; part++) {
            Message message = new Message(queue.getTopic(), new byte[1 + random.nextInt(500)]);
            message.setTags(TAGS[part % TAGS.length]);
            message.setKeys("batch-" + round + "-" + n + (part % 2 == 0 ? "" : " popular"));
            batch.add(message);
        }
        return batch;
    }

    private Message delayed(int level, String key) {
        Message message = new Message(written.get(0).getTopic(), "later", key, key.getBytes());
        message.setDelayTimeLevel(level);
        return message;
    }

    private static void require(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException(String.valueOf(result));
        }
    }

    /**
     * Waits for a delayed message sent now. All that is due before it is delivered before it, and
     * once the index has it, queues and index have all that the log had.
     */
    private void settle(StoreFacts facts) throws Exception {
        String key = "settled-" + round;
        require(producer.send(delayed(1, key)));
        long deadline = System.currentTimeMillis() + PATIENCE_MILLIS;
        while (facts.find(written.get(0).getTopic(), key, false).isEmpty()) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("the delayed message " + key + " does not come");
            }
            Thread.sleep(20);
        }
    }
}
