import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Transactions, which clients have in this form since 4.3: what is unknown is asked for again. */
public class TransactionCell implements Cell {
    private static final String[] BODIES = {
        "unknown 0", "unknown 1", "commit 0", "rollback 0", "commit 1", "rollback 1",
    };

    @Override
    public Map<String, Object> play(Stage stage) throws Exception {
        DefaultMQPushConsumer consumer = stage.pushConsumer("1", "*");
        Deliveries deliveries = new Deliveries().of(consumer);
        consumer.start();
        Listener listener = new Listener();
        TransactionMQProducer producer = new TransactionMQProducer(stage.group + "_producers");
        stage.clients.set(producer, stage.topic + "_producer");
        producer.setSendMsgTimeout(10_000);
        producer.setTransactionListener(listener);
        stage.atEnd(producer::shutdown);
        producer.start();
        List<Object> sent = new ArrayList<>();
        for (String body : BODIES) {
            TransactionSendResult result =
                producer.sendMessageInTransaction(stage.message(body, "tag"), null);
            sent.add(Facts.of("status", result.getSendStatus(), "id", result.getMsgId()));
        }
        Stage.await(() -> listener.checked.size() >= 2);
        return Facts.of(
            "sent", sent, "checked", listener.checked, "deliveries", deliveries.await(3));
    }

    /** Does as the body says; of those that it did not know, it then commits number 0. */
    private static final class Listener implements TransactionListener {
        final List<String> checked = Collections.synchronizedList(new ArrayList<>());

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            String body = new String(message.getBody());
            if (body.startsWith("unknown")) {
                return LocalTransactionState.UNKNOW;
            }
            return body.startsWith("commit")
                ? LocalTransactionState.COMMIT_MESSAGE
                : LocalTransactionState.ROLLBACK_MESSAGE;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            checked.add(Facts.body(message));
            return Facts.body(message).matches("unknown 0|commit .")
                ? LocalTransactionState.COMMIT_MESSAGE
                : LocalTransactionState.ROLLBACK_MESSAGE;
        }
    }
}
