import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** Every way to send, and what is then found in the queues. */
final class SendCells {
    private static final int MANY = 12;

    private SendCells() {
    }

    /** The topic is not there before the first send; one body is long enough to be compressed. */
    static Map<String, Object> sync(Stage stage) throws Exception {
        List<Object> sent = new ArrayList<>();
        for (int n = 0; n < MANY; n++) {
            sent.add(Facts.of(stage.producer.send(rich(stage, n))));
        }
        return Facts.of("sent", sent, "stored", stage.stored(stage.topic, MANY));
    }

    private static Message rich(Stage stage, int n) {
        StringBuilder body = new StringBuilder("message " + n + " Grüße");
        for (int line = 0; n == 3 && line < 1_000; line++) {
            body.append(" and so on");
        }
        Message message = new Message(stage.topic, "tag" + n, "key" + n + " all",
            body.toString().getBytes(StandardCharsets.UTF_8));
        message.putUserProperty("number", String.valueOf(n));
        message.putUserProperty("sign", "ü € 😀");
        return message;
    }

    static Map<String, Object> async(Stage stage) throws Exception {
        List<Object> sent = Collections.synchronizedList(new ArrayList<>());
        List<Object> failures = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch missing = new CountDownLatch(MANY);
        for (int n = 0; n < MANY; n++) {
            stage.producer.send(stage.message("message " + n), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    sent.add(Facts.of(result));
                    missing.countDown();
                }

                @Override
                public void onException(Throwable failure) {
                    failures.add(failure.toString());
                    missing.countDown();
                }
            });
        }
        missing.await(30, TimeUnit.SECONDS);
        return Facts.of(
            "sent", sent, "failures", failures, "stored", stage.stored(stage.topic, MANY));
    }

    static Map<String, Object> oneWay(Stage stage) throws Exception {
        for (int n = 0; n < MANY; n++) {
            stage.producer.sendOneway(stage.message("message " + n));
        }
        return Facts.of("stored", stage.stored(stage.topic, MANY));
    }

    static Map<String, Object> batch(Stage stage) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (int n = 0; n < MANY; n++) {
            messages.add(stage.message("message " + n, "tag" + n));
        }
        Object sent = Facts.of(stage.producer.send(messages));
        return Facts.of("sent", sent, "stored", stage.stored(stage.topic, MANY));
    }

    static Map<String, Object> selector(Stage stage) throws Exception {
        List<Object> sent = new ArrayList<>();
        for (int n = 0; n < MANY; n++) {
            sent.add(Facts.of(stage.producer.send(
                stage.message("message " + n),
                (queues, message, order) -> queues.get((Integer) order % queues.size()),
                n)));
        }
        return Facts.of("sent", sent, "stored", stage.stored(stage.topic, MANY));
    }
}
