import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson2.annotation.JSONField;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.BitSet;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.stream.Collectors;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/**
 * Prints how RocketMQ reads JSON.
 *
 * <p>The file has lines of "class base64": the class of a body, or RemotingCommand for the header of
 * a frame. For each a line of two readings is printed, separated by a tab: that of this release, with
 * fastjson 2, and that of releases up to 5.3, with fastjson 1.2. A reading is "!" if the text is
 * refused, otherwise the object read, as JSON. Objects are maps of their fields; maps are arrays of
 * pairs, as keys may be objects.
 */
public class JsonReadings {
    private static final int MAX_DEPTH = 30;

    public static void main(String[] args) throws Exception {
        StringBuilder out = new StringBuilder();
        for (String line : Files.readAllLines(Paths.get(args[0]))) {
            String[] parts = line.split(" ", 2);
            Class<?> kind = Class.forName(parts[0]);
            byte[] json = Base64.getDecoder().decode(parts[1]);
            out.append(reading(() -> newer(kind, json))).append('\t');
            out.append(reading(() -> JSON.parseObject(json, kind))).append('\n');
        }
        System.out.print(out);
        System.exit(0);
    }

    private static String reading(Callable<Object> decode) {
        try {
            return show(decode.call(), 0);
        } catch (Throwable refused) {
            return "!";
        }
    }

    private static Object newer(Class<?> kind, byte[] json) throws Exception {
        return kind == RemotingCommand.class ? header(json) : RemotingSerializable.decode(json, kind);
    }

    private static RemotingCommand header(byte[] json) throws Exception {
        ByteBuffer frame = ByteBuffer.allocate(4 + json.length).putInt(json.length).put(json);
        frame.flip();
        return RemotingCommand.decode(frame);
    }

    private static String show(Object value, int depth) throws Exception {
        if (depth > MAX_DEPTH) {
            return "\"…\"";
        }
        if (value == null || value instanceof Boolean) {
            return String.valueOf(value);
        }
        if (value instanceof Number) {
            return value.toString().replaceFirst("^-?(NaN|Infinity)$", "\"$0\"");
        }
        if (value instanceof Enum) {
            return quote(((Enum<?>) value).name());
        }
        if (value instanceof byte[] || value instanceof BitSet) {
            byte[] bytes = value instanceof BitSet ? ((BitSet) value).toByteArray() : (byte[]) value;
            return quote(Base64.getEncoder().encodeToString(bytes));
        }
        List<String> parts = new ArrayList<>();
        if (value instanceof long[]) {
            return Arrays.toString((long[]) value);
        }
        if (value instanceof Map) {
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                parts.add("[" + show(entry.getKey(), depth + 1) + "," + show(entry.getValue(), depth + 1) + "]");
            }
        } else if (value instanceof Collection) {
            for (Object item : (Collection<?>) value) {
                parts.add(show(item, depth + 1));
            }
        } else if (value.getClass().getName().startsWith("org.apache.rocketmq.")) {
            return fields(value, depth);
        } else {
            return quote(value.toString());
        }
        return parts.stream().collect(Collectors.joining(",", "[", "]"));
    }

    private static String fields(Object value, int depth) throws Exception {
        List<String> parts = new ArrayList<>();
        for (Class<?> kind = value.getClass(); kind != Object.class; kind = kind.getSuperclass()) {
            for (Field field : kind.getDeclaredFields()) {
                if (!Modifier.isStatic(field.getModifiers()) && !Modifier.isTransient(field.getModifiers())) {
                    field.setAccessible(true);
                    parts.add(quote(name(field)) + ":" + show(field.get(value), depth + 1));
                }
            }
        }
        return parts.stream().collect(Collectors.joining(",", "{", "}"));
    }

    private static String name(Field field) {
        JSONField given = field.getAnnotation(JSONField.class);
        return given == null || given.name().isEmpty() ? field.getName() : given.name();
    }

    private static String quote(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char each : text.toCharArray()) {
            boolean plain = each >= ' ' && each < 127 && each != '"' && each != '\\';
            quoted.append(plain ? String.valueOf(each) : String.format("\\u%04x", (int) each));
        }
        return quoted.append('"').toString();
    }
}
