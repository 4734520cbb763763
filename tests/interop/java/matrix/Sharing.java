import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/**
 * Two consumers of a group share its queues until one is killed.
 *
 * The other one is a process of its own, killed without a chance to say goodbye.
 */
public class Sharing {
    private static final int QUEUES = 4;
    private static final int MANY = 16;

    static Map<String, Object> play(Stage stage) throws Exception {
        DefaultMQPushConsumer consumer = stage.pushConsumer("here", "*");
        Deliveries deliveries = new Deliveries().of(consumer);
        consumer.start();
        List<String> there = Collections.synchronizedList(new ArrayList<>());
        Process other = start(stage, there);
        stage.atEnd(other::destroyForcibly);
        Stage.await(() -> Stage.queuesHeld(consumer, stage.topic) == QUEUES / 2
            && last(there, "holds ").equals("" + QUEUES / 2));
        send(stage, "shared");
        Stage.await(() -> deliveries.count("shared") + bodies(there).size() >= MANY);
        int heldWhenShared = Stage.queuesHeld(consumer, stage.topic);
        other.destroyForcibly().waitFor();
        send(stage, "alone");
        Stage.await(() -> deliveries.count("alone") >= MANY);
        Stage.settle();
        return Facts.of(
            "held_when_shared", heldWhenShared,
            "held_alone", Stage.queuesHeld(consumer, stage.topic),
            "here", deliveries.facts(),
            "there", bodies(there));
    }

    private static void send(Stage stage, String body) throws Exception {
        for (int n = 0; n < MANY; n++) {
            stage.producer.send(stage.message(body + " " + n));
        }
    }

    private static Process start(Stage stage, List<String> lines) throws Exception {
        List<String> command = new ArrayList<>();
        command.add(System.getProperty("java.home") + "/bin/java");
        command.addAll(ManagementFactory.getRuntimeMXBean().getInputArguments());
        Collections.addAll(command, "-cp", System.getProperty("java.class.path"), "Sharing",
            stage.clients.namesrv, stage.topic, stage.group);
        Process process =
            new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        BufferedReader output = new BufferedReader(new InputStreamReader(process.getInputStream()));
        Thread reader = new Thread(() -> output.lines().forEach(lines::add));
        reader.setDaemon(true);
        reader.start();
        return process;
    }

    private static List<String> bodies(List<String> lines) {
        synchronized (lines) {
            return lines.stream()
                .filter(line -> line.startsWith("got "))
                .map(line -> line.substring("got ".length()))
                .collect(Collectors.toList());
        }
    }

    private static String last(List<String> lines, String start) {
        synchronized (lines) {
            return lines.stream()
                .filter(line -> line.startsWith(start))
                .reduce((earlier, later) -> later)
                .map(line -> line.substring(start.length()))
                .orElse("");
        }
    }

    /** The other consumer: prints what it gets and holds; ends with the one that started it. */
    public static void main(String[] args) throws Exception {
        String topic = args[1];
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[2]);
        Clients.set(consumer, args[0], topic + "_there");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        new Deliveries(message -> {
            System.out.println("got " + Facts.body(message));
            return false;
        }).of(consumer);
        consumer.start();
        tellQueuesHeld(consumer, topic);
        while (System.in.read() >= 0) {
            continue;
        }
        Runtime.getRuntime().halt(1);
    }

    private static void tellQueuesHeld(DefaultMQPushConsumer consumer, String topic) {
        Thread teller = new Thread(() -> {
            int told = -1;
            while (true) {
                int held = Stage.queuesHeld(consumer, topic);
                if (held != told) {
                    System.out.println("holds " + held);
                    told = held;
                }
                try {
                    Thread.sleep(20);
                } catch (InterruptedException ended) {
                    return;
                }
            }
        });
        teller.setDaemon(true);
        teller.start();
    }
}
