import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.message.FetchResponseDataJsonConverter;
import org.apache.kafka.common.message.ProduceRequestData;
import org.apache.kafka.common.message.ProduceRequestDataJsonConverter;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.RequestHeaderDataJsonConverter;
import org.apache.kafka.common.message.ShareFetchResponseData;
import org.apache.kafka.common.message.ShareFetchResponseDataJsonConverter;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.requests.FetchResponse;
import org.apache.kafka.common.requests.ShareFetchResponse;

/**
 * Random produce requests and fetch responses, and empty share fetch responses, with the sizes that Kafka's own classes give them, as JSON lines.
 *
 * <p>Usage: java -cp 'jars/*' RequestSizes.java SEED CASES, where CASES is the number of cases a version. A line is
 * {"api", "version", "header" (produce), "body", "size"}; header and body are as the request log prints them.
 */
public final class RequestSizes {
    private static final String[] NAMES = {"t", "orders", "clicks.by-hour_1", "größe", "日本語", "😀 x", "a".repeat(127), "b".repeat(249)};
    private static final int[] SIZES = {0, 1, 61, 126, 127, 128, 1000, 16382, 16383, 16384, 70000, 2097150, 2097151, 2097152};

    private final Random random;

    private RequestSizes(long seed) {
        random = new Random(seed);
    }

    public static void main(String[] args) throws Exception {
        RequestSizes sizes = new RequestSizes(Long.parseLong(args[0]));
        int cases = Integer.parseInt(args[1]);
        for (short v = ProduceRequestData.LOWEST_SUPPORTED_VERSION; v <= ProduceRequestData.HIGHEST_SUPPORTED_VERSION; v++) {
            for (int i = 0; i < cases; i++) {
                sizes.produce(v);
            }
        }
        for (short v = FetchResponseData.LOWEST_SUPPORTED_VERSION; v <= FetchResponseData.HIGHEST_SUPPORTED_VERSION; v++) {
            for (int i = 0; i < cases; i++) {
                sizes.fetch(v);
            }
        }
        for (short v = ShareFetchResponseData.LOWEST_SUPPORTED_VERSION; v <= ShareFetchResponseData.HIGHEST_SUPPORTED_VERSION; v++) {
            shareFetch(v);
        }
    }

    private void produce(short version) throws Exception {
        RequestHeaderData header = new RequestHeaderData()
            .setRequestApiKey(ApiKeys.PRODUCE.id)
            .setRequestApiVersion(version)
            .setCorrelationId(random.nextInt())
            .setClientId(random.nextInt(5) == 0 ? null : random.nextInt(5) == 0 ? "" : name());
        ProduceRequestData body = new ProduceRequestData()
            .setAcks((short) (random.nextInt(3) - 1))
            .setTimeoutMs(random.nextInt());
        if (version >= 3 && random.nextBoolean()) {
            body.setTransactionalId(random.nextInt(6) == 0 ? "" : name());
        }
        int topics = count();
        for (int t = 0; t < topics; t++) {
            ProduceRequestData.TopicProduceData topic = new ProduceRequestData.TopicProduceData();
            if (version >= 13) {
                // Reached by reflection: clients that stop at version 12 have no such field.
                topic.getClass().getMethod("setTopicId", Uuid.class).invoke(topic, Uuid.randomUuid());
            } else {
                topic.setName(name() + t);
            }
            List<ProduceRequestData.PartitionProduceData> partitions = new ArrayList<>();
            int parts = count();
            for (int p = 0; p < parts; p++) {
                ProduceRequestData.PartitionProduceData partition = new ProduceRequestData.PartitionProduceData().setIndex(p);
                setRecords(partition);
                partitions.add(partition);
            }
            topic.setPartitionData(partitions);
            body.topicData().add(topic);
        }
        ObjectSerializationCache cache = new ObjectSerializationCache();
        short headerVersion = ApiKeys.PRODUCE.requestHeaderVersion(version);
        int size = header.size(cache, headerVersion) + body.size(new ObjectSerializationCache(), version);
        ObjectNode line = line("produce", version, size);
        line.set("header", RequestHeaderDataJsonConverter.write(header, headerVersion, false));
        line.set("body", ProduceRequestDataJsonConverter.write(body, version, false));
        System.out.println(line);
    }

    private void fetch(short version) throws Exception {
        LinkedHashMap<TopicIdPartition, FetchResponseData.PartitionData> partitions = new LinkedHashMap<>();
        int topics = count();
        for (int t = 0; t < topics; t++) {
            Uuid id = version >= 13 ? Uuid.randomUuid() : Uuid.ZERO_UUID;
            String topic = name() + t;
            int parts = 1 + count();
            for (int p = 0; p < parts; p++) {
                partitions.put(new TopicIdPartition(id, new TopicPartition(topic, p)), partition(version));
            }
        }
        // What the broker charges, then what it sends and logs.
        int size = FetchResponse.sizeOf(version, partitions.entrySet().iterator());
        FetchResponseData data = new FetchResponseData().setThrottleTimeMs(random.nextInt(9));
        if (version >= 7) {
            data.setSessionId(random.nextInt()).setErrorCode((short) random.nextInt(9));
        }
        String last = null;
        for (Map.Entry<TopicIdPartition, FetchResponseData.PartitionData> entry : partitions.entrySet()) {
            String topic = entry.getKey().topic();
            if (!topic.equals(last)) {
                data.responses().add(new FetchResponseData.FetchableTopicResponse()
                    .setTopic(topic).setTopicId(entry.getKey().topicId()));
            }
            last = topic;
            data.responses().get(data.responses().size() - 1).partitions().add(entry.getValue());
        }
        int endpoints = version >= 16 && random.nextInt(4) == 0 ? 1 + random.nextInt(3) : 0;
        for (int e = 0; e < endpoints; e++) {
            data.nodeEndpoints().add(new FetchResponseData.NodeEndpoint().setNodeId(e).setHost(name()).setPort(9092)
                .setRack(random.nextBoolean() ? null : name()));
        }
        ObjectNode line = line("fetch", version, size);
        line.set("body", FetchResponseDataJsonConverter.write(data, version, false));
        System.out.println(line);
    }

    private static void shareFetch(short version) {
        ObjectNode line = line("share_fetch", version, ShareFetchResponse.sizeOf(version, Collections.emptyIterator()));
        line.set("body", ShareFetchResponseDataJsonConverter.write(new ShareFetchResponseData(), version));
        System.out.println(line);
    }

    private FetchResponseData.PartitionData partition(short version) throws Exception {
        FetchResponseData.PartitionData partition = new FetchResponseData.PartitionData()
            .setErrorCode((short) random.nextInt(50))
            .setHighWatermark(random.nextLong())
            .setLastStableOffset(random.nextLong())
            .setLogStartOffset(random.nextLong());
        setRecords(partition);
        if (version >= 11) {
            partition.setPreferredReadReplica(random.nextInt(4) - 1);
        }
        if (version >= 4) {
            int kind = random.nextInt(4);
            List<FetchResponseData.AbortedTransaction> aborted = kind == 0 ? null : new ArrayList<>();
            int transactions = kind == 3 ? (random.nextInt(20) == 0 ? 126 + random.nextInt(4) : 1 + random.nextInt(5)) : 0;
            for (int a = 0; a < transactions; a++) {
                aborted.add(new FetchResponseData.AbortedTransaction().setProducerId(random.nextLong()).setFirstOffset(a));
            }
            partition.setAbortedTransactions(aborted);
        }
        if (version >= 12) {
            if (random.nextInt(4) == 0) {
                partition.divergingEpoch().setEpoch(random.nextInt(9)).setEndOffset(random.nextLong());
            }
            if (random.nextInt(4) == 0) {
                partition.currentLeader().setLeaderId(random.nextInt(9)).setLeaderEpoch(random.nextInt(9));
            }
            if (random.nextInt(4) == 0) {
                partition.snapshotId().setEpoch(random.nextInt(9)).setEndOffset(random.nextLong());
            }
        }
        return partition;
    }

    /** Sets null or some records. By reflection: the package of the record classes differs between releases. */
    private void setRecords(Object partition) throws Exception {
        if (random.nextInt(8) == 0) {
            return;
        }
        for (Method setter : partition.getClass().getMethods()) {
            if (setter.getName().equals("setRecords")) {
                Class<?> base = setter.getParameterTypes()[0];
                Class<?> records = Class.forName(base.getPackageName() + ".MemoryRecords");
                Method of = records.getMethod("readableRecords", ByteBuffer.class);
                setter.invoke(partition, of.invoke(null, ByteBuffer.wrap(BUFFER, 0, size())));
            }
        }
    }

    private static final byte[] BUFFER = new byte[2097152];

    private int size() {
        return random.nextBoolean() ? SIZES[random.nextInt(SIZES.length)] : random.nextInt(40000);
    }

    private int count() {
        int kind = random.nextInt(40);
        return kind == 0 ? 0 : kind == 1 ? 126 + random.nextInt(4) : 1 + random.nextInt(3);
    }

    private String name() {
        return NAMES[random.nextInt(NAMES.length)];
    }

    private static ObjectNode line(String api, short version, int size) {
        ObjectNode line = com.fasterxml.jackson.databind.node.JsonNodeFactory.instance.objectNode();
        line.put("api", api);
        line.put("version", version);
        line.put("size", size);
        return line;
    }
}
