import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.common.filter.ExpressionType;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;

/**
 * Says what the filter of RocketMQ's broker makes of expressions and properties.
 *
 * <p>The file has a line for each, in base64: first "P text" for the properties of a message, then
 * "E text" for expressions. For each expression a line is printed: "!" if it does not compile,
 * otherwise 1 or 0 for each message.
 */
public class SqlVerdicts {
    public static void main(String[] args) throws Exception {
        List<Map<String, String>> messages = new ArrayList<>();
        StringBuilder out = new StringBuilder();
        for (String line : Files.readAllLines(Paths.get(args[0]))) {
            String text = new String(Base64.getDecoder().decode(line.substring(2)), StandardCharsets.UTF_8);
            if (line.startsWith("P")) {
                messages.add(MessageDecoder.string2messageProperties(text));
            } else {
                out.append(verdicts(text, messages)).append('\n');
            }
        }
        System.out.print(out);
    }

    private static String verdicts(String text, List<Map<String, String>> messages) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get(ExpressionType.SQL92).compile(text);
        } catch (Throwable refused) {
            return "!";
        }
        StringBuilder verdicts = new StringBuilder();
        for (Map<String, String> message : messages) {
            verdicts.append(matches(expression, message) ? '1' : '0');
        }
        return verdicts.toString();
    }

    /** As ExpressionMessageFilter.isMatchedByCommitLog. */
    private static boolean matches(Expression expression, Map<String, String> message) {
        try {
            Object value = expression.evaluate(new MessageEvaluationContext(message));
            return value instanceof Boolean && (Boolean) value;
        } catch (Throwable failed) {
            return false;
        }
    }
}
