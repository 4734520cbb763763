import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** Traces of a message in a topic of their own, which clients write since 4.4. */
public class TraceCell implements Cell {
    @Override
    public Map<String, Object> play(Stage stage) throws Exception {
        String traces = stage.topic + "_traces";
        DefaultMQProducer producer =
            new DefaultMQProducer(stage.group + "_producers", null, true, traces);
        stage.clients.set(producer, stage.topic + "_producer");
        producer.setSendMsgTimeout(10_000);
        stage.atEnd(producer::shutdown);
        producer.start();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            stage.group, null, new AllocateMessageQueueAveragely(), true, traces);
        stage.clients.set(consumer, stage.topic + "_1");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(stage.topic, "*");
        Deliveries deliveries = new Deliveries().of(consumer);
        stage.atEnd(consumer::shutdown);
        consumer.start();
        Message message = stage.message("message", "tag");
        message.setKeys("key");
        SendResult sent = producer.send(message);
        deliveries.await(1);
        return Facts.of(
            "sent", Facts.of(sent),
            "traces", stage.stored(traces, found -> isWhole(found.toString())));
    }

    private static boolean isWhole(String told) {
        return told.contains("Pub\u0001") && told.contains("SubBefore\u0001")
            && told.contains("SubAfter\u0001");
    }
}
