import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Arguments: namesrvAddr askedTopic servedTopic traceTopic count. Asks count questions on one topic
 * and one more that nobody answers, answers count on the other, and traces all of it. Prints
 * "reply id body" for each answer, then "silence" and "served count".
 */
public class RequestsAndTraces {
    private static final long PATIENCE = 20_000;

    public static void main(String[] args) {
        try {
            run(args, Integer.parseInt(args[4]));
            System.exit(0);
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1);
        }
    }

    private static void run(String[] args, int count) throws Exception {
        CountDownLatch served = new CountDownLatch(count);
        DefaultMQProducer producer = new DefaultMQProducer("java-askers", true, args[3]);
        producer.setNamesrvAddr(args[0]);
        producer.setMqClientApiTimeout(15_000);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        DefaultMQPushConsumer consumer = serve(args, producer, served);
        for (int n = 1; n < count; n++) {
            Message request = request(args[1], n);
            print(request, producer.request(request, PATIENCE));
        }
        askWithCallback(producer, request(args[1], count));
        expectSilence(producer);
        if (!served.await(PATIENCE, TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException(served.getCount() + " requests did not come");
        }
        System.out.println("served " + count);
        consumer.shutdown();
        producer.shutdown();
    }

    private static DefaultMQPushConsumer serve(
            String[] args, DefaultMQProducer producer, CountDownLatch served) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
                "java-repliers", null, new AllocateMessageQueueAveragely(), true, args[3]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setMqClientApiTimeout(15_000);
        consumer.setHeartbeatBrokerInterval(1_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[2], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                String answer = "java:" + new String(message.getBody(), StandardCharsets.UTF_8);
                try {
                    byte[] body = answer.getBytes(StandardCharsets.UTF_8);
                    producer.send(MessageUtil.createReplyMessage(message, body), 10_000);
                } catch (Exception failure) {
                    throw new IllegalStateException(failure);
                }
                served.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    private static void askWithCallback(DefaultMQProducer producer, Message request)
            throws Exception {
        CountDownLatch answered = new CountDownLatch(1);
        producer.request(request, new RequestCallback() {
            @Override
            public void onSuccess(Message reply) {
                print(request, reply);
                answered.countDown();
            }

            @Override
            public void onException(Throwable failure) {
                failure.printStackTrace();
            }
        }, PATIENCE);
        if (!answered.await(PATIENCE, TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException("the callback was not called");
        }
    }

    private static void expectSilence(DefaultMQProducer producer) throws Exception {
        try {
            producer.request(request("Unserved", 0), 500);
        } catch (RequestTimeoutException expected) {
            System.out.println("silence");
        }
    }

    private static Message request(String topic, int number) {
        byte[] body = ("question " + number).getBytes(StandardCharsets.UTF_8);
        return new Message(topic, "asked", "key-" + number, body);
    }

    private static void print(Message request, Message reply) {
        String id = request.getProperty("UNIQ_KEY");
        System.out.println("reply " + id + " " + new String(reply.getBody(), StandardCharsets.UTF_8));
    }
}
