import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Sends batches to a topic with queue.type=BatchCQ, and reads it. The topic has one queue.
 *
 * <p>Arguments, after the address of the name server and the topic, with " / " between tasks:
 * create brokerAddr | send brokerName first | stream brokerName first | pull brokerName offset |
 * where brokerName | push group tags count [--fail-once].
 */
public class InnerBatches {
    private static String namesrv;
    private static String topic;

    public static void main(String[] args) {
        try {
            namesrv = args[0];
            topic = args[1];
            for (String each : String.join(" ", Arrays.copyOfRange(args, 2, args.length)).split(" / ")) {
                run(each.split(" "));
            }
            System.exit(0);
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1);
        }
    }

    private static void run(String[] args) throws Exception {
        switch (args[0]) {
            case "create":
                create(args[1]);
                break;
            case "send":
                send(queue(args[1]), Integer.parseInt(args[2]));
                break;
            case "stream":
                stream(queue(args[1]), Integer.parseInt(args[2]));
                break;
            case "pull":
                pull(queue(args[1]), Long.parseLong(args[2]));
                break;
            case "where":
                where(queue(args[1]));
                break;
            case "push":
                push(args[1], args[2], Integer.parseInt(args[3]), args.length > 4);
                break;
            default:
                throw new IllegalArgumentException(args[0]);
        }
    }

    private static MessageQueue queue(String broker) {
        return new MessageQueue(topic, broker, 0);
    }

    private static void create(String address) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(namesrv);
        admin.setMqClientApiTimeout(15_000);
        admin.start();
        TopicConfig config = new TopicConfig(topic, 1, 1);
        config.setAttributes(Collections.singletonMap("+queue.type", "BatchCQ"));
        admin.createAndUpdateTopicConfig(address, config);
        admin.shutdown();
    }

    private static Message message(int number, String tags) {
        Message message = new Message(topic, tags, Integer.toString(number).getBytes(StandardCharsets.UTF_8));
        message.setKeys("key" + number);
        return message;
    }

    private static DefaultMQProducer producer(boolean autoBatch) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("writers");
        producer.setNamesrvAddr(namesrv);
        producer.setMqClientApiTimeout(15_000);
        producer.setInstanceName(autoBatch ? "auto" : "plain");
        producer.setAutoBatch(autoBatch);
        if (autoBatch) {
            producer.batchMaxDelayMs(50);
        }
        producer.start();
        return producer;
    }

    /** A batch of four, a single message, a batch of three, and six that the client joins itself. */
    private static void send(MessageQueue queue, int first) throws Exception {
        DefaultMQProducer plain = producer(false);
        report("batch", plain.send(messages(first, 4, null), queue));
        report("single", plain.send(message(first + 4, "A"), queue));
        report("batch", plain.send(messages(first + 5, 3, "B"), queue));
        plain.shutdown();
        DefaultMQProducer auto = producer(true);
        CountDownLatch missing = new CountDownLatch(6);
        for (int number = first + 8; number < first + 14; number++) {
            auto.send(message(number, "A"), queue, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    missing.countDown();
                }

                @Override
                public void onException(Throwable failure) {
                    failure.printStackTrace();
                }
            });
        }
        if (!missing.await(30, TimeUnit.SECONDS)) {
            throw new IllegalStateException("sends of the accumulator were not answered");
        }
        System.out.println("auto 6");
        auto.shutdown();
    }

    private static List<Message> messages(int first, int count, String tags) {
        List<Message> messages = new ArrayList<>();
        for (int number = first; number < first + count; number++) {
            messages.add(message(number, tags));
        }
        return messages;
    }

    private static void report(String what, SendResult result) {
        System.out.println(what + " " + result.getSendStatus() + " at " + result.getQueueOffset()
            + " ids " + result.getMsgId().split(",").length
            + " offset ids " + result.getOffsetMsgId().split(",").length);
    }

    /** Batches of three without an end; prints the last number of each that was acknowledged. */
    private static void stream(MessageQueue queue, int first) throws Exception {
        DefaultMQProducer plain = producer(false);
        plain.setRetryTimesWhenSendFailed(0);
        for (int number = first; ; number += 3) {
            plain.send(messages(number, 3, null), queue);
            System.out.println("acknowledged " + (number + 2));
        }
    }

    /** All messages from an offset on, one record or more at a time. */
    private static void pull(MessageQueue queue, long offset) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("readers");
        consumer.setNamesrvAddr(namesrv);
        consumer.setMqClientApiTimeout(15_000);
        consumer.start();
        while (true) {
            PullResult found = consumer.pull(queue, "*", offset, 5);
            System.out.println("pulled " + found.getPullStatus() + " to " + found.getNextBeginOffset()
                + " of " + found.getMinOffset() + " " + found.getMaxOffset());
            if (found.getPullStatus() != PullStatus.FOUND) {
                break;
            }
            for (MessageExt message : found.getMsgFoundList()) {
                System.out.println("at " + message.getQueueOffset() + " " + text(message) + " "
                    + message.getTags() + " " + message.getKeys());
            }
            offset = found.getNextBeginOffset();
        }
        consumer.shutdown();
    }

    private static String text(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private static void where(MessageQueue queue) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("readers");
        consumer.setNamesrvAddr(namesrv);
        consumer.setMqClientApiTimeout(15_000);
        consumer.start();
        System.out.println("max " + consumer.maxOffset(queue) + " min " + consumer.minOffset(queue));
        System.out.println("past " + consumer.searchOffset(queue, 1L));
        long later = System.currentTimeMillis() + 3_600_000;
        System.out.println("future " + consumer.searchOffset(queue, later));
        consumer.shutdown();
    }

    private static void push(String group, String tags, int count, boolean failsOnce) throws Exception {
        CountDownLatch missing = new CountDownLatch(count);
        TreeMap<Long, String> got = new TreeMap<>();
        Set<String> failed = ConcurrentHashMap.newKeySet();
        AtomicInteger retried = new AtomicInteger();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setMqClientApiTimeout(15_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(1);
        consumer.setPollNameServerInterval(500);
        consumer.subscribe(topic, tags);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                String body = text(message);
                if (failsOnce && Integer.parseInt(body) % 5 == 0 && failed.add(body)) {
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
                if (message.getReconsumeTimes() > 0) {
                    retried.incrementAndGet();
                }
                synchronized (got) {
                    got.put(Long.parseLong(body), message.getTags());
                }
                missing.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        boolean isComplete = missing.await(Integer.getInteger("deadline", 40), TimeUnit.SECONDS);
        Thread.sleep(500); // one that comes too many is seen
        consumer.shutdown();
        synchronized (got) {
            System.out.println("pushed " + isComplete + " " + got + " retried " + retried);
        }
    }
}
