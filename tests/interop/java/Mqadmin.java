import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * mqadmin that ends with its command, without the seconds its network threads linger.
 *
 * With -Dbetween=WORD the arguments are several commands, each with that word after it. They run one
 * after the other, errors go where the rest goes, and the word on a line of its own ends each. With
 * --for=N as its first word a command is interrupted after so many seconds.
 */
public class Mqadmin {
    private static final String LIMIT = "--for=";

    public static void main(String[] args) {
        String word = System.getProperty("between");
        if (word == null) {
            MQAdminStartup.main(args);
        } else {
            System.setErr(System.out);
            hurry(Thread.currentThread());
            run(args, word);
        }
        System.exit(0);
    }

    private static void run(String[] args, String word) {
        List<String> command = new ArrayList<>();
        for (String argument : args) {
            if (argument.equals(word)) {
                forgetCommands();
                run(command);
                System.out.println("\n" + word);
                command.clear();
            } else {
                command.add(argument);
            }
        }
    }

    private static void run(List<String> command) {
        if (command.isEmpty() || !command.get(0).startsWith(LIMIT)) {
            MQAdminStartup.main(command.toArray(new String[0]));
            return;
        }
        long seconds = Long.parseLong(command.remove(0).substring(LIMIT.length()));
        Thread running = new Thread(() -> MQAdminStartup.main(command.toArray(new String[0])));
        running.start();
        try {
            running.join(seconds * 1000);
            running.interrupt();
            running.join(10_000);
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }

    /** Some commands keep a client that cannot start again: have the next use find new ones. */
    private static void forgetCommands() {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (List.class.isAssignableFrom(field.getType())) {
                try {
                    field.setAccessible(true);
                    ((List<?>) field.get(null)).clear();
                } catch (IllegalAccessException impossible) {
                    throw new IllegalStateException(impossible);
                }
            }
        }
    }

    /** A client's end waits for a thread that looks up every 3 s only: wake it. */
    private static void hurry(Thread commands) {
        Thread hurrying = new Thread(() -> {
            while (true) {
                if (isEnding(commands)) {
                    Thread.getAllStackTraces().keySet().stream()
                        .filter(thread -> thread.getName().startsWith("NettyEventExecut"))
                        .forEach(Thread::interrupt);
                }
                try {
                    Thread.sleep(50);
                } catch (InterruptedException ended) {
                    return;
                }
            }
        });
        hurrying.setDaemon(true);
        hurrying.start();
    }

    private static boolean isEnding(Thread thread) {
        return Arrays.stream(thread.getStackTrace()).anyMatch(frame ->
            frame.getMethodName().equals("shutdown")
                && frame.getClassName().endsWith("ServiceThread"));
    }
}
