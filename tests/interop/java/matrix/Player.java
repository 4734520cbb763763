import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * Plays cells of the compatibility matrix, several at a time, and prints what it saw in each.
 *
 * Arguments: namesrvAddr brokerAddr prefix cell... For each cell it prints one line of JSON with
 * "facts" or "failure". A topic is named prefix_cell and exists already, but for that of "sync".
 */
public class Player {
    static final int AT_ONCE = 12;
    static final String MAKES_ITS_TOPIC = "sync";

    private static final Map<String, Cell> CELLS = cells();

    private static Map<String, Cell> cells() {
        Map<String, Cell> cells = new LinkedHashMap<>();
        cells.put("offset-reset", PositionCells::offsetReset);
        cells.put("sharing", Sharing::play);
        cells.put("dead-letter", RetryCells::deadLetter);
        cells.put("retry-success", RetryCells::retrySuccess);
        cells.put("delay-level", RetryCells::delayLevel);
        cells.put("transaction", since("TransactionCell", "transactions of this form, as 4.3 has"));
        cells.put("recall", since("RecallCell", "recall of messages, as 5.3 has"));
        cells.put("timer", TimerCells::timer);
        cells.put("trace", since("TraceCell", "traces, as 4.4 has"));
        cells.put("request", since("RequestCell", "requests and replies, as 4.6 has"));
        cells.put("sql", PushCells::sql);
        cells.put("pop", since("PopCell", "pop mode, as 5.0 has"));
        cells.put("batch-consume", ConsumeCells::batchConsume);
        cells.put("from-timestamp", PositionCells::fromTimestamp);
        cells.put("from-first", PositionCells::fromFirst);
        cells.put("from-last", PositionCells::fromLast);
        cells.put("push-ordered", PushCells::ordered);
        cells.put("push-concurrent", PushCells::concurrent);
        cells.put("broadcast", PushCells::broadcast);
        cells.put("tags", PushCells::tags);
        cells.put("broadcast-ordered", OrderCells::broadcastOrdered);
        cells.put("order-config", OrderCells::orderConfig);
        cells.put("consume-directly", ConsumeCells::consumeDirectly);
        cells.put("lite-pull", since("LitePullCell", "lite pull consumer, as 4.6 has"));
        cells.put("pull", PullCells::pull);
        cells.put("query", PullCells::query);
        cells.put("sync", SendCells::sync);
        cells.put("async", SendCells::async);
        cells.put("one-way", SendCells::oneWay);
        cells.put("batch", SendCells::batch);
        cells.put("selector", SendCells::selector);
        return cells;
    }

    public static void main(String[] args) throws Exception {
        List<String> wanted = Arrays.asList(args).subList(3, args.length);
        ExecutorService pool = Executors.newFixedThreadPool(AT_ONCE);
        try (Clients clients = new Clients(args[0], args[1], args[2])) {
            prepare(wanted, clients);
            CELLS.forEach((name, cell) -> {
                if (wanted.contains(name)) {
                    pool.execute(() -> play(name, cell, clients));
                }
            });
            pool.shutdown();
            pool.awaitTermination(150, TimeUnit.SECONDS);
        }
        System.exit(0);
    }

    private static void prepare(List<String> wanted, Clients clients) throws Exception {
        for (String name : wanted) {
            clients.learnRoute(clients.prefix + "_" + name);
        }
        for (String name : wanted) {
            if (!name.equals(MAKES_ITS_TOPIC)) {
                clients.connect(clients.prefix + "_" + name);
                return;
            }
        }
    }

    private static void play(String name, Cell cell, Clients clients) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("cell", name);
        long begin = System.nanoTime();
        try (Stage stage = new Stage(clients, name)) {
            line.put("facts", cell.play(stage));
        } catch (Throwable failure) {
            StringWriter text = new StringWriter();
            failure.printStackTrace(new PrintWriter(text));
            line.put("failure", text.toString());
        }
        line.put("seconds", (System.nanoTime() - begin) / 1_000_000 / 1000.0);
        System.out.println(Json.text(line));
    }

    /** A cell that is compiled only where the client has what it plays. */
    private static Cell since(String name, String what) {
        return stage -> {
            Cell cell;
            try {
                cell = (Cell) Class.forName(name).getDeclaredConstructor().newInstance();
            } catch (ClassNotFoundException missing) {
                return Facts.of("missing", "this client has no " + what);
            }
            return cell.play(stage);
        };
    }
}
