import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.common.message.MessageRequestMode;

/** A push consumer that the broker tells to pop, which clients can do since 5.0. */
public class PopCell implements Cell {
    private static final int MANY = 24;

    @Override
    public Map<String, Object> play(Stage stage) throws Exception {
        stage.producer.getDefaultMQProducerImpl().getmQClientFactory().getMQClientAPIImpl()
            .setMessageRequestMode(
                stage.clients.broker, stage.topic, stage.group, MessageRequestMode.POP, 8, 10_000);
        DefaultMQPushConsumer consumer = stage.pushConsumer("1", "*");
        consumer.setClientRebalance(false);
        Deliveries deliveries = new Deliveries().of(consumer);
        consumer.start();
        for (int n = 0; n < MANY; n++) {
            stage.producer.send(stage.message("message " + n, "tag"));
        }
        return Facts.of("deliveries", deliveries.await(MANY));
    }
}
