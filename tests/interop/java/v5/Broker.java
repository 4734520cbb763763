import java.util.Collection;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.BrokerStartup;

/**
 * A broker that has registered when it says "boot success".
 *
 * <p>By itself a 5.x broker mostly looks for name servers too late for the registration at its
 * start, and has the next one 10 seconds later.
 *
 * <p>A slave copies the tables of its master after a minute, then every minute. With
 * -DsyncMillis=N it does so every N milliseconds.
 */
public class Broker {
    private static final long PATIENCE_MILLIS = 3_000;

    public static void main(String[] args) {
        try {
            BrokerController broker = BrokerStartup.createBrokerController(args);
            broker.start();
            if (!broker.isIsolated()) {
                awaitNameServers(broker);
                broker.registerBrokerAll(true, false, true);
            }
            syncOften(broker, Long.getLong("syncMillis", 0));
            System.out.println("The broker boot success. " + broker.getBrokerAddr());
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1);
        }
    }

    private static void syncOften(BrokerController broker, long millis) {
        if (millis > 0) {
            ScheduledExecutorService clock = Executors.newSingleThreadScheduledExecutor(task -> {
                Thread thread = new Thread(task, "sync-often");
                thread.setDaemon(true);
                return thread;
            });
            clock.scheduleWithFixedDelay(() -> broker.getSlaveSynchronize().syncAll(), millis, millis, TimeUnit.MILLISECONDS);
        }
    }

    private static void awaitNameServers(BrokerController broker) throws InterruptedException {
        Collection<String> wanted = broker.getBrokerOuterAPI().getNameServerAddressList();
        long deadline = System.currentTimeMillis() + PATIENCE_MILLIS;
        while (wanted != null
            && !broker.getBrokerOuterAPI().getRemotingClient().getAvailableNameSrvList().containsAll(wanted)
            && System.currentTimeMillis() < deadline) {
            Thread.sleep(10);
        }
    }
}
