import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.spring.annotation.RocketMQTransactionListener;
import org.apache.rocketmq.spring.core.RocketMQLocalTransactionListener;
import org.apache.rocketmq.spring.core.RocketMQLocalTransactionState;
import org.springframework.messaging.Message;

/** Does as the argument of the send says; of what it did not know, it then commits number 0. */
@RocketMQTransactionListener
class SpringTransactions implements RocketMQLocalTransactionListener {
    private static final long PATIENCE_MS = 30_000;

    private final List<String> checked = new ArrayList<>();

    /** All that was asked about, once these are among them or the time is over. */
    List<String> await(String... bodies) throws InterruptedException {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        synchronized (checked) {
            long left = PATIENCE_MS;
            while (!checked.containsAll(List.of(bodies)) && left > 0) {
                checked.wait(left);
                left = deadline - System.currentTimeMillis();
            }
            return new ArrayList<>(checked);
        }
    }

    @Override
    public RocketMQLocalTransactionState executeLocalTransaction(Message message, Object verdict) {
        return RocketMQLocalTransactionState.valueOf((String) verdict);
    }

    @Override
    public RocketMQLocalTransactionState checkLocalTransaction(Message message) {
        String body = new String((byte[]) message.getPayload(), StandardCharsets.UTF_8);
        synchronized (checked) {
            checked.add(body);
            checked.notifyAll();
        }
        return body.matches("unknown 0|commit .")
            ? RocketMQLocalTransactionState.COMMIT
            : RocketMQLocalTransactionState.ROLLBACK;
    }
}
