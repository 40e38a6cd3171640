import java.io.FileReader;
import java.io.Reader;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A share consumer (KIP-932) that reads a topic until stdin ends. Usage: ShareConsumer PROPERTIES TOPIC NAME=VALUE...,
 * where the values are set for its group first.
 *
 * <p>Prints a line for each poll that found records: how many, and the highest delivery count among them.
 */
public class ShareConsumer {
    static volatile boolean stopped;

    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        try (Reader reader = new FileReader(args[0])) {
            properties.load(reader);
        }
        properties.put("key.deserializer", ByteArrayDeserializer.class.getName());
        properties.put("value.deserializer", ByteArrayDeserializer.class.getName());
        configure(properties, Arrays.asList(args).subList(2, args.length));
        Thread reading = new Thread(() -> {
            try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(properties)) {
                read(consumer, args[1]);
            } catch (Throwable error) {
                error.printStackTrace();
                System.exit(1);
            }
        });
        reading.start();
        while (System.in.read() >= 0) {
        }
        stopped = true;
        reading.join(10_000);
        System.exit(0);
    }

    static void configure(Properties properties, List<String> values) throws Exception {
        ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, properties.getProperty("group.id"));
        try (Admin admin = Admin.create(properties)) {
            admin.incrementalAlterConfigs(Map.of(group, values.stream()
                .map(each -> each.split("=", 2))
                .map(each -> new AlterConfigOp(new ConfigEntry(each[0], each[1]), AlterConfigOp.OpType.SET))
                .collect(Collectors.toList()))).all().get();
        }
    }

    static void read(KafkaShareConsumer<byte[], byte[]> consumer, String topic) {
        consumer.subscribe(List.of(topic));
        while (!stopped) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
            int deliveries = 0;
            for (ConsumerRecord<byte[], byte[]> record : records) {
                deliveries = Math.max(deliveries, record.deliveryCount().orElse((short) 0));
            }
            if (!records.isEmpty()) {
                System.out.println(records.count() + " " + deliveries);
            }
        }
    }
}
