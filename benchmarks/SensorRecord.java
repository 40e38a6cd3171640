import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.RandomAccessFile;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteOrder;
import java.nio.LongBuffer;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.QuotaViolationException;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.metrics.stats.Rate;

/**
 * Kafka's own sensor over a sequence of produce requests: SensorRecord EVENTS DELAYS. EVENTS has the times and then the
 * sizes as little-endian longs. For each line "SAMPLES WINDOW_MS LIMIT" on stdin the whole sequence goes through a new
 * sensor; printed are the nanoseconds of CPU time, and DELAYS gets the delay of each event as a little-endian long.
 */
public class SensorRecord {
    public static void main(String[] args) throws Exception {
        long[] events = read(args[0]);
        int count = events.length / 2;
        long[] delays = new long[count];
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] f = line.split(" ");
            try (Metrics metrics = new Metrics()) {
                MetricConfig config = new MetricConfig()
                    .samples(Integer.parseInt(f[0]))
                    .timeWindow(Long.parseLong(f[1]), TimeUnit.MILLISECONDS)
                    .quota(new Quota(Double.parseDouble(f[2]), true));
                Sensor sensor = metrics.sensor("Produce-alice:app", new MetricConfig(), 3600);
                sensor.add(new MetricName("byte-rate", "Produce", "", Map.of("user", "alice")), new Rate(), config);
                long started = threads.getCurrentThreadCpuTime();
                run(sensor, events, delays, count);
                System.out.println(threads.getCurrentThreadCpuTime() - started);
            }
            write(args[1], delays);
            System.out.println("written");
        }
    }

    /** What ClientQuotaManager.recordAndGetThrottleTimeMs does once it has found the sensor. */
    private static void run(Sensor sensor, long[] events, long[] delays, int count) {
        for (int i = 0; i < count; i++) {
            long now = events[i];
            try {
                sensor.record(events[count + i], now, true);
                delays[i] = 0;
            } catch (QuotaViolationException violation) {
                delays[i] = (int) throttleTime(violation, now);
            }
        }
    }

    /** QuotaUtils.throttleTime, which older releases have in another jar. */
    private static long throttleTime(QuotaViolationException violation, long now) {
        KafkaMetric metric = violation.metric();
        double difference = violation.value() - violation.bound();
        return Math.round(difference / violation.bound() * ((Rate) metric.measurable()).windowSize(metric.config(), now));
    }

    private static long[] read(String name) throws Exception {
        try (RandomAccessFile file = new RandomAccessFile(name, "r")) {
            LongBuffer buffer = map(file, FileChannel.MapMode.READ_ONLY, file.length());
            long[] values = new long[buffer.remaining()];
            buffer.get(values);
            return values;
        }
    }

    private static void write(String name, long[] values) throws Exception {
        try (RandomAccessFile file = new RandomAccessFile(name, "rw")) {
            map(file, FileChannel.MapMode.READ_WRITE, 8L * values.length).put(values);
        }
    }

    private static LongBuffer map(RandomAccessFile file, FileChannel.MapMode mode, long size) throws Exception {
        MappedByteBuffer bytes = file.getChannel().map(mode, 0, size);
        return bytes.order(ByteOrder.LITTLE_ENDIAN).asLongBuffer();
    }
}
