import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageExt;

/** What is told of messages and send results; the other players tell the same. */
final class Facts {
    private Facts() {
    }

    static Map<String, Object> of(Object... namesAndValues) {
        Map<String, Object> facts = new LinkedHashMap<>();
        for (int n = 0; n < namesAndValues.length; n += 2) {
            facts.put((String) namesAndValues[n], namesAndValues[n + 1]);
        }
        return facts;
    }

    static Map<String, Object> of(MessageExt message) {
        return of(
            "body", body(message),
            "topic", message.getTopic(),
            "id", message.getMsgId(),
            "queue", message.getQueueId(),
            "offset", message.getQueueOffset(),
            "tags", message.getTags(),
            "keys", message.getKeys(),
            "reconsumed", message.getReconsumeTimes(),
            "born", message.getBornTimestamp(),
            "stored", message.getStoreTimestamp(),
            "properties", new LinkedHashMap<>(message.getProperties()));
    }

    static Map<String, Object> of(SendResult result) {
        return of(
            "status", result.getSendStatus(),
            "id", result.getMsgId(),
            "offset_id", result.getOffsetMsgId(),
            "queue", result.getMessageQueue().getQueueId(),
            "offset", result.getQueueOffset());
    }

    static String body(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }
}
