import java.io.File;
import java.lang.annotation.Annotation;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.jar.JarFile;
import java.util.stream.Collectors;

/** Prints one JSON line for each header class in the remoting jar that is given as the argument. */
public class HeaderGolden {
    private static final String PACKAGE = "org/apache/rocketmq/remoting/protocol/header/";
    private static final String MARKER = "org.apache.rocketmq.remoting.CommandCustomHeader";
    /** Base classes whose fields (ns, nsd, bname, oway, lo) every request may carry. */
    private static final Set<String> SHARED = Set.of(
        "RpcRequestHeader", "TopicRequestHeader", "TopicQueueRequestHeader");

    public static void main(String[] args) throws Exception {
        Class<?> marker = Class.forName(MARKER);
        for (String name : classNames(new File(args[0]))) {
            Class<?> type = Class.forName(name);
            if (marker.isAssignableFrom(type) && !type.isInterface()) {
                System.out.println(line(type));
            }
        }
    }

    private static List<String> classNames(File jar) throws Exception {
        try (JarFile file = new JarFile(jar)) {
            return file.stream()
                .map(entry -> entry.getName())
                .filter(name -> name.startsWith(PACKAGE) && name.endsWith(".class"))
                .map(name -> name.substring(0, name.length() - ".class".length()).replace('/', '.'))
                .sorted()
                .collect(Collectors.toList());
        }
    }

    private static String line(Class<?> type) {
        TreeMap<String, String> fields = new TreeMap<>();
        TreeSet<String> required = new TreeSet<>();
        for (Class<?> at = type; at != Object.class; at = at.getSuperclass()) {
            if (SHARED.contains(at.getSimpleName())) {
                continue;
            }
            for (Field field : at.getDeclaredFields()) {
                if (Modifier.isStatic(field.getModifiers()) || field.isSynthetic()) {
                    continue;
                }
                fields.put(field.getName(), field.getType().getSimpleName());
                if (isRequired(field)) {
                    required.add(field.getName());
                }
            }
        }
        List<String> pairs = new ArrayList<>();
        fields.forEach((name, kind) -> pairs.add(quote(name) + ":" + quote(kind)));
        return "{\"class\":" + quote(type.getName().substring(PACKAGE.length()))
            + ",\"fields\":{" + String.join(",", pairs) + "},\"required\":["
            + required.stream().map(HeaderGolden::quote).collect(Collectors.joining(","))
            + "]}";
    }

    private static boolean isRequired(Field field) {
        for (Annotation annotation : field.getAnnotations()) {
            if (annotation.annotationType().getSimpleName().equals("CFNotNull")) {
                return true;
            }
        }
        return false;
    }

    private static String quote(String text) {
        return '"' + text + '"';
    }
}
