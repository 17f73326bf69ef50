import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Random;
import java.util.function.BiFunction;
import java.util.function.Supplier;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.ShareAcknowledgeRequestData;
import org.apache.kafka.common.message.ShareAcknowledgeRequestDataJsonConverter;
import org.apache.kafka.common.message.ShareAcknowledgeResponseData;
import org.apache.kafka.common.message.ShareAcknowledgeResponseDataJsonConverter;
import org.apache.kafka.common.message.ShareFetchRequestData;
import org.apache.kafka.common.message.ShareFetchRequestDataJsonConverter;
import org.apache.kafka.common.message.ShareFetchResponseData;
import org.apache.kafka.common.message.ShareFetchResponseDataJsonConverter;
import org.apache.kafka.common.message.ShareGroupHeartbeatRequestData;
import org.apache.kafka.common.message.ShareGroupHeartbeatRequestDataJsonConverter;
import org.apache.kafka.common.message.ShareGroupHeartbeatResponseData;
import org.apache.kafka.common.message.ShareGroupHeartbeatResponseDataJsonConverter;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.record.internal.MemoryRecords;

/**
 * Writes the calls of share consumers as Kafka's generated classes write them: for each message and version as many random
 * values as asked for, a line of JSON each, with the message, its version, the bytes and Kafka's own JSON of the fields.
 * Every fourth has tagged fields that nobody knows. Arguments: a seed, and the number of values.
 */
public class ConsumerCalls {
    /** Codes that a gateway may send, because others are replaced where they are encoded. */
    private static final short[] FETCH = {2, 3, 6, 9, 29, 56, 75, 78, 100, 103, -1};
    private static final short[] ACKNOWLEDGE = {3, 6, 15, 29, 42, 100, 121, -1};
    private static final short[] REQUEST = {30, 42, 122, 123, 133, -1};
    private static final short[] HEARTBEAT = {14, 15, 16, 25, 29, 30, 42, 81, 110};
    private static final String[] CHARACTERS = {"a", "Z", "7", "-", ":", " ", "\0", "\"", "\u00fc", "\u20ac", "\ud83d\udc1f"};

    private final PrintStream lines = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private final Random random;
    private boolean isTagged;

    private ConsumerCalls(long seed) {
        random = new Random(seed);
    }

    public static void main(String[] arguments) throws Exception {
        ConsumerCalls calls = new ConsumerCalls(Long.parseLong(arguments[0]));
        int count = Integer.parseInt(arguments[1]);
        for (short version = 1; version <= 2; version++) {
            short asked = version;
            calls.write(count, asked, () -> calls.fetchRequest(asked), ShareFetchRequestDataJsonConverter::write);
            calls.write(count, asked, calls::fetchResponse, ConsumerCalls::withRecords);
            calls.write(count, asked, () -> calls.acknowledgeRequest(asked), ShareAcknowledgeRequestDataJsonConverter::write);
            calls.write(count, asked, () -> calls.acknowledgeResponse(asked), ShareAcknowledgeResponseDataJsonConverter::write);
        }
        calls.write(count, (short) 1, calls::heartbeatRequest, ShareGroupHeartbeatRequestDataJsonConverter::write);
        calls.write(count, (short) 1, calls::heartbeatResponse, ShareGroupHeartbeatResponseDataJsonConverter::write);
    }

    private <T extends Message> void write(int count, short version, Supplier<T> make, BiFunction<T, Short, JsonNode> toJson)
            throws Exception {
        for (int number = 0; number < count; number++) {
            isTagged = number % 4 == 3;
            T message = tagged(make.get());
            JsonNode fields = toJson.apply(message, version);
            ByteBuffer buffer = MessageUtil.toByteBufferAccessor(message, version).buffer();
            byte[] bytes = new byte[buffer.remaining()];
            buffer.duplicate().get(bytes);
            Message read = message.getClass().getConstructor().newInstance();
            read.read(new ByteBufferAccessor(buffer), version);
            if (!read.equals(message)) {
                throw new IllegalStateException("Kafka reads something else than it wrote: " + read + " for " + message);
            }
            ObjectNode line = JsonNodeFactory.instance.objectNode();
            String name = message.getClass().getSimpleName();
            line.put("message", name.substring(0, name.length() - "Data".length()));
            line.put("version", version);
            line.put("tagged", isTagged);
            line.put("hex", HexFormat.of().formatHex(bytes));
            line.set("fields", fields);
            lines.println(line);
        }
    }

    /** Kafka's own JSON tells the size of records alone. */
    private static JsonNode withRecords(ShareFetchResponseData message, short version) {
        JsonNode fields = ShareFetchResponseDataJsonConverter.write(message, version);
        int topicNumber = 0;
        for (ShareFetchResponseData.ShareFetchableTopicResponse topic : message.responses()) {
            int number = 0;
            for (ShareFetchResponseData.PartitionData partition : topic.partitions()) {
                ObjectNode node = (ObjectNode) fields.get("responses").get(topicNumber).get("partitions").get(number++);
                ByteBuffer buffer = ((MemoryRecords) partition.records()).buffer().duplicate();
                byte[] bytes = new byte[buffer.remaining()];
                buffer.get(bytes);
                node.remove("recordsSizeInBytes");
                node.put("records", HexFormat.of().formatHex(bytes));
            }
            topicNumber++;
        }
        return fields;
    }

    // ---- messages ---------------------------------------------------------------------------------------------------

    private ShareFetchRequestData fetchRequest(short version) {
        ShareFetchRequestData request = new ShareFetchRequestData()
            .setGroupId(textOrNull())
            .setMemberId(textOrNull())
            .setShareSessionEpoch(int32())
            .setMaxWaitMs(int32())
            .setMinBytes(int32())
            .setMaxBytes(int32())
            .setMaxRecords(int32())
            .setBatchSize(int32());
        if (version >= 2) {
            request.setShareAcquireMode((byte) random.nextInt(3)).setIsRenewAck(random.nextBoolean());
        }
        var topics = new ShareFetchRequestData.FetchTopicCollection();
        for (int left = some(3); left > 0; left--) {
            var partitions = new ShareFetchRequestData.FetchPartitionCollection();
            for (int partition = some(4); partition > 0; partition--) {
                partitions.add(tagged(new ShareFetchRequestData.FetchPartition()
                    .setPartitionIndex(int32())
                    .setAcknowledgementBatches(list(some(3), () -> {
                        var batch = new ShareFetchRequestData.AcknowledgementBatch();
                        return tagged(batch.setFirstOffset(int64()).setLastOffset(int64()).setAcknowledgeTypes(types()));
                    }))));
            }
            topics.add(tagged(new ShareFetchRequestData.FetchTopic().setTopicId(topicId()).setPartitions(partitions)));
        }
        return request.setTopics(topics).setForgottenTopicsData(list(some(3), () ->
            tagged(new ShareFetchRequestData.ForgottenTopic().setTopicId(topicId()).setPartitions(list(some(5), this::int32)))));
    }

    private ShareFetchResponseData fetchResponse() {
        var topics = new ShareFetchResponseData.ShareFetchableTopicResponseCollection();
        for (int left = some(3); left > 0; left--) {
            topics.add(tagged(new ShareFetchResponseData.ShareFetchableTopicResponse()
                .setTopicId(topicId())
                .setPartitions(list(some(4), this::fetchedPartition))));
        }
        var endpoints = new ShareFetchResponseData.NodeEndpointCollection();
        for (int left = some(2); left > 0; left--) {
            var endpoint = new ShareFetchResponseData.NodeEndpoint();
            endpoints.add(tagged(endpoint.setNodeId(int32()).setHost(text()).setPort(int32()).setRack(textOrNull())));
        }
        return new ShareFetchResponseData()
            .setThrottleTimeMs(int32())
            .setErrorCode(code(REQUEST))
            .setErrorMessage(textOrNull())
            .setAcquisitionLockTimeoutMs(int32())
            .setResponses(topics)
            .setNodeEndpoints(endpoints);
    }

    private ShareFetchResponseData.PartitionData fetchedPartition() {
        byte[] records = new byte[random.nextInt(4) == 0 ? 0 : random.nextInt(8) == 0 ? 200 : random.nextInt(40)];
        random.nextBytes(records);
        return tagged(new ShareFetchResponseData.PartitionData()
            .setPartitionIndex(int32())
            .setErrorCode(code(FETCH))
            .setErrorMessage(random.nextBoolean() ? null : textOrNull())
            .setAcknowledgeErrorCode(code(ACKNOWLEDGE))
            .setAcknowledgeErrorMessage(random.nextBoolean() ? null : textOrNull())
            .setCurrentLeader(tagged(new ShareFetchResponseData.LeaderIdAndEpoch().setLeaderId(int32()).setLeaderEpoch(int32())))
            .setRecords(MemoryRecords.readableRecords(ByteBuffer.wrap(records)))
            .setAcquiredRecords(list(some(5), () -> {
                var range = new ShareFetchResponseData.AcquiredRecords();
                return tagged(range.setFirstOffset(int64()).setLastOffset(int64()).setDeliveryCount((short) int32()));
            })));
    }

    private ShareAcknowledgeRequestData acknowledgeRequest(short version) {
        ShareAcknowledgeRequestData request = new ShareAcknowledgeRequestData()
            .setGroupId(textOrNull())
            .setMemberId(textOrNull())
            .setShareSessionEpoch(int32());
        if (version >= 2) {
            request.setIsRenewAck(random.nextBoolean());
        }
        var topics = new ShareAcknowledgeRequestData.AcknowledgeTopicCollection();
        for (int left = some(3); left > 0; left--) {
            var partitions = new ShareAcknowledgeRequestData.AcknowledgePartitionCollection();
            for (int partition = some(4); partition > 0; partition--) {
                partitions.add(tagged(new ShareAcknowledgeRequestData.AcknowledgePartition()
                    .setPartitionIndex(int32())
                    .setAcknowledgementBatches(list(some(3), () -> {
                        var batch = new ShareAcknowledgeRequestData.AcknowledgementBatch();
                        return tagged(batch.setFirstOffset(int64()).setLastOffset(int64()).setAcknowledgeTypes(types()));
                    }))));
            }
            topics.add(tagged(new ShareAcknowledgeRequestData.AcknowledgeTopic().setTopicId(topicId()).setPartitions(partitions)));
        }
        return request.setTopics(topics);
    }

    private ShareAcknowledgeResponseData acknowledgeResponse(short version) {
        var topics = new ShareAcknowledgeResponseData.ShareAcknowledgeTopicResponseCollection();
        for (int left = some(3); left > 0; left--) {
            topics.add(tagged(new ShareAcknowledgeResponseData.ShareAcknowledgeTopicResponse()
                .setTopicId(topicId())
                .setPartitions(list(some(4), () -> {
                    var leader = new ShareAcknowledgeResponseData.LeaderIdAndEpoch();
                    return tagged(new ShareAcknowledgeResponseData.PartitionData()
                        .setPartitionIndex(int32())
                        .setErrorCode(code(ACKNOWLEDGE))
                        .setErrorMessage(random.nextBoolean() ? null : textOrNull())
                        .setCurrentLeader(tagged(leader.setLeaderId(int32()).setLeaderEpoch(int32()))));
                }))));
        }
        var endpoints = new ShareAcknowledgeResponseData.NodeEndpointCollection();
        for (int left = some(2); left > 0; left--) {
            var endpoint = new ShareAcknowledgeResponseData.NodeEndpoint();
            endpoints.add(tagged(endpoint.setNodeId(int32()).setHost(text()).setPort(int32()).setRack(textOrNull())));
        }
        return new ShareAcknowledgeResponseData()
            .setThrottleTimeMs(int32())
            .setErrorCode(code(REQUEST))
            .setErrorMessage(textOrNull())
            .setAcquisitionLockTimeoutMs(version >= 2 ? int32() : 0)
            .setResponses(topics)
            .setNodeEndpoints(endpoints);
    }

    private ShareGroupHeartbeatRequestData heartbeatRequest() {
        return new ShareGroupHeartbeatRequestData()
            .setGroupId(text())
            .setMemberId(text())
            .setMemberEpoch(int32())
            .setRackId(textOrNull())
            .setSubscribedTopicNames(random.nextBoolean() ? null : list(some(5), this::text));
    }

    private ShareGroupHeartbeatResponseData heartbeatResponse() {
        ShareGroupHeartbeatResponseData response = new ShareGroupHeartbeatResponseData()
            .setThrottleTimeMs(int32())
            .setErrorCode(code(HEARTBEAT))
            .setErrorMessage(textOrNull())
            .setMemberId(textOrNull())
            .setMemberEpoch(int32())
            .setHeartbeatIntervalMs(int32());
        if (random.nextInt(3) > 0) {
            response.setAssignment(tagged(new ShareGroupHeartbeatResponseData.Assignment().setTopicPartitions(list(some(3), () -> {
                var topic = new ShareGroupHeartbeatResponseData.TopicPartitions();
                return tagged(topic.setTopicId(topicId()).setPartitions(list(some(5), this::int32)));
            }))));
        }
        return response;
    }

    // ---- values -----------------------------------------------------------------------------------------------------

    /** Tagged fields at this place, now and then, if the line is to have some. */
    private <T extends Message> T tagged(T message) {
        while (isTagged && random.nextInt(3) == 0) {
            byte[] content = new byte[random.nextInt(10)];
            random.nextBytes(content);
            int last = message.unknownTaggedFields().size();
            message.unknownTaggedFields().add(new RawTaggedField(last * 1000 + random.nextInt(1000), content));
        }
        return message;
    }

    private <T> List<T> list(int size, Supplier<T> make) {
        List<T> made = new ArrayList<>();
        for (int left = size; left > 0; left--) {
            made.add(make.get());
        }
        return made;
    }

    /** One as often as not, as in most requests. */
    private int some(int max) {
        return random.nextBoolean() ? 1 : random.nextInt(max + 1);
    }

    private List<Byte> types() {
        int size = random.nextInt(20) == 0 ? 130 : random.nextBoolean() ? 1 : random.nextInt(6);
        return list(size, () -> (byte) (random.nextInt(10) == 0 ? random.nextInt(256) - 128 : random.nextInt(5)));
    }

    private Uuid topicId() {
        return random.nextInt(10) == 0 ? Uuid.ZERO_UUID : new Uuid(random.nextLong(), random.nextLong());
    }

    private short code(short[] codes) {
        return random.nextInt(3) > 0 ? 0 : codes[random.nextInt(codes.length)];
    }

    private int int32() {
        return switch (random.nextInt(6)) {
            case 0 -> random.nextInt();
            case 1 -> Integer.MAX_VALUE;
            case 2 -> -1 - random.nextInt(2) * Integer.MAX_VALUE;
            default -> random.nextInt(1000);
        };
    }

    private long int64() {
        return switch (random.nextInt(6)) {
            case 0 -> random.nextLong();
            case 1 -> Long.MAX_VALUE;
            case 2 -> -1 - random.nextInt(2) * Long.MAX_VALUE;
            default -> random.nextInt(100_000);
        };
    }

    private String text() {
        StringBuilder text = new StringBuilder();
        for (int left = random.nextInt(30) == 0 ? 150 : random.nextInt(9); left > 0; left--) {
            text.append(CHARACTERS[random.nextInt(CHARACTERS.length)]);
        }
        return text.toString();
    }

    private String textOrNull() {
        return random.nextInt(4) == 0 ? null : text();
    }
}
