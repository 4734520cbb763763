import java.util.Map;

/** One row of the matrix: what a client does, told as facts. */
interface Cell {
    Map<String, Object> play(Stage stage) throws Exception;
}
