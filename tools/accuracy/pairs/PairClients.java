import java.io.BufferedReader;
import java.io.FileReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The Java clients of a pair, each in a thread of its own. An argument is a properties file: the settings of one
 * client, and under "pair." what it does (see workload.py). Says "ready" when all are connected; a line on stdin
 * "START_MS SECONDS" sets them going; "stop" ends them, and each says its facts in one line of JSON.
 */
public class PairClients {
    static volatile boolean stopped;
    static volatile long startMs;
    static volatile double seconds;
    static final CountDownLatch go = new CountDownLatch(1);

    public static void main(String[] args) throws Exception {
        CountDownLatch ready = new CountDownLatch(args.length);
        List<Client> clients = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        for (String arg : args) {
            Client client = new Client(arg, ready);
            clients.add(client);
            Thread thread = new Thread(client);
            thread.setDaemon(true);
            thread.start();
            threads.add(thread);
        }
        ready.await();
        PrintStream out = System.out;
        out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        String[] words = in.readLine().split(" ");
        seconds = Double.parseDouble(words[1]);
        startMs = Long.parseLong(words[0]);
        go.countDown();
        in.readLine();
        stopped = true;
        for (Thread thread : threads) {
            thread.join(3_000);
        }
        for (Client client : clients) {
            out.println(client.document());
        }
        out.flush();
        Runtime.getRuntime().halt(0); // what a client has not sent yet does not count
    }

    static class Client implements Runnable {
        final Properties settings = new Properties();
        final CountDownLatch ready;
        final String name;
        long wantedRecords, wantedBytes, deliveredRecords, deliveredBytes, lastMs, lateMs;
        long doneMs = -1;
        double throttleMaxMs;
        final Map<String, Integer> errors = new TreeMap<>();
        final Map<Integer, Long> perSecond = new HashMap<>();

        Client(String file, CountDownLatch ready) throws Exception {
            try (FileReader reader = new FileReader(file)) {
                settings.load(reader);
            }
            this.ready = ready;
            name = option("name");
        }

        String option(String key) {
            return settings.getProperty("pair." + key);
        }

        double number(String key) {
            return Double.parseDouble(settings.getProperty("pair." + key, "0"));
        }

        Map<String, Object> own() {
            return settings.stringPropertyNames().stream().filter(key -> !key.startsWith("pair."))
                .collect(Collectors.toMap(key -> key, key -> (Object) settings.getProperty(key)));
        }

        @Override
        public void run() {
            try {
                switch (option("does")) {
                    case "paced", "synchronous" -> produce();
                    case "consume" -> consume();
                    case "mutate" -> mutate();
                    default -> throw new IllegalArgumentException(option("does"));
                }
            } catch (Throwable error) {
                if (!stopped) {
                    error.printStackTrace();
                    failed(error);
                }
                ready.countDown();
            }
        }

        synchronized void failed(Throwable error) {
            errors.merge(error.getClass().getSimpleName(), 1, Integer::sum);
        }

        synchronized void delivered(long size) {
            long now = System.currentTimeMillis() - startMs;
            deliveredRecords++;
            deliveredBytes += size;
            lastMs = now;
            perSecond.merge((int) (Math.max(now, 0) / 1000), size, Long::sum);
            if (doneMs < 0 && deliveredRecords == wantedRecords) {
                doneMs = now;
            }
        }

        void begin() throws InterruptedException {
            ready.countDown();
            go.await();
        }

        /** Waits for that second of the schedule; false when the run is over. */
        boolean until(double at) throws InterruptedException {
            long left;
            while ((left = startMs + Math.round(at * 1000) - System.currentTimeMillis()) > 0 && !stopped) {
                Thread.sleep(Math.min(left, 200));
            }
            lateMs = Math.max(lateMs, -left);
            return !stopped;
        }

        void watch(Map<MetricName, ? extends Metric> metrics, String metric) {
            for (Map.Entry<MetricName, ? extends Metric> each : metrics.entrySet()) {
                if (each.getKey().name().equals(metric) && each.getValue().metricValue() instanceof Double value
                        && !value.isNaN()) {
                    throttleMaxMs = Math.max(throttleMaxMs, value);
                }
            }
        }

        byte[] value(Random random) {
            int size = (int) number("size");
            byte[] drawn = new byte[option("text") == null ? size : size / 2];
            random.nextBytes(drawn);
            if (option("text") == null) {
                return drawn;
            }
            StringBuilder text = new StringBuilder();
            for (byte each : drawn) {
                text.append(String.format("%02x", each));
            }
            return text.toString().getBytes(StandardCharsets.US_ASCII);
        }

        void produce() throws Exception {
            Map<String, Object> own = own();
            own.put("key.serializer", ByteArraySerializer.class.getName());
            own.put("value.serializer", ByteArraySerializer.class.getName());
            own.put("delivery.timeout.ms", "600000");
            Random random = new Random(name.hashCode());
            boolean synchronous = option("does").equals("synchronous");
            KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(own);
            producer.partitionsFor(option("topic"));
            begin();
            long count = synchronous ? Long.MAX_VALUE : Math.round(seconds * number("per_s"));
            if (!synchronous) {
                wantedRecords = count;
                wantedBytes = count * (long) number("size");
            }
            for (long i = 0; i < count; i++) {
                if (!until(synchronous ? 0 : i / number("per_s"))
                        || synchronous && System.currentTimeMillis() - startMs >= seconds * 1000) {
                    break;
                }
                byte[] value = value(random);
                Integer partition = number("spread") > 0 ? random.nextInt((int) number("spread")) : null;
                var record = new ProducerRecord<byte[], byte[]>(option("topic"), partition, null, value);
                var sent = producer.send(record, (metadata, error) -> {
                    if (error == null) {
                        delivered(value.length);
                    } else {
                        failed(error);
                    }
                });
                if (synchronous) {
                    sent.get();
                    Thread.sleep(Math.round(number("think") * 1000));
                }
                if (i % 10 == 0) {
                    watch(producer.metrics(), "produce-throttle-time-max");
                }
            }
            if (synchronous) {
                wantedRecords = deliveredRecords;
                wantedBytes = deliveredBytes;
                doneMs = lastMs;
            }
            while (!stopped) {
                watch(producer.metrics(), "produce-throttle-time-max");
                Thread.sleep(1_000);
            }
        }

        void consume() throws Exception {
            Map<String, Object> own = own();
            own.put("key.deserializer", ByteArrayDeserializer.class.getName());
            own.put("value.deserializer", ByteArrayDeserializer.class.getName());
            own.put("enable.auto.commit", "false");
            wantedRecords = Long.parseLong(option("expected"));
            KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(own);
            List<TopicPartition> mine = consumer.partitionsFor(option("topic")).stream()
                .map(each -> new TopicPartition(option("topic"), each.partition())).collect(Collectors.toList());
            consumer.assign(mine);
            consumer.seekToBeginning(mine);
            begin();
            until(0);
            long looked = 0;
            while (!stopped) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    if (stopped) {
                        break;
                    }
                    delivered(record.value().length);
                    if (number("think") > 0) {
                        Thread.sleep(Math.round(number("think") * 1000));
                    }
                }
                if (System.currentTimeMillis() - looked > 1_000) {
                    looked = System.currentTimeMillis();
                    watch(consumer.metrics(), "fetch-throttle-time-max");
                }
            }
        }

        void mutate() throws Exception {
            boolean retries = Boolean.parseBoolean(option("retries").toLowerCase());
            int partitions = (int) number("partitions");
            Map<String, Object> own = own();
            own.put("default.api.timeout.ms", "150000");
            own.put("request.timeout.ms", "120000");
            try (Admin admin = Admin.create(own)) {
                admin.describeCluster().nodes().get();
                begin();
                wantedRecords = Math.round(seconds / number("every"));
                for (int i = 0; i < wantedRecords && until(i * number("every")); i++) {
                    try {
                        admin.createTopics(List.of(new NewTopic(name + "-" + i, partitions, (short) 1)),
                            new CreateTopicsOptions().retryOnQuotaViolation(retries)).all().get();
                        delivered(partitions);
                    } catch (ExecutionException error) {
                        failed(error.getCause());
                    }
                }
            }
        }

        synchronized String document() {
            int last = perSecond.keySet().stream().mapToInt(Integer::intValue).max().orElse(-1);
            List<Long> series = new ArrayList<>();
            for (int i = 0; i <= last; i++) {
                series.add(perSecond.getOrDefault(i, 0L));
            }
            String met = errors.entrySet().stream().map(each -> "\"" + each.getKey() + "\": " + each.getValue())
                .collect(Collectors.joining(", "));
            return String.format("{\"name\": \"%s\", \"wanted_records\": %d, \"wanted_bytes\": %d, "
                + "\"delivered_records\": %d, \"delivered_bytes\": %d, \"done_ms\": %s, \"last_ms\": %d, "
                + "\"late_ms\": %d, \"throttle_max_ms\": %d, \"errors\": {%s}, \"per_s\": %s}",
                name, wantedRecords, wantedBytes, deliveredRecords, deliveredBytes, doneMs < 0 ? "null" : "" + doneMs,
                lastMs, lateMs, Math.round(throttleMaxMs), met, series);
        }
    }
}
