import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs several mqadmin commands in one process. Each argument is one of them, its words with blanks
 * between; a line "@@ n" stands before what the n-th prints, on both streams.
 */
public class MqadminBatch {
    private static final String SLEEPER = "NettyEventExecutor";

    public static void main(String[] args) {
        Thread waker = new Thread(MqadminBatch::wakeSleepers);
        waker.setDaemon(true);
        waker.start();
        for (int n = 0; n < args.length; n++) {
            System.out.println("@@ " + n);
            System.err.println("@@ " + n);
            MQAdminStartup.main(args[n].split(" +"));
            System.out.println();  // some commands do not end their last line
        }
        System.exit(0);
    }

    /** At the end of a command 5.x often waits three seconds for a thread that waits for nothing. */
    private static void wakeSleepers() {
        while (true) {
            for (Thread thread : Thread.getAllStackTraces().keySet()) {
                if (thread.getName().contains(SLEEPER)) {
                    thread.interrupt();
                }
            }
            try {
                Thread.sleep(50);
            } catch (InterruptedException stop) {
                return;
            }
        }
    }
}
