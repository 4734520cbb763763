import org.apache.rocketmq.tools.command.MQAdminStartup;

/** mqadmin that ends with its command, without the seconds its network threads linger. */
public class Mqadmin {
    public static void main(String[] args) {
        MQAdminStartup.main(args);
        System.exit(0);
    }
}
