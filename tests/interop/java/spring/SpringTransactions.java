import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.rocketmq.spring.annotation.RocketMQTransactionListener;
import org.apache.rocketmq.spring.core.RocketMQLocalTransactionListener;
import org.apache.rocketmq.spring.core.RocketMQLocalTransactionState;
import org.springframework.messaging.Message;

/** Does as the argument of the send says; of what it did not know, it then commits number 0. */
@RocketMQTransactionListener
class SpringTransactions implements RocketMQLocalTransactionListener {
    final List<String> checked = Collections.synchronizedList(new ArrayList<>());

    @Override
    public RocketMQLocalTransactionState executeLocalTransaction(Message message, Object verdict) {
        return RocketMQLocalTransactionState.valueOf((String) verdict);
    }

    @Override
    public RocketMQLocalTransactionState checkLocalTransaction(Message message) {
        String body = new String((byte[]) message.getPayload(), StandardCharsets.UTF_8);
        checked.add(body);
        return body.matches("unknown 0|commit .")
            ? RocketMQLocalTransactionState.COMMIT
            : RocketMQLocalTransactionState.ROLLBACK;
    }
}
