import ch.qos.logback.classic.Level;
import ch.qos.logback.classic.Logger;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.streamthoughts.jikkou.core.DefaultApi;
import io.streamthoughts.jikkou.core.ReconciliationContext;
import io.streamthoughts.jikkou.core.ReconciliationMode;
import io.streamthoughts.jikkou.core.config.Configuration;
import io.streamthoughts.jikkou.core.extension.ClassExtensionAliasesGenerator;
import io.streamthoughts.jikkou.core.extension.DefaultExtensionDescriptorFactory;
import io.streamthoughts.jikkou.core.extension.DefaultExtensionFactory;
import io.streamthoughts.jikkou.core.extension.DefaultExtensionRegistry;
import io.streamthoughts.jikkou.core.io.Jackson;
import io.streamthoughts.jikkou.core.io.ResourceDeserializer;
import io.streamthoughts.jikkou.core.io.ResourceLoader;
import io.streamthoughts.jikkou.core.io.reader.ResourceReaderFactory;
import io.streamthoughts.jikkou.core.io.reader.ResourceReaderOptions;
import io.streamthoughts.jikkou.core.io.writer.DefaultResourceWriter;
import io.streamthoughts.jikkou.core.io.writer.ResourceWriter;
import io.streamthoughts.jikkou.core.resource.DefaultResourceRegistry;
import io.streamthoughts.jikkou.kafka.collections.V1KafkaClientQuotaList;
import io.streamthoughts.jikkou.kafka.internals.admin.AdminClientContextFactory;
import io.streamthoughts.jikkou.kafka.models.V1KafkaClientQuota;
import io.streamthoughts.jikkou.kafka.reconciler.AdminClientKafkaQuotaCollector;
import io.streamthoughts.jikkou.kafka.reconciler.AdminClientKafkaQuotaController;
import io.streamthoughts.jikkou.kafka.validation.ClientQuotaValidation;
import io.streamthoughts.jikkou.api.template.JinjaResourceTemplateRenderer;
import java.util.List;
import java.util.Map;
import org.slf4j.LoggerFactory;

/**
 * What `jikkou apply --files FILE` and `jikkou get kafkaclientquotas` do with quotas, by Jikkou's own classes: its
 * command line is not on Maven Central. Arguments: HOST:PORT apply FILE, or HOST:PORT get. Apply prints a line a change.
 */
final class Jikkou {
    public static void main(String[] args) {
        ((Logger) LoggerFactory.getLogger(Logger.ROOT_LOGGER_NAME)).setLevel(Level.OFF);
        var settings = Configuration.from(Map.of("kafka.client", Map.of("bootstrap.servers", args[0])));
        var admin = new AdminClientContextFactory(settings);
        var extensions = new DefaultExtensionRegistry(
                new DefaultExtensionDescriptorFactory(), new ClassExtensionAliasesGenerator());
        var resources = new DefaultResourceRegistry();
        resources.register(V1KafkaClientQuota.class);
        resources.register(V1KafkaClientQuotaList.class);
        ResourceDeserializer.registerKind(V1KafkaClientQuota.class);
        ResourceDeserializer.registerKind(V1KafkaClientQuotaList.class);
        var builder = DefaultApi.builder(new DefaultExtensionFactory(extensions), resources)
                .register(AdminClientKafkaQuotaController.class, () -> new AdminClientKafkaQuotaController(admin))
                .register(AdminClientKafkaQuotaCollector.class, () -> new AdminClientKafkaQuotaCollector(admin))
                .register(ClientQuotaValidation.class, ClientQuotaValidation::new);
        try (var api = builder.build()) {
            if (args[1].equals("get")) {
                var found = api.listResources(V1KafkaClientQuota.class);
                new DefaultResourceWriter().write(ResourceWriter.Format.YAML, found, System.out);
                return;
            }
            ObjectMapper yaml = Jackson.YAML_OBJECT_MAPPER;
            var readers = new ResourceReaderFactory(yaml, new JinjaResourceTemplateRenderer());
            var file = new ResourceLoader(readers, new ResourceReaderOptions()).load(List.of(args[2]));
            var context = ReconciliationContext.builder().dryRun(false).build();
            for (var result : api.reconcile(file, ReconciliationMode.FULL, context).results()) {
                System.out.println(result.status() + " " + result.change().getSpec().getOp());
            }
        }
    }
}
