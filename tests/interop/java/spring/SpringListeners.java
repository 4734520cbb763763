import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.spring.annotation.ConsumeMode;
import org.apache.rocketmq.spring.annotation.MessageModel;
import org.apache.rocketmq.spring.annotation.RocketMQMessageListener;
import org.apache.rocketmq.spring.annotation.SelectorType;
import org.apache.rocketmq.spring.core.RocketMQListener;
import org.apache.rocketmq.spring.core.RocketMQPushConsumerLifecycleListener;
import org.apache.rocketmq.spring.core.RocketMQReplyListener;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Import;

/** The listeners of the program, which keep what they were given. */
@Configuration
@Import({
    SpringListeners.Plain.class,
    SpringListeners.Tagged.class,
    SpringListeners.Sql.class,
    SpringListeners.Orders.class,
    SpringListeners.Orderly.class,
    SpringListeners.Broadcast.class,
    SpringListeners.Failing.class,
    SpringListeners.Dead.class,
    SpringListeners.Replies.class,
    SpringListeners.Committed.class,
})
class SpringListeners {
    private static final long PATIENCE = 45_000;

    static Map<String, Object> fact(MessageExt message) {
        Map<String, Object> fact = new LinkedHashMap<>();
        fact.put("body", new String(message.getBody(), StandardCharsets.UTF_8));
        fact.put("topic", message.getTopic());
        fact.put("id", message.getMsgId());
        fact.put("queue", message.getQueueId());
        fact.put("offset", message.getQueueOffset());
        fact.put("tags", message.getTags());
        fact.put("keys", message.getKeys());
        fact.put("reconsumed", message.getReconsumeTimes());
        fact.put("born", message.getBornTimestamp());
        fact.put("stored", message.getStoreTimestamp());
        fact.put("properties", new LinkedHashMap<>(message.getProperties()));
        return fact;
    }

    /** Deliveries of one listener, which begins with the first message of its topic. */
    abstract static class Keeping<T> implements RocketMQPushConsumerLifecycleListener {
        private final List<Object> kept = new ArrayList<>();

        protected synchronized void keep(Object fact) {
            kept.add(fact);
            notifyAll();
        }

        synchronized List<Object> await(int count) throws InterruptedException {
            long deadline = System.currentTimeMillis() + PATIENCE;
            while (kept.size() < count && System.currentTimeMillis() < deadline) {
                wait(100);
            }
            return new ArrayList<>(kept);
        }

        /** Routes are looked up often, so that retry and dead letter topics are found soon. */
        @Override
        public void prepareStart(DefaultMQPushConsumer consumer) {
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.setPollNameServerInterval(1_000);
            consumer.setHeartbeatBrokerInterval(1_000);
        }
    }

    abstract static class KeepingMessages extends Keeping<MessageExt>
        implements RocketMQListener<MessageExt> {
        @Override
        public void onMessage(MessageExt message) {
            keep(fact(message));
        }
    }

    @RocketMQMessageListener(topic = "${program.prefix}_plain", consumerGroup = "${program.prefix}_plain_group")
    static class Plain extends KeepingMessages {
    }

    @RocketMQMessageListener(topic = "${program.prefix}_plain", consumerGroup = "${program.prefix}_tagged_group",
        selectorExpression = "red || green")
    static class Tagged extends KeepingMessages {
    }

    @RocketMQMessageListener(topic = "${program.prefix}_plain", consumerGroup = "${program.prefix}_sql_group",
        selectorType = SelectorType.SQL92, selectorExpression = "size > 2")
    static class Sql extends KeepingMessages {
    }

    @RocketMQMessageListener(topic = "${program.prefix}_plain", consumerGroup = "${program.prefix}_broadcast_group",
        messageModel = MessageModel.BROADCASTING)
    static class Broadcast extends KeepingMessages {
    }

    /** What the starter turns into JSON and back. */
    static class Order {
        public String name;
        public int amount;
    }

    @RocketMQMessageListener(topic = "${program.prefix}_orders", consumerGroup = "${program.prefix}_orders_group")
    static class Orders extends Keeping<Order> implements RocketMQListener<Order> {
        @Override
        public void onMessage(Order order) {
            keep(order.name + " " + order.amount);
        }
    }

    /** Refuses the fourth message of a queue when it comes for the first time. */
    @RocketMQMessageListener(topic = "${program.prefix}_orderly", consumerGroup = "${program.prefix}_orderly_group",
        consumeMode = ConsumeMode.ORDERLY, suspendCurrentQueueTimeMillis = 50)
    static class Orderly extends KeepingMessages {
        @Override
        public void onMessage(MessageExt message) {
            super.onMessage(message);
            if (message.getQueueOffset() == 3 && message.getReconsumeTimes() == 0) {
                throw new IllegalStateException("not yet");
            }
        }
    }

    @RocketMQMessageListener(topic = "${program.prefix}_failing", consumerGroup = "${program.prefix}_failing_group",
        maxReconsumeTimes = 2)
    static class Failing extends KeepingMessages {
        @Override
        public void onMessage(MessageExt message) {
            super.onMessage(message);
            if (new String(message.getBody(), StandardCharsets.UTF_8).startsWith("bad")) {
                throw new IllegalStateException("never");
            }
        }
    }

    @RocketMQMessageListener(topic = "%DLQ%${program.prefix}_failing_group", consumerGroup = "${program.prefix}_dead_group")
    static class Dead extends KeepingMessages {
    }

    @RocketMQMessageListener(topic = "${program.prefix}_requests", consumerGroup = "${program.prefix}_requests_group")
    static class Replies extends Keeping<String> implements RocketMQReplyListener<String, String> {
        @Override
        public String onMessage(String request) {
            keep(request);
            return "re: " + request;
        }
    }

    @RocketMQMessageListener(topic = "${program.prefix}_transactions", consumerGroup = "${program.prefix}_transactions_group")
    static class Committed extends KeepingMessages {
    }
}
