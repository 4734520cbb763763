import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.exception.RemotingException;

/**
 * A producer and a consumer of a static topic: NameServer, topic, group, port, count.
 *
 * Messages are sent until the broker at the port has stored so many of each queue. Then the
 * program waits until all messages have been consumed. It prints "sent" and "got" lines with body,
 * queue id, queue offset and, for sent ones, the port of the broker.
 */
public class StaticTopicTraffic {
    private static final long DEADLINE = System.currentTimeMillis() + Integer.getInteger("deadline", 90) * 1000L;

    public static void main(String[] arguments) throws Exception {
        String nameServer = arguments[0];
        String topic = arguments[1];
        String group = arguments[2];
        int port = Integer.parseInt(arguments[3]);
        int count = Integer.parseInt(arguments[4]);

        Set<String> consumed = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setMqClientApiTimeout(15_000);
        consumer.setPollNameServerInterval(500);
        consumer.setPersistConsumerOffsetInterval(1000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((List<org.apache.rocketmq.common.message.MessageExt> messages,
            org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext context) -> {
            for (var message : messages) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                print("got %s %d %d %s", body, context.getMessageQueue().getQueueId(),
                    message.getQueueOffset(), context.getMessageQueue().getBrokerName());
                consumed.add(body);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();

        DefaultMQProducer producer = new DefaultMQProducer("producers");
        producer.setNamesrvAddr(nameServer);
        producer.setMqClientApiTimeout(15_000);
        producer.setPollNameServerInterval(500);
        producer.start();
        List<MessageQueue> queues = producer.fetchPublishMessageQueues(topic);
        print("queues %s", queues.stream().map(queue -> queue.getBrokerName() + ":" + queue.getQueueId()).toList());

        Map<Integer, Integer> stored = new ConcurrentHashMap<>();
        Set<String> sent = ConcurrentHashMap.newKeySet();
        for (int number = 0; !isComplete(stored, queues, count); number++) {
            if (System.currentTimeMillis() > DEADLINE) {
                throw new IllegalStateException("the broker at the port has stored " + stored);
            }
            String body = Integer.toString(number);
            MessageQueue queue = queues.get(number % queues.size());
            SendResult result = send(producer, new Message(topic, "tag", body.getBytes(StandardCharsets.UTF_8)), queue);
            int at = ((java.net.InetSocketAddress) MessageDecoder.decodeMessageId(result.getOffsetMsgId()).getAddress()).getPort();
            print("sent %s %d %d %d", body, result.getMessageQueue().getQueueId(), result.getQueueOffset(), at);
            sent.add(body);
            if (at == port) {
                stored.merge(queue.getQueueId(), 1, Integer::sum);
            }
            Thread.sleep(5);
        }
        while (!consumed.containsAll(sent)) {
            if (System.currentTimeMillis() > DEADLINE) {
                sent.removeAll(consumed);
                throw new IllegalStateException("not consumed: " + sent);
            }
            Thread.sleep(50);
        }
        consumer.shutdown();
        producer.shutdown();
        print("done");
    }

    /** Sends until a broker takes the message: Java's producer does not try again by itself. */
    private static SendResult send(DefaultMQProducer producer, Message message, MessageQueue queue)
        throws Exception {
        while (true) {
            try {
                return producer.send(message, queue, 3000);
            } catch (MQBrokerException refused) {
                print("refused %d", refused.getResponseCode());
            } catch (MQClientException | RemotingException failed) {
                print("failed %s", failed.getMessage().replace('\n', ' '));
            }
            if (System.currentTimeMillis() > DEADLINE) {
                throw new IllegalStateException("no broker takes messages of " + queue);
            }
            Thread.sleep(100);
        }
    }

    private static boolean isComplete(Map<Integer, Integer> stored, List<MessageQueue> queues, int count) {
        return queues.stream().allMatch(queue -> stored.getOrDefault(queue.getQueueId(), 0) >= count);
    }

    private static synchronized void print(String format, Object... values) {
        System.out.println(String.format(format, values));
        System.out.flush();
    }
}
