import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.PrintWriter;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
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
 * Answers with Kafka's own metrics classes. One command a line on stdin, all times in ms:
 *
 *   new ID SAMPLES WINDOW_MS LIMIT CAP_MS        a sensor; LIMIT "-" is none, CAP_MS "-" is no cap
 *   quota ID LIMIT                               changes the limit
 *   produce ID T BYTES | fetch ID T BYTES | request ID T NANOS     checked: prints DELAY RATE WINDOW
 *   network ID T NANOS                           recorded only
 *   produce2 BYTES_ID REQUEST_ID T BYTES NANOS ACKS                prints BANDWIDTH_DELAY REQUEST_DELAY
 *   fetch2 BYTES_ID REQUEST_ID T BYTES NANOS                       prints BANDWIDTH_DELAY REQUEST_DELAY
 *
 * A delayed fetch is recorded again with the opposite sign, as ClientQuotaManager.unrecordQuotaSensor does.
 */
public class MetricsOracle {
    private static final double PERCENT_PER_NANO = 100.0 / TimeUnit.SECONDS.toNanos(1);
    private static final MethodHandle THROTTLE_TIME = quotaUtils("throttleTime", long.class);
    private static final MethodHandle BOUNDED = quotaUtils("boundedThrottleTime", long.class, long.class);

    private static final class Counter {
        final int samples;
        final long windowMs;
        final Long capMs;
        final Sensor sensor;
        final Rate rate = new Rate();
        final KafkaMetric metric;

        Counter(Metrics metrics, String id, int samples, long windowMs, String limit, String cap) {
            this.samples = samples;
            this.windowMs = windowMs;
            this.capMs = cap.equals("-") ? null : Long.valueOf(cap);
            MetricName name = new MetricName("rate-" + id, "oracle", "", Map.of());
            MetricConfig config = config(limit);
            this.sensor = metrics.sensor("sensor-" + id, config);
            this.sensor.add(name, rate, config);
            this.metric = metrics.metric(name);
        }

        MetricConfig config(String limit) {
            double bound = limit.equals("-") ? (double) Long.MAX_VALUE : Double.parseDouble(limit);
            return new MetricConfig()
                .samples(samples)
                .timeWindow(windowMs, TimeUnit.MILLISECONDS)
                .quota(new Quota(bound, true));
        }

        int check(double value, long now) throws Throwable {
            try {
                sensor.record(value, now, true);
                return 0;
            } catch (QuotaViolationException violation) {
                long delay = capMs == null
                    ? (long) THROTTLE_TIME.invoke(violation, now)
                    : (long) BOUNDED.invoke(violation, (long) capMs, now);
                return (int) delay;
            }
        }

        String readout(long now) {
            return rate.measure(metric.config(), now) + " " + rate.windowSize(metric.config(), now);
        }
    }

    public static void main(String[] args) throws Throwable {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintWriter out = new PrintWriter(new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8)));
        Metrics metrics = new Metrics();
        Map<String, Counter> counters = new HashMap<>();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] f = line.split(" ");
            Counter counter = counters.get(f[1]);
            switch (f[0]) {
                case "new" -> counters.put(
                    f[1], new Counter(metrics, f[1], Integer.parseInt(f[2]), Long.parseLong(f[3]), f[4], f[5]));
                case "quota" -> counter.metric.config(counter.config(f[2]));
                case "produce", "fetch", "request" -> {
                    long now = Long.parseLong(f[2]);
                    long amount = Long.parseLong(f[3]);
                    int delay = counter.check(f[0].equals("request") ? amount * PERCENT_PER_NANO : amount, now);
                    out.println(delay + " " + counter.readout(now));
                    if (f[0].equals("fetch") && delay > 0) counter.sensor.record(-(double) amount, now, false);
                }
                case "network" ->
                    counter.sensor.record(Long.parseLong(f[3]) * PERCENT_PER_NANO, Long.parseLong(f[2]), false);
                case "produce2" -> {
                    long now = Long.parseLong(f[3]);
                    int bandwidth = counter.check(Long.parseLong(f[4]), now);
                    int request = f[6].equals("0")
                        ? 0 : counters.get(f[2]).check(Long.parseLong(f[5]) * PERCENT_PER_NANO, now);
                    out.println(bandwidth + " " + request);
                }
                case "fetch2" -> {
                    long now = Long.parseLong(f[3]);
                    long bytes = Long.parseLong(f[4]);
                    int request = counters.get(f[2]).check(Long.parseLong(f[5]) * PERCENT_PER_NANO, now);
                    int bandwidth = counter.check(bytes, now);
                    if (Math.max(bandwidth, request) > 0) counter.sensor.record(-(double) bytes, now, false);
                    out.println(bandwidth + " " + request);
                }
                default -> throw new IOException("unknown command: " + line);
            }
        }
        out.flush();
    }

    /** Kafka's own delay where the jar has it (4.x, server-common); before, it was Scala in core: the same formula. */
    private static MethodHandle quotaUtils(String name, Class<?>... times) {
        try {
            MethodType type = MethodType.methodType(long.class, QuotaViolationException.class, times);
            MethodHandles.Lookup lookup = MethodHandles.lookup();
            try {
                return lookup.findStatic(Class.forName("org.apache.kafka.server.quota.QuotaUtils"), name, type);
            } catch (ClassNotFoundException older) {
                return lookup.findStatic(MetricsOracle.class, name, type);
            }
        } catch (ReflectiveOperationException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    static long throttleTime(QuotaViolationException violation, long now) {
        double difference = violation.value() - violation.bound();
        Rate rate = (Rate) violation.metric().measurable();
        return Math.round(difference / violation.bound() * rate.windowSize(violation.metric().config(), now));
    }

    static long boundedThrottleTime(QuotaViolationException violation, long cap, long now) {
        return Math.min(throttleTime(violation, now), cap);
    }
}
