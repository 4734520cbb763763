import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs several mqadmin commands in one process. Each argument is one of them, its words with blanks
 * between; a line "@@ n" stands before what the n-th prints, on both streams.
 */
public class MqadminBatch {
    public static void main(String[] args) {
        for (int n = 0; n < args.length; n++) {
            System.out.println("@@ " + n);
            System.err.println("@@ " + n);
            MQAdminStartup.main(args[n].split(" +"));
            System.out.println();  // some commands do not end their last line
        }
        System.exit(0);
    }
}
