import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageQueue;

/** The producer and the reader that all cells share, and the settings of every client. */
final class Clients implements AutoCloseable {
    final String namesrv;
    final String broker;
    final String prefix;
    final DefaultMQProducer producer;
    final DefaultMQPullConsumer reader;

    Clients(String namesrv, String broker, String prefix) throws MQClientException {
        this.namesrv = namesrv;
        this.broker = broker;
        this.prefix = prefix;
        producer = new DefaultMQProducer(prefix + "_producers");
        set(producer, "producer");
        producer.setSendMsgTimeout(10_000);
        producer.start();
        reader = new DefaultMQPullConsumer(prefix + "_readers");
        set(reader, "reader");
        reader.start();
    }

    void set(ClientConfig client, String instance) {
        set(client, namesrv, prefix + "_" + instance);
    }

    /**
     * Routes are looked up often, so that retry topics are found soon after they are made. Heartbeats
     * are too: a client skips the one that tells of a changed subscription if it sends another just
     * then, and the broker refuses its pulls until the next.
     */
    static void set(ClientConfig client, String namesrv, String instance) {
        client.setNamesrvAddr(namesrv);
        client.setInstanceName(instance);
        client.setPollNameServerInterval(1_000);
        client.setHeartbeatBrokerInterval(1_000);
        setPatience(client);
    }

    /** By name: clients have it since 4.9. */
    private static void setPatience(ClientConfig client) {
        try {
            ClientConfig.class.getMethod("setMqClientApiTimeout", int.class).invoke(client, 15_000);
        } catch (ReflectiveOperationException older) {
            // Its requests have 3 s.
        }
    }

    /**
     * Looks up the route of a topic that exists, patiently: a producer that gets no answer in 3 s
     * takes the route by which topics are made, and with it queues that the topic has not.
     */
    void learnRoute(String topic) {
        for (int tries = 0; tries < 3; tries++) {
            if (producer.getDefaultMQProducerImpl().getmQClientFactory()
                .updateTopicRouteInfoFromNameServer(topic)) {
                return;
            }
        }
    }

    /**
     * Connects to the broker of a topic that exists: in 4.2 the second of two threads that want the
     * first connection closes that of the other, and with it the way of its answers.
     */
    void connect(String topic) throws Exception {
        for (MessageQueue queue : producer.fetchPublishMessageQueues(topic)) {
            producer.maxOffset(queue);
            reader.pull(queue, "*", 0, 1);
        }
    }

    @Override
    public void close() {
        producer.shutdown();
        reader.shutdown();
    }
}
