import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.streams.core.RocketMQStream;
import org.apache.rocketmq.streams.core.function.ValueMapperAction;
import org.apache.rocketmq.streams.core.rstream.StreamBuilder;
import org.apache.rocketmq.streams.core.util.Pair;

/**
 * The word count of RocketMQ Streams, which keeps its state in topics.
 *
 * Arguments: namesrvAddr job words line... The topics job_lines and job_counts must exist. A new job
 * begins with what comes after its start, so each of the words, which are joined by spaces, is sent
 * until it is counted for the first time. Then the lines are sent once. The program prints each count
 * that the job sends to job_counts as "counted word number", "sending lines" before the lines, and
 * "committed" when the job has committed its offsets, which it does after its state; without lines
 * it does not wait for that.
 */
public class WordCount {
    private static final long PATIENCE = 45_000;
    private static final long RESEND = 4_000;

    private static final String SHUFFLE_TOPIC = "-ROCKETMQ-COUNT-00004-shuffleTopic";

    private final String namesrv;
    private final String job;
    private final String source;
    private final Map<String, Integer> counts = new HashMap<>();

    private WordCount(String namesrv, String job) {
        this.namesrv = namesrv;
        this.job = job;
        this.source = job + "_lines";
    }

    public static void main(String[] args) throws Exception {
        Thread.setDefaultUncaughtExceptionHandler((thread, failure) -> {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
        });
        WordCount count = new WordCount(args[0], args[1]);
        count.run(Arrays.asList(args[2].split(" ")), Arrays.asList(args).subList(3, args.length));
        System.exit(0);
    }

    private void run(List<String> words, List<String> lines) throws Exception {
        DefaultMQPushConsumer reader = countsReader();
        DefaultMQProducer producer = new DefaultMQProducer(job + "_senders");
        producer.setNamesrvAddr(namesrv);
        producer.setMqClientApiTimeout(15_000);
        producer.start();
        RocketMQStream stream = wordCount();
        stream.start();
        for (String word : words) {
            int before = counted(word);
            do {
                send(producer, word);
            } while (!isCounted(word, before + 1, RESEND));
        }
        System.out.println("sending lines");
        Map<String, Integer> expected = new HashMap<>(counts);
        for (String line : lines) {
            send(producer, line);
            Arrays.asList(line.split(" ")).forEach(word -> expected.merge(word, 1, Integer::sum));
        }
        for (String word : expected.keySet()) {
            if (!isCounted(word, expected.get(word), PATIENCE)) {
                throw new IllegalStateException("not counted: " + word + " of " + counts);
            }
        }
        if (!lines.isEmpty()) {
            awaitCommit();
            System.out.println("committed");
        }
        stream.stop();
        producer.shutdown();
        reader.shutdown();
    }

    private RocketMQStream wordCount() {
        StreamBuilder builder = new StreamBuilder(job);
        builder.source(source, body -> new Pair<>(null, new String(body, StandardCharsets.UTF_8)))
            .flatMap((ValueMapperAction<String, List<String>>) line -> Arrays.asList(line.split(" ")))
            .keyBy(word -> word)
            .count()
            .sink(job + "_counts", (word, number) ->
                (word + " " + number).getBytes(StandardCharsets.UTF_8));
        Properties properties = new Properties();
        properties.put(MixAll.NAMESRV_ADDR_PROPERTY, namesrv);
        return new RocketMQStream(builder.build(), properties);
    }

    private DefaultMQPushConsumer countsReader() throws Exception {
        DefaultMQPushConsumer reader = new DefaultMQPushConsumer(job + "_readers");
        reader.setNamesrvAddr(namesrv);
        reader.setMqClientApiTimeout(15_000);
        reader.setInstanceName("reader");
        reader.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        reader.subscribe(job + "_counts", "*");
        reader.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            messages.forEach(message ->
                noteCount(new String(message.getBody(), StandardCharsets.UTF_8)));
            return ConsumeOrderlyStatus.SUCCESS;
        });
        reader.start();
        return reader;
    }

    private synchronized void noteCount(String text) {
        String[] parts = text.split(" ");
        counts.put(parts[0], Integer.valueOf(parts[1]));
        System.out.println("counted " + text);
        notifyAll();
    }

    private synchronized int counted(String word) {
        return counts.getOrDefault(word, 0);
    }

    /** Whether the word is counted so often within so many milliseconds. */
    private synchronized boolean isCounted(String word, int times, long patience)
        throws InterruptedException {
        long deadline = System.currentTimeMillis() + patience;
        while (counted(word) < times) {
            long left = deadline - System.currentTimeMillis();
            if (left <= 0) {
                return false;
            }
            wait(left);
        }
        return true;
    }

    private void send(DefaultMQProducer producer, String line) throws Exception {
        Message message = new Message(source, line.getBytes(StandardCharsets.UTF_8));
        if (producer.send(message).getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException("not stored: " + line);
        }
    }

    /** The job commits the offsets of its source and of its shuffle topic every ten seconds. */
    private void awaitCommit() throws Exception {
        DefaultMQPullConsumer offsets = new DefaultMQPullConsumer(job + "___source_shuffle_group");
        offsets.setNamesrvAddr(namesrv);
        offsets.setMqClientApiTimeout(15_000);
        offsets.setInstanceName("offsets");
        offsets.start();
        long deadline = System.currentTimeMillis() + PATIENCE;
        for (String topic : Arrays.asList(source, job + SHUFFLE_TOPIC)) {
            for (MessageQueue queue : offsets.fetchSubscribeMessageQueues(topic)) {
                while (offsets.maxOffset(queue) > Math.max(0, offsets.fetchConsumeOffset(queue, true))) {
                    if (System.currentTimeMillis() > deadline) {
                        throw new IllegalStateException("the job does not commit " + queue);
                    }
                    Thread.sleep(100);
                }
            }
        }
        offsets.shutdown();
    }
}
