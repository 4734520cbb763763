import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs several mqadmin commands in one process. Each argument is one of them, its words with blanks
 * between; a line "@@ n" stands before what the n-th prints, on both streams.
 */
public class MqadminBatch {
    private static final String SLEEPER = "NettyEventExecutor";

    public static void main(String[] args) {
        Thread command = Thread.currentThread();
        Thread waker = new Thread(() -> wakeSleepers(command));
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

    /**
     * At the end of a command 5.x often waits three seconds for a thread that waits for nothing.
     * Before the end that thread sends heartbeats: interrupted then, it closes the connection.
     */
    private static void wakeSleepers(Thread command) {
        while (true) {
            if (isJoining(command)) {
                for (Thread thread : Thread.getAllStackTraces().keySet()) {
                    if (thread.getName().contains(SLEEPER)) {
                        thread.interrupt();
                    }
                }
            }
            try {
                Thread.sleep(50);
            } catch (InterruptedException stop) {
                return;
            }
        }
    }

    private static boolean isJoining(Thread command) {
        for (StackTraceElement frame : command.getStackTrace()) {
            if (frame.getClassName().equals("java.lang.Thread") && frame.getMethodName().equals("join")) {
                return true;
            }
        }
        return false;
    }
}
