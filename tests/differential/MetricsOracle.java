import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.PrintWriter;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.QuotaViolationException;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;
import org.apache.kafka.common.utils.Time;

/**
 * Answers with Kafka's own metrics classes. One command a line on stdin, all times in ms:
 *
 *   new ID SAMPLES WINDOW_MS LIMIT CAP_MS EXPIRES      a sensor; LIMIT "-" is none, CAP_MS "-" is no cap, EXPIRES 1:
 *                                                dropped after an idle hour
 *   quota ID LIMIT                               changes the limit
 *   produce ID T BYTES | fetch ID T BYTES | request ID T NANOS     checked: prints DELAY RATE WINDOW
 *   network ID T NANOS                           recorded only
 *   produce2 BYTES_ID REQUEST_ID T BYTES NANOS ACKS                prints BANDWIDTH_DELAY REQUEST_DELAY
 *   fetch2 BYTES_ID REQUEST_ID T BYTES NANOS                       prints BANDWIDTH_DELAY REQUEST_DELAY
 *   connect ID T                                 checked: prints DELAY RATE WINDOW
 *   unrecord ID T                                a connection is taken back
 *   bucket ID SAMPLES WINDOW_MS LIMIT EXPIRES    a sensor of mutations
 *   strict ID T WAITED PARTITIONS... | permissive ID T WAITED PARTITIONS...
 *                          prints DELAY TOKENS ERROR..., DELAY of the response WAITED ms later, ERROR "-" where accepted
 *
 *   end                                          prints all answers so far and "end", and forgets the sensors
 *
 * A delayed fetch is recorded again with the opposite sign, as ClientQuotaManager.unrecordQuotaSensor does.
 */
public class MetricsOracle {
    private static final double PERCENT_PER_NANO = 100.0 / TimeUnit.SECONDS.toNanos(1);
    private static final MethodHandle CHECK = check();

    private static final class Counter {
        final Metrics metrics;
        final Clock clock;
        final MetricName name;
        final int samples;
        final long windowMs;
        final Long capMs;
        final boolean expires;
        String limit;
        Sensor sensor;
        Rate rate;

        Counter(Metrics metrics, Clock clock, String[] f) {
            this.metrics = metrics;
            this.clock = clock;
            this.name = new MetricName("rate-" + f[1], "oracle", "", Map.of());
            this.samples = Integer.parseInt(f[2]);
            this.windowMs = Long.parseLong(f[3]);
            this.limit = f[4];
            this.capMs = f[5].equals("-") ? null : Long.valueOf(f[5]);
            this.expires = f[6].equals("1");
        }

        void limit(String changed) {
            limit = changed;
            if (sensor != null) metrics.metric(name).config(config(samples, windowMs, limit));
        }

        /** ClientQuotaManager.getOrCreateQuotaSensors, after the task that removes expired sensors ran. */
        void find(long now) {
            clock.now = now;
            if (sensor != null && expires && sensor.hasExpired()) {
                metrics.removeSensor(sensor.name());
                sensor = null;
            }
            if (sensor == null) {
                sensor = metrics.sensor("sensor-" + name.name(), new MetricConfig(), 3600);
                rate = new Rate();
                sensor.add(name, rate, config(samples, windowMs, limit));
            }
        }

        void record(double value, long now) {
            find(now);
            sensor.record(value, now, false);
        }

        int check(double value, long now) throws Throwable {
            find(now);
            return (int) CHECK.invoke(sensor, value, now, capMs);
        }

        String readout(long now) {
            MetricConfig config = metrics.metric(name).config();
            return rate.measure(config, now) + " " + rate.windowSize(config, now);
        }
    }

    private static MetricConfig config(int samples, long windowMs, String limit) {
        double bound = limit.equals("-") ? (double) Long.MAX_VALUE : Double.parseDouble(limit);
        return new MetricConfig()
            .samples(samples)
            .timeWindow(windowMs, TimeUnit.MILLISECONDS)
            .quota(new Quota(bound, true));
    }

    /** The clock: whatever the command in hand says. */
    private static final class Clock implements Time {
        long now;

        public long milliseconds() {
            return now;
        }

        public long nanoseconds() {
            return TimeUnit.MILLISECONDS.toNanos(now);
        }

        public void sleep(long ms) {
            throw new UnsupportedOperationException();
        }

        public void waitObject(Object object, Supplier<Boolean> condition, long deadline) {
            throw new UnsupportedOperationException();
        }
    }

    /** The sensor of ControllerMutationQuotaManager, without the rate that is only displayed. */
    private static final class Bucket {
        final Metrics metrics;
        final Clock clock;
        final MetricName name;
        final int samples;
        final long windowMs;
        final boolean expires;
        String limit;
        Sensor sensor;

        Bucket(Metrics metrics, Clock clock, String id, int samples, long windowMs, String limit, boolean expires) {
            this.metrics = metrics;
            this.clock = clock;
            this.name = new MetricName("tokens-" + id, "oracle", "", Map.of());
            this.samples = samples;
            this.windowMs = windowMs;
            this.limit = limit;
            this.expires = expires;
        }

        void limit(String changed) {
            limit = changed;
            if (sensor != null) metrics.metric(name).config(config(samples, windowMs, limit));
        }

        /** ClientQuotaManager.getOrCreateQuotaSensors, after the task that removes expired sensors ran. */
        void find() {
            if (sensor != null && expires && sensor.hasExpired()) {
                metrics.removeSensor(sensor.name());
                sensor = null;
            }
            if (sensor == null) {
                sensor = metrics.sensor("sensor-" + name.name(), new MetricConfig(), 3600);
                sensor.add(name, new TokenBucket(), config(samples, windowMs, limit));
            }
        }

        String request(boolean strict, long now, long waited, String[] f, int first) throws Exception {
            clock.now = now;
            find();
            MutationQuota quota = KAFKAS_QUOTAS ? new KafkasQuota(strict, clock, sensor) : new RestatedQuota(strict, clock, sensor);
            StringBuilder errors = new StringBuilder();
            for (int i = first; i < f.length; i++) {
                Integer error = quota.record(Double.parseDouble(f[i]));
                errors.append(' ').append(error == null ? "-" : error.toString());
            }
            double tokens = (double) metrics.metric(name).metricValue();
            clock.now = now + waited;
            return quota.throttleTime() + " " + tokens + errors;
        }
    }

    private interface MutationQuota {
        /** The delay in the error, null when accepted. */
        Integer record(double partitions) throws Exception;

        /** The raw 32 bits, as before these classes were Java. */
        int throttleTime() throws Exception;
    }

    private static final boolean KAFKAS_QUOTAS = exists("org.apache.kafka.server.quota.StrictControllerMutationQuota");

    private static boolean exists(String name) {
        try {
            Class.forName(name);
            return true;
        } catch (ClassNotFoundException absent) {
            return false;
        }
    }

    /** Kafka's own strict and permissive quotas (4.x, server). */
    private static final class KafkasQuota implements MutationQuota {
        final Object quota;
        final Clock clock;
        long recorded;

        KafkasQuota(boolean strict, Clock clock, Sensor sensor) throws Exception {
            String name = "org.apache.kafka.server.quota." + (strict ? "Strict" : "Permissive") + "ControllerMutationQuota";
            Constructor<?> constructor = Class.forName(name).getConstructor(Time.class, Sensor.class);
            this.quota = constructor.newInstance(clock, sensor);
            this.clock = clock;
        }

        public Integer record(double partitions) throws Exception {
            recorded = clock.now;
            try {
                quota.getClass().getMethod("record", double.class).invoke(quota, partitions);
                return null;
            } catch (InvocationTargetException thrown) {
                return ((ThrottlingQuotaExceededException) thrown.getCause()).throttleTimeMs();
            }
        }

        public int throttleTime() throws Exception {
            Field last = quota.getClass().getSuperclass().getDeclaredField("lastThrottleTimeMs");
            last.setAccessible(true);
            int left = (int) Math.max(0, last.getLong(quota) - (clock.now - recorded));
            int told = (int) quota.getClass().getMethod("throttleTime").invoke(quota);
            if (told != Math.max(0, left)) throw new IllegalStateException("throttleTime is " + told + ", not " + left);
            return left;
        }
    }

    /** The same where it was Scala, in core. */
    private static final class RestatedQuota implements MutationQuota {
        final boolean strict;
        final Clock clock;
        final Sensor sensor;
        long last;
        long recorded;

        RestatedQuota(boolean strict, Clock clock, Sensor sensor) {
            this.strict = strict;
            this.clock = clock;
            this.sensor = sensor;
        }

        public Integer record(double partitions) {
            try {
                if (strict) sensor.checkQuotas(clock.now);
                sensor.record(partitions, clock.now, !strict);
                return null;
            } catch (QuotaViolationException violation) {
                last = Math.round(-violation.value() / violation.bound() * 1000);
                recorded = clock.now;
                return strict ? (int) last : null;
            }
        }

        public int throttleTime() {
            return (int) Math.max(0, last - (clock.now - recorded));
        }
    }

    public static void main(String[] args) throws Throwable {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintWriter out = new PrintWriter(new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8)));
        Clock clock = new Clock();
        Metrics metrics = new Metrics(clock);
        Map<String, Counter> counters = new HashMap<>();
        Map<String, Bucket> buckets = new HashMap<>();
        StringBuilder answers = new StringBuilder(); // nothing is printed while commands come in: both sides would block
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            if (line.equals("end")) {
                out.print(answers.append("end\n"));
                out.flush();
                answers.setLength(0);
                counters.clear();
                buckets.clear();
                metrics.close();
                metrics = new Metrics(clock);
                continue;
            }
            String[] f = line.split(" ");
            Counter counter = counters.get(f[1]);
            switch (f[0]) {
                case "new" -> counters.put(f[1], new Counter(metrics, clock, f));
                case "bucket" -> buckets.put(f[1], new Bucket(
                    metrics, clock, f[1], Integer.parseInt(f[2]), Long.parseLong(f[3]), f[4], f[5].equals("1")));
                case "quota" -> {
                    if (counter == null) buckets.get(f[1]).limit(f[2]);
                    else counter.limit(f[2]);
                }
                case "strict", "permissive" -> answer(answers, buckets.get(f[1]).request(
                    f[0].equals("strict"), Long.parseLong(f[2]), Long.parseLong(f[3]), f, 4));
                case "connect" -> {
                    long now = Long.parseLong(f[2]);
                    answer(answers, counter.check(1.0, now) + " " + counter.readout(now));
                }
                case "unrecord" -> counter.record(-1.0, Long.parseLong(f[2]));
                case "produce", "fetch", "request" -> {
                    long now = Long.parseLong(f[2]);
                    long amount = Long.parseLong(f[3]);
                    int delay = counter.check(f[0].equals("request") ? amount * PERCENT_PER_NANO : amount, now);
                    answer(answers, delay + " " + counter.readout(now));
                    if (f[0].equals("fetch") && delay > 0) counter.record(-(double) amount, now);
                }
                case "network" ->
                    counter.record(Long.parseLong(f[3]) * PERCENT_PER_NANO, Long.parseLong(f[2]));
                case "produce2" -> {
                    long now = Long.parseLong(f[3]);
                    int bandwidth = counter.check(Long.parseLong(f[4]), now);
                    int request = f[6].equals("0")
                        ? 0 : counters.get(f[2]).check(Long.parseLong(f[5]) * PERCENT_PER_NANO, now);
                    answer(answers, bandwidth + " " + request);
                }
                case "fetch2" -> {
                    long now = Long.parseLong(f[3]);
                    long bytes = Long.parseLong(f[4]);
                    int request = counters.get(f[2]).check(Long.parseLong(f[5]) * PERCENT_PER_NANO, now);
                    int bandwidth = counter.check(bytes, now);
                    if (Math.max(bandwidth, request) > 0) counter.record(-(double) bytes, now);
                    answer(answers, bandwidth + " " + request);
                }
                default -> throw new IOException("unknown command: " + line);
            }
        }
        System.exit(0); // a manager's thread would keep the process
    }

    private static void answer(StringBuilder answers, String line) {
        answers.append(line).append('\n');
    }

    /** Kafka's own manager where it is Java (4.x); before, it was Scala in core: restated. */
    private static MethodHandle check() {
        try {
            MethodType type = MethodType.methodType(int.class, Sensor.class, double.class, long.class, Long.class);
            MethodHandles.Lookup lookup = MethodHandles.lookup();
            try {
                return lookup.findStatic(Class.forName("KafkasManager"), "check", type);
            } catch (ClassNotFoundException older) {
                return lookup.findStatic(MetricsOracle.class, "restated", type);
            }
        } catch (ReflectiveOperationException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    static int restated(Sensor sensor, double value, long now, Long capMs) {
        try {
            sensor.record(value, now, true);
            return 0;
        } catch (QuotaViolationException violation) {
            double difference = violation.value() - violation.bound();
            Rate rate = (Rate) violation.metric().measurable();
            double windowMs = rate.windowSize(violation.metric().config(), now);
            long delay = Math.round(difference / violation.bound() * windowMs);
            return (int) (capMs == null ? delay : Math.min(delay, capMs));
        }
    }
}
