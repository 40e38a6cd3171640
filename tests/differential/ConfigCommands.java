import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.Base64;

/**
 * Kafka's own kafka-configs, many times in one process. One command line a line on stdin, each word in Base64 behind a
 * "-" and a blank between them; prints "answer EXIT_CODE STDOUT STDERR" with both texts in the same form.
 */
public class ConfigCommands {
    private static final class Exited extends Error {
        Exited() {
            super("exited", null, false, false);
        }
    }

    private static final ByteArrayOutputStream OUT = new ByteArrayOutputStream();
    private static final ByteArrayOutputStream ERR = new ByteArrayOutputStream();
    private static String answer;

    public static void main(String[] ignored) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        // Before Scala's console takes the streams that it prints to.
        System.setOut(new PrintStream(OUT, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(ERR, true, StandardCharsets.UTF_8));
        Class<?> procedure = either("org.apache.kafka.common.utils.internals.Exit$Procedure",
            "org.apache.kafka.common.utils.Exit$Procedure");
        Object exit = Proxy.newProxyInstance(procedure.getClassLoader(), new Class<?>[] {procedure}, (self, of, with) -> {
            // The tool takes what is thrown here for an error of its own and exits once more: the first one counts.
            take((int) with[0]);
            throw new Exited();
        });
        procedure.getDeclaringClass().getMethod("setExitProcedure", procedure).invoke(null, exit);
        Method tool = either("org.apache.kafka.tools.ConfigCommand", "kafka.admin.ConfigCommand")
            .getMethod("main", String[].class);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.isEmpty() ? new String[0] : line.split(" ");
            for (int i = 0; i < words.length; i++) {
                words[i] = new String(Base64.getDecoder().decode(words[i].substring(1)), StandardCharsets.UTF_8);
            }
            answer = null;
            OUT.reset();
            ERR.reset();
            try {
                tool.invoke(null, (Object) words);
                take(0);
            } catch (InvocationTargetException thrown) {
                if (!(thrown.getCause() instanceof Exited)) {
                    throw thrown;
                }
            }
            answers.println(answer);
        }
    }

    /** The class since 4.4, or where it was before. */
    private static Class<?> either(String since, String before) throws ClassNotFoundException {
        try {
            return Class.forName(since);
        } catch (ClassNotFoundException missing) {
            return Class.forName(before);
        }
    }

    private static void take(int code) {
        System.out.flush();
        System.err.flush();
        if (answer == null) {
            answer = "answer " + code + " " + encoded(OUT) + " " + encoded(ERR);
        }
    }

    private static String encoded(ByteArrayOutputStream text) {
        return "-" + Base64.getEncoder().encodeToString(text.toByteArray());
    }
}
