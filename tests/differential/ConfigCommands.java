import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.kafka.common.utils.Exit;

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
        Exit.setExitProcedure((code, message) -> {
            // The tool takes what is thrown here for an error of its own and exits once more: the first one counts.
            take(code);
            throw new Exited();
        });
        Method tool = Class.forName("kafka.admin.ConfigCommand").getMethod("main", String[].class);
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
