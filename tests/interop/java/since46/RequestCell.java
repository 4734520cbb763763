import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Requests and replies, which clients have since 4.6. */
public class RequestCell implements Cell {
    private static final long PATIENCE = 20_000;

    @Override
    public Map<String, Object> play(Stage stage) throws Exception {
        DefaultMQPushConsumer consumer = stage.pushConsumer("1", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> reply(stage, message));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Message reply = stage.producer.request(stage.message("first"), PATIENCE);
        CompletableFuture<Message> later = new CompletableFuture<>();
        stage.producer.request(stage.message("second"), new RequestCallback() {
            /** The first call, without a message, says only that the request is sent. */
            @Override
            public void onSuccess(Message message) {
                if (message != null) {
                    later.complete(message);
                }
            }

            @Override
            public void onException(Throwable failure) {
                later.completeExceptionally(failure);
            }
        }, PATIENCE);
        return Facts.of(
            "reply", body(reply),
            "colour", reply.getProperty("colour"),
            "later", body(later.get(PATIENCE, TimeUnit.MILLISECONDS)),
            "timed_out", timesOut(stage));
    }

    private static boolean timesOut(Stage stage) throws Exception {
        try {
            stage.producer.request(stage.message("silence"), 1_000);
            return false;
        } catch (RequestTimeoutException expected) {
            return true;
        }
    }

    private static void reply(Stage stage, MessageExt request) {
        if (Facts.body(request).equals("silence")) {
            return;
        }
        try {
            byte[] body = ("re: " + Facts.body(request)).getBytes(StandardCharsets.UTF_8);
            Message reply = MessageUtil.createReplyMessage(request, body);
            reply.putUserProperty("colour", "red");
            stage.producer.send(reply);
        } catch (Exception failure) {
            throw new IllegalStateException(failure);
        }
    }

    private static String body(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }
}
