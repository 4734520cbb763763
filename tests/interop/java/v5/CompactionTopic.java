import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.zip.Deflater;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.header.SendMessageRequestHeader;

/**
 * Arguments: namesrvAddr topic brokerName brokerAddr command...
 *
 * <p>Commands: "key=body" sends a message; "key=" sends one whose body is empty once it is
 * decompressed; "nokey" sends one without keys and prints the code of the refusal; "read:n" reads
 * queue 0 from the beginning until it holds n messages, and prints each as "offset key body".
 */
public class CompactionTopic {
    private static final long DEADLINE = System.currentTimeMillis() + 60_000;

    public static void main(String[] args) {
        try {
            run(args);
            System.exit(0);
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1);
        }
    }

    private static void run(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("compaction-producer");
        producer.setNamesrvAddr(args[0]);
        producer.setMqClientApiTimeout(15_000);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("compaction-consumer");
        consumer.setNamesrvAddr(args[0]);
        consumer.setMqClientApiTimeout(15_000);
        consumer.start();
        MessageQueue queue = new MessageQueue(args[1], args[2], 0);
        for (int n = 4; n < args.length; n++) {
            String command = args[n];
            if (command.startsWith("read:")) {
                read(consumer, queue, Integer.parseInt(command.substring("read:".length())));
            } else if (command.equals("nokey")) {
                sendWithoutKey(producer, queue);
            } else if (command.endsWith("=")) {
                sendEmpty(producer, queue, args[3], command.substring(0, command.length() - 1));
            } else {
                String[] parts = command.split("=");
                Message message = new Message(queue.getTopic(), "tag", parts[0], parts[1].getBytes(StandardCharsets.UTF_8));
                SendResult result = producer.send(message, queue);
                System.out.println(result.getSendStatus() + " " + result.getQueueOffset());
            }
        }
        producer.shutdown();
        consumer.shutdown();
    }

    private static void sendWithoutKey(DefaultMQProducer producer, MessageQueue queue) throws Exception {
        try {
            producer.send(new Message(queue.getTopic(), "body".getBytes(StandardCharsets.UTF_8)), queue);
            System.out.println("accepted");
        } catch (MQBrokerException refused) {
            System.out.println(refused.getResponseCode() + " " + refused.getErrorMessage());
        }
    }

    private static void sendEmpty(DefaultMQProducer producer, MessageQueue queue, String address, String key)
        throws Exception {
        Message message = new Message(queue.getTopic(), "tag", key, new byte[1]);
        SendMessageRequestHeader header = new SendMessageRequestHeader();
        header.setProducerGroup("compaction-producer");
        header.setTopic(queue.getTopic());
        header.setDefaultTopic("TBW102");
        header.setDefaultTopicQueueNums(4);
        header.setQueueId(queue.getQueueId());
        header.setSysFlag(MessageSysFlag.COMPRESSED_FLAG | MessageSysFlag.COMPRESSION_ZLIB_TYPE);
        header.setBornTimestamp(System.currentTimeMillis());
        header.setFlag(0);
        header.setReconsumeTimes(0);
        header.setProperties(MessageDecoder.messageProperties2String(message.getProperties()));
        RemotingCommand request = RemotingCommand.createRequestCommand(RequestCode.SEND_MESSAGE, header);
        request.setBody(deflated());
        RemotingCommand response = producer.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl()
            .getRemotingClient().invokeSync(address, request, 10_000);
        System.out.println("empty " + response.getCode());
    }

    private static byte[] deflated() {
        Deflater deflater = new Deflater();
        deflater.finish();
        byte[] buffer = new byte[64];
        int size = deflater.deflate(buffer);
        return java.util.Arrays.copyOf(buffer, size);
    }

    private static void read(DefaultMQPullConsumer consumer, MessageQueue queue, int count) throws Exception {
        List<MessageExt> found = readAll(consumer, queue);
        while (found.size() != count && System.currentTimeMillis() < DEADLINE) {
            Thread.sleep(200);
            found = readAll(consumer, queue);
        }
        for (MessageExt message : found) {
            byte[] body = message.getBody();
            String text = body == null ? "" : new String(body, StandardCharsets.UTF_8);
            System.out.println(message.getQueueOffset() + " " + message.getKeys() + " " + text);
        }
        System.out.println("read " + found.size());
    }

    private static List<MessageExt> readAll(DefaultMQPullConsumer consumer, MessageQueue queue) throws Exception {
        List<MessageExt> found = new ArrayList<>();
        long offset = 0;
        long end = consumer.maxOffset(queue);
        while (offset < end) {
            PullResult result = consumer.pull(queue, "*", offset, 8);
            if (result.getPullStatus() == PullStatus.FOUND) {
                found.addAll(result.getMsgFoundList());
            } else if (result.getNextBeginOffset() <= offset) {
                break;
            }
            offset = result.getNextBeginOffset();
        }
        return found;
    }
}
