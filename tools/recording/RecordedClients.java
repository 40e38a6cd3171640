import java.io.FileReader;
import java.io.Reader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreatePartitionsOptions;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.DeleteTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Java clients of a recording, each in a thread of its own, until stdin ends. An argument is a client:
 * "produce PROPERTIES TOPIC BYTES" sends records of that size as fast as it can, "consume PROPERTIES TOPIC PARTITIONS"
 * reads those partitions (comma-separated) from the beginning, "mutate PROPERTIES PREFIX WAIT_MS RETRIES" creates
 * topics, adds partitions and deletes topics, with that pause between requests; RETRIES is whether the client sends
 * again, by itself, what the quota rejected.
 */
public class RecordedClients {
    static volatile boolean stopped;

    public static void main(String[] args) throws Exception {
        List<Thread> threads = new ArrayList<>();
        for (String arg : args) {
            String[] words = arg.split(" ");
            Properties properties = new Properties();
            try (Reader reader = new FileReader(words[1])) {
                properties.load(reader);
            }
            threads.add(start(() -> {
                switch (words[0]) {
                    case "produce" -> produce(properties, words[2], Integer.parseInt(words[3]));
                    case "consume" -> consume(properties, words[2], words[3]);
                    case "mutate" -> mutate(
                        properties, words[2], Long.parseLong(words[3]), Boolean.parseBoolean(words[4]));
                    default -> throw new IllegalArgumentException(words[0]);
                }
                return null;
            }));
        }
        while (System.in.read() >= 0) {
        }
        stopped = true;
        for (Thread thread : threads) {
            thread.join(10_000);
        }
        System.exit(0); // what a client has not sent yet does not count
    }

    static Thread start(Callable<Void> client) {
        Thread thread = new Thread(() -> {
            try {
                client.call();
            } catch (Throwable error) {
                error.printStackTrace();
                System.exit(1);
            }
        });
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    static void produce(Properties properties, String topic, int bytes) {
        properties.put("key.serializer", ByteArraySerializer.class.getName());
        properties.put("value.serializer", ByteArraySerializer.class.getName());
        properties.put("buffer.memory", "200000");
        properties.put("linger.ms", "5");
        Random random = new Random(1);
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties);
        while (!stopped) {
            byte[] value = new byte[bytes / 2 + random.nextInt(bytes)];
            random.nextBytes(value);
            producer.send(new ProducerRecord<>(topic, value));
        }
    }

    static void consume(Properties properties, String topic, String partitions) {
        properties.put("key.deserializer", ByteArrayDeserializer.class.getName());
        properties.put("value.deserializer", ByteArrayDeserializer.class.getName());
        properties.put("max.partition.fetch.bytes", "30000");
        properties.put("fetch.max.bytes", "60000");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties)) {
            List<TopicPartition> mine = Arrays.stream(partitions.split(","))
                .map(partition -> new TopicPartition(topic, Integer.parseInt(partition)))
                .collect(Collectors.toList());
            consumer.assign(mine);
            consumer.seekToBeginning(mine);
            while (!stopped) {
                consumer.poll(java.time.Duration.ofMillis(200));
            }
        }
    }

    static void mutate(Properties properties, String prefix, long wait, boolean retries) throws Exception {
        Random random = new Random(prefix.hashCode());
        List<String> existing = new ArrayList<>();
        try (Admin admin = Admin.create(properties)) {
            for (int round = 0; !stopped; round++) {
                Map<String, KafkaFuture<Void>> answers = new HashMap<>();
                int what = existing.size() < 4 ? 0 : random.nextInt(5);
                if (what <= 1) {
                    boolean validate = random.nextInt(8) == 0;
                    List<NewTopic> topics = new ArrayList<>();
                    for (int i = random.nextInt(4); i >= 0; i--) {
                        String name = prefix + "-" + round + "-" + i;
                        switch (random.nextInt(6)) {
                            case 0 -> topics.add(new NewTopic(name, Map.of(0, List.of(2), 1, List.of(3))));
                            case 1 -> topics.add(new NewTopic(name, java.util.Optional.empty(), java.util.Optional.empty()));
                            case 2 -> topics.add(new NewTopic(name + "!", 1, (short) 1)); // no name for a topic
                            default -> topics.add(new NewTopic(name, 1 + random.nextInt(4), (short) 1));
                        }
                    }
                    answers.putAll(admin.createTopics(topics, new CreateTopicsOptions().validateOnly(validate)
                        .retryOnQuotaViolation(retries)).values());
                    await(answers, done -> existing.addAll(validate ? List.of() : done));
                } else if (what == 2) {
                    Map<String, NewPartitions> more = new HashMap<>();
                    for (int i = random.nextInt(3); i >= 0; i--) {
                        String name = existing.get(random.nextInt(existing.size()));
                        more.put(name, NewPartitions.increaseTo(2 + random.nextInt(6))); // in part not an increase
                    }
                    answers.putAll(admin.createPartitions(more,
                        new CreatePartitionsOptions().retryOnQuotaViolation(retries)).values());
                    await(answers, done -> { });
                } else {
                    List<String> names = IntStream.range(0, 1 + random.nextInt(3))
                        .mapToObj(i -> existing.get(random.nextInt(existing.size()))).distinct()
                        .collect(Collectors.toList());
                    answers.putAll(admin.deleteTopics(names,
                        new DeleteTopicsOptions().retryOnQuotaViolation(retries)).topicNameValues());
                    await(answers, existing::removeAll);
                }
                Thread.sleep(wait / 2 + random.nextInt((int) wait));
            }
        }
    }

    static void await(Map<String, KafkaFuture<Void>> answers, java.util.function.Consumer<List<String>> then)
            throws Exception {
        List<String> done = new ArrayList<>();
        for (Map.Entry<String, KafkaFuture<Void>> answer : answers.entrySet()) {
            try {
                answer.getValue().get();
                done.add(answer.getKey());
            } catch (ExecutionException error) {
                // Rejected, or wrong on purpose: it is the log that tells.
            }
        }
        then.accept(done);
    }
}
