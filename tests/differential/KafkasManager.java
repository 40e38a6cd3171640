import java.util.Map;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.QuotaViolationException;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.network.Session;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import org.apache.kafka.server.quota.ClientQuotaManager;
import org.apache.kafka.server.quota.ClientSensors;
import org.apache.kafka.server.quota.QuotaType;
import org.apache.kafka.server.quota.QuotaUtils;

/** Kafka's own ClientQuotaManager: it records in the sensor that it is given, and makes the delay of a response. */
public class KafkasManager extends ClientQuotaManager {
    private static final KafkasManager MANAGER = new KafkasManager(new Metrics());
    private final Sensor throttleTimes;
    private Sensor sensor;
    private Long capMs;

    private KafkasManager(Metrics metrics) {
        super(new ClientQuotaManagerConfig(), metrics, QuotaType.PRODUCE, Time.SYSTEM, "");
        throttleTimes = metrics.sensor("throttle times");
    }

    /** The delay; a cap of null is none but the manager's own. */
    public static int check(Sensor sensor, double value, long now, Long capMs) {
        MANAGER.sensor = sensor;
        MANAGER.capMs = capMs;
        return MANAGER.recordAndGetThrottleTimeMs(null, "", value, now);
    }

    @Override
    public ClientSensors getOrCreateQuotaSensors(Session session, String clientId) {
        return new ClientSensors(Map.of(), sensor, throttleTimes);
    }

    /** With a cap as ClientRequestQuotaManager, which is in the core jar up to 4.3. */
    @Override
    protected long throttleTime(QuotaViolationException violation, long now) {
        return capMs == null ? super.throttleTime(violation, now) : QuotaUtils.boundedThrottleTime(violation, capMs, now);
    }
}
