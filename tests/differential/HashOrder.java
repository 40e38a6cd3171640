import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Random;
import org.apache.kafka.common.Uuid;

/**
 * In which order Java walks through maps: HashOrder SEED CASES. For each case a line of the keys as they were put in, a
 * line of them as they come out, and a line of the map's first room; the keys are texts or, in every second case, ids.
 */
public class HashOrder {
    public static void main(String[] args) {
        Random random = new Random(Long.parseLong(args[0]));
        for (int number = 0; number < Integer.parseInt(args[1]); number++) {
            int count = 1 + random.nextInt(number % 3 == 0 ? 60 : 6);
            int room = random.nextBoolean() ? 16 : count;
            HashMap<Object, String> map = new HashMap<>(room);
            List<String> given = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                Object key = number % 2 == 0
                    ? "topic-\u00e9-" + random.nextInt(1000) : new Uuid(random.nextLong(), random.nextLong());
                if (map.put(key, "") == null) {
                    given.add(key.toString());
                }
            }
            System.out.println(String.join(" ", given));
            System.out.println(String.join(" ", map.keySet().stream().map(Object::toString).toList()));
            System.out.println(room);
        }
    }
}
