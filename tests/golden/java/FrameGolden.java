import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.remoting.protocol.LanguageCode;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.SerializeType;

/**
 * Encodes commands with fixed values, then bodies (FrameBodies, one for each major version), and
 * prints a line for each: what went in, and the bytes that came out.
 */
public class FrameGolden {
    private static final String UNICODE = "Grüße, \u4e16\u754c \ud83d\ude00";

    public static void main(String[] args) {
        for (SerializeType type : SerializeType.values()) {
            frames(type);
        }
        FrameBodies.print();
    }

    private static void frames(SerializeType type) {
        print("bare request", command(type, 106, 0));
        print("request with a field", field(command(type, 105, 0), "topic", "TopicTest"));
        RemotingCommand three = field(command(type, 105, 0), "topic", "TopicTest");
        print("request with fields", field(field(three, "acceptStandardJsonOnly", "true"), "lo", "false"));
        print("one-way request", field(command(type, 35, 2), "clientID", "10.0.0.1@7"));
        print("success", command(type, 0, 1));
        RemotingCommand refused = command(type, 17, 1);
        refused.setRemark("No topic route info in name server for the topic: T\nSee the FAQ.");
        print("response with a remark", refused);
        RemotingCommand both = field(command(type, 0, 1), "changed", "true");
        both.setRemark("both");
        both.setBody("{\"counter\":1}".getBytes());
        print("response with remark, field and body", both);
        RemotingCommand body = command(type, 0, 1);
        body.setBody(new byte[] {0, 1, 2, -1, -128});
        print("binary body", body);
        RemotingCommand empty = command(type, 0, 1);
        empty.setBody(new byte[0]);
        print("empty body", empty);
        print("unicode field", field(command(type, 101, 0), "value", UNICODE));
        RemotingCommand unicode = command(type, 1, 1);
        unicode.setRemark(UNICODE);
        print("unicode remark", unicode);
        print("escapes", field(command(type, 100, 0), "value", "\" \\ / \b \f \n \r \t \u0000 \u001f"));
        print("escapes that only fastjson writes", field(command(type, 100, 0), "value", "\u007f \u2028"));
        print("half a surrogate pair", field(command(type, 100, 0), "value", "<\ud800>"));
        print("empty value", field(command(type, 100, 0), "value", ""));
        languages(type);
        numbers(type);
    }

    private static void languages(SerializeType type) {
        for (LanguageCode language : LanguageCode.values()) {
            RemotingCommand spoken = command(type, 34, 0);
            spoken.setLanguage(language);
            print("language " + language, spoken);
        }
    }

    private static void numbers(SerializeType type) {
        RemotingCommand opaque = command(type, 105, 0);
        opaque.setOpaque(Integer.MIN_VALUE);
        print("opaque after it wrapped", opaque);
        RemotingCommand version = command(type, 105, 0);
        version.setVersion(401);
        print("version 4.9.4", version);
        print("negative response code", command(type, -1006, 1));
        if (type == SerializeType.JSON) {
            print("code over 16 bits", command(type, 200050, 0));
        }
    }

    private static RemotingCommand command(SerializeType type, int code, int flag) {
        RemotingCommand made = RemotingCommand.createRequestCommand(code, null);
        made.setSerializeTypeCurrentRPC(type);
        made.setFlag(flag);
        made.setVersion(479);
        made.setOpaque(7);
        return made;
    }

    private static RemotingCommand field(RemotingCommand command, String key, String value) {
        command.addExtField(key, value);
        return command;
    }

    private static void print(String name, RemotingCommand command) {
        byte[] body = command.getBody();
        HashMap<String, String> fields = command.getExtFields();
        Map<String, String> line = new TreeMap<>();
        line.put("name", quote(name));
        line.put("kind", quote("frame"));
        line.put("encoding", quote(command.getSerializeTypeCurrentRPC().name()));
        line.put("code", "" + command.getCode());
        line.put("flag", "" + command.getFlag());
        line.put("language", quote(command.getLanguage().name()));
        line.put("version", "" + command.getVersion());
        line.put("opaque", "" + command.getOpaque());
        line.put("remark", quote(command.getRemark()));
        line.put("fields", fields == null ? "null" : object(fields));
        line.put("body", body == null ? "null" : quote(hex(body)));
        line.put("hex", quote(hex(command.encode().array())));
        System.out.println(raw(line));
    }

    private static String object(Map<String, String> texts) {
        Map<String, String> quoted = new TreeMap<>();
        texts.forEach((key, value) -> quoted.put(key, quote(value)));
        return raw(quoted);
    }

    private static String raw(Map<String, String> members) {
        StringBuilder text = new StringBuilder();
        members.forEach((key, value) -> text.append(",").append(quote(key)).append(":").append(value));
        return "{" + text.substring(Math.min(1, text.length())) + "}";
    }

    static void print(String kind, String name, byte[] bytes) {
        Map<String, String> line = new TreeMap<>();
        line.put("kind", quote(kind));
        line.put("name", quote(name));
        line.put("hex", quote(hex(bytes)));
        System.out.println(raw(line));
    }

    /** A JSON string in ASCII. */
    private static String quote(String text) {
        if (text == null) {
            return "null";
        }
        StringBuilder quoted = new StringBuilder("\"");
        for (char sign : text.toCharArray()) {
            boolean plain = sign >= ' ' && sign < 127 && sign != '"' && sign != '\\';
            quoted.append(plain ? "" + sign : String.format("\\u%04x", (int) sign));
        }
        return quoted.append('"').toString();
    }

    private static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (byte each : bytes) {
            text.append(String.format("%02x", each));
        }
        return text.toString();
    }
}
