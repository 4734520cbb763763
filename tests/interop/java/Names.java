import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.Map;
import java.util.Set;

/** Prints the names that a release knows: "kind name value" a line, tabs between. */
public class Names {
    private static final Set<String> SETTABLE =
            Set.of("java.lang.String", "int", "long", "double", "boolean", "float");

    public static void main(String[] kinds) throws Exception {
        for (String kind : kinds) {
            int equals = kind.indexOf('=');
            Class<?> found = find(kind.substring(equals + 1).split(","));
            if (found != null) {
                print(kind.substring(0, equals), found);
            }
        }
    }

    private static Class<?> find(String[] names) throws Exception {
        for (String name : names) {
            try {
                return Class.forName(name);
            } catch (ClassNotFoundException e) {
                // It has another place in this release, or there is none.
            }
        }
        return null;
    }

    private static void print(String kind, Class<?> found) throws Exception {
        if (kind.endsWith("Code")) {
            printNumbers(kind, found);
        } else if (kind.endsWith("Attributes")) {
            for (Object name : ((Map<?, ?>) found.getField("ALL").get(null)).keySet()) {
                System.out.println(kind + "\t" + name + "\t");
            }
        } else if (kind.endsWith("SystemConfig")) {
            printTexts(kind, found);
        } else {
            printSettings(kind, found);
        }
    }

    private static void printNumbers(String kind, Class<?> found) throws Exception {
        for (Field field : found.getFields()) {
            Class<?> type = field.getType();
            if (Modifier.isStatic(field.getModifiers())
                    && (type == int.class || type == short.class)) {
                System.out.println(kind + "\t" + field.getName() + "\t" + field.getInt(null));
            }
        }
    }

    private static void printTexts(String kind, Class<?> found) throws Exception {
        for (Field field : found.getFields()) {
            int modifiers = field.getModifiers();
            if (Modifier.isStatic(modifiers) && Modifier.isFinal(modifiers)
                    && field.getType() == String.class) {
                System.out.println(kind + "\t" + field.get(null) + "\t");
            }
        }
    }

    /** The setters that MixAll.properties2Object calls for the keys of a file. */
    private static void printSettings(String kind, Class<?> found) throws Exception {
        Object defaults = found.getConstructor().newInstance();
        for (Method method : found.getMethods()) {
            String name = method.getName();
            if (name.startsWith("set") && name.length() > 3 && method.getParameterCount() == 1
                    && SETTABLE.contains(method.getParameterTypes()[0].getName())) {
                String key = Character.toLowerCase(name.charAt(3)) + name.substring(4);
                System.out.println(kind + "\t" + key + "\t" + value(defaults, key));
            }
        }
    }

    private static Object value(Object holder, String key) throws Exception {
        for (Class<?> type = holder.getClass(); type != null; type = type.getSuperclass()) {
            try {
                Field field = type.getDeclaredField(key);
                field.setAccessible(true);
                Object value = field.get(holder);
                return value == null ? "" : value;
            } catch (NoSuchFieldException e) {
                // A parent may have it; some setters have a field of another name.
            }
        }
        return "";
    }
}
