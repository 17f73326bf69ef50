import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.FileReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BiConsumer;
import java.util.function.Function;
import org.apache.kafka.clients.ApiVersions;
import org.apache.kafka.clients.ClientUtils;
import org.apache.kafka.clients.ManualMetadataUpdater;
import org.apache.kafka.clients.MetadataRecoveryStrategy;
import org.apache.kafka.clients.NetworkClient;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.message.DeleteShareGroupStateRequestDataJsonConverter;
import org.apache.kafka.common.message.InitializeShareGroupStateRequestDataJsonConverter;
import org.apache.kafka.common.message.ReadShareGroupStateRequestDataJsonConverter;
import org.apache.kafka.common.message.ReadShareGroupStateSummaryRequestDataJsonConverter;
import org.apache.kafka.common.message.WriteShareGroupStateRequestDataJsonConverter;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.network.Selector;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.utils.LogContext; // 4.4.0: import org.apache.kafka.common.utils.internals.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.share.SharePartitionKey;
import org.apache.kafka.server.share.persister.DefaultStatePersister;
import org.apache.kafka.server.share.persister.DeleteShareGroupStateParameters;
import org.apache.kafka.server.share.persister.InitializeShareGroupStateParameters;
import org.apache.kafka.server.share.persister.PartitionAllData;
import org.apache.kafka.server.share.persister.PartitionErrorData;
import org.apache.kafka.server.share.persister.PartitionIdData;
import org.apache.kafka.server.share.persister.PartitionStateSummaryData;
import org.apache.kafka.server.share.persister.PersisterStateBatch;
import org.apache.kafka.server.share.persister.PersisterStateManager;
import org.apache.kafka.server.share.persister.ReadShareGroupStateParameters;
import org.apache.kafka.server.share.persister.ReadShareGroupStateSummaryParameters;
import org.apache.kafka.server.share.persister.ShareCoordinatorMetadataCacheHelper;
import org.apache.kafka.server.share.persister.TopicData;
import org.apache.kafka.server.share.persister.WriteShareGroupStateParameters;
import org.apache.kafka.server.util.timer.SystemTimer;
import org.apache.kafka.server.util.timer.SystemTimerReaper;

/**
 * Lets the persister that Apache Kafka's brokers use talk to a share coordinator.
 *
 * <p>Arguments: host, port and, if the coordinator asks for more than plain text, a file of client properties.
 * One step per line of standard input, one answer per line of standard output, both JSON; README.md shows them.
 * A line that ends with "4.4.0:" and a line of Java is that line for the classes of that release; driver.py puts it in its place.
 * The address is only where the coordinator of a share partition is asked for: the persister looks it up over the wire.
 */
public final class PersisterDriver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long ANSWER_TIMEOUT_MS = 60_000;
    private static final int REQUEST_TIMEOUT_MS = 30_000;
    private static final int CONNECTION_TIMEOUT_MS = 10_000;
    private static final int RECONNECT_BACKOFF_MS = 50;

    private PersisterDriver() {}

    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        if (args.length > 2) {
            try (FileReader file = new FileReader(args[2], StandardCharsets.UTF_8)) {
                properties.load(file);
            }
        }
        properties.setProperty("bootstrap.servers", args[0] + ":" + args[1]);
        SystemTimer timer = new SystemTimer("persister-driver");
        NetworkClient client = networkClient(new AdminClientConfig(properties));
        AskOverTheWire lookUp = new AskOverTheWire(args[0], Integer.parseInt(args[1]));
        SystemTimerReaper reaper = new SystemTimerReaper("persister-driver-reaper", timer);
        DefaultStatePersister persister = persister(client, lookUp, reaper);
        BufferedReader steps = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = steps.readLine(); line != null; line = steps.readLine()) {
            System.out.println(JSON.writeValueAsString(answer(persister, JSON.readTree(line))));
        }
        // The persister's threads are no daemons, and stopping them in order is not what is tested here.
        Runtime.getRuntime().halt(0);
    }

    private static DefaultStatePersister persister(NetworkClient client, AskOverTheWire lookUp, SystemTimerReaper reaper) {
        return new DefaultStatePersister(new PersisterStateManager(client, lookUp, Time.SYSTEM, reaper)); // 4.4.0: return DefaultStatePersister.instance(client, lookUp, Time.SYSTEM, reaper);
    }

    private static NetworkClient networkClient(AdminClientConfig config) {
        LogContext logContext = new LogContext("[PersisterDriver] ");
        Metrics metrics = new Metrics();
        Selector selector = new Selector(
            CONNECTION_TIMEOUT_MS, metrics, Time.SYSTEM, "persister-driver",
            ClientUtils.createChannelBuilder(config, Time.SYSTEM, logContext), logContext);
        return new NetworkClient(
            selector, new ManualMetadataUpdater(), "persister-driver", 1, RECONNECT_BACKOFF_MS, RECONNECT_BACKOFF_MS,
            Selector.USE_DEFAULT_BUFFER_SIZE, Selector.USE_DEFAULT_BUFFER_SIZE, REQUEST_TIMEOUT_MS,
            CONNECTION_TIMEOUT_MS, CONNECTION_TIMEOUT_MS, Time.SYSTEM, true, new ApiVersions(), logContext,
            MetadataRecoveryStrategy.NONE); // 4.4.0: MetadataRecoveryStrategy.NONE, org.apache.kafka.clients.BootstrapConfiguration.DISABLED, false);
    }

    /** Knows one address and no topic, so that every coordinator is asked for with FindCoordinator. */
    private record AskOverTheWire(String host, int port) implements ShareCoordinatorMetadataCacheHelper {
        @Override
        public boolean containsTopic(String topic) {
            return false;
        }

        @Override
        public Node getShareCoordinator(SharePartitionKey key, String internalTopicName) {
            return Node.noNode();
        }

        @Override
        public List<Node> getClusterNodes() {
            // Connections are known by node id, and this id is no broker's.
            return List.of(new Node(Integer.MAX_VALUE, host, port));
        }
    }

    private static ObjectNode answer(DefaultStatePersister persister, JsonNode step) throws InterruptedException {
        String call = step.get("call").asText();
        JsonNode request = step.get("request");
        ObjectNode answer = JSON.createObjectNode().put("call", call);
        try {
            switch (call) {
                case "initialize" -> {
                    var data = InitializeShareGroupStateRequestDataJsonConverter.read(
                        request, ApiKeys.INITIALIZE_SHARE_GROUP_STATE.latestVersion());
                    finish(answer, persister.initializeState(InitializeShareGroupStateParameters.from(data)),
                        result -> result.topicsData(), PersisterDriver::describeError);
                }
                case "write" -> {
                    var data = WriteShareGroupStateRequestDataJsonConverter.read(
                        request, ApiKeys.WRITE_SHARE_GROUP_STATE.latestVersion());
                    finish(answer, persister.writeState(WriteShareGroupStateParameters.from(data)),
                        result -> result.topicsData(), PersisterDriver::describeError);
                }
                case "read" -> {
                    var data = ReadShareGroupStateRequestDataJsonConverter.read(
                        request, ApiKeys.READ_SHARE_GROUP_STATE.latestVersion());
                    finish(answer, persister.readState(ReadShareGroupStateParameters.from(data)),
                        result -> result.topicsData(), PersisterDriver::describeState);
                }
                case "summary" -> {
                    var data = ReadShareGroupStateSummaryRequestDataJsonConverter.read(
                        request, ApiKeys.READ_SHARE_GROUP_STATE_SUMMARY.latestVersion());
                    finish(answer, persister.readSummary(ReadShareGroupStateSummaryParameters.from(data)),
                        result -> result.topicsData(), PersisterDriver::describeSummary);
                }
                case "delete" -> {
                    var data = DeleteShareGroupStateRequestDataJsonConverter.read(
                        request, ApiKeys.DELETE_SHARE_GROUP_STATE.latestVersion());
                    finish(answer, persister.deleteState(DeleteShareGroupStateParameters.from(data)),
                        result -> result.topicsData(), PersisterDriver::describeError);
                }
                default -> answer.put("exception", "unknown call");
            }
        } catch (ExecutionException error) {
            answer.put("exception", error.getCause().toString());
        } catch (TimeoutException | RuntimeException error) {
            answer.put("exception", error.toString());
        }
        return answer;
    }

    /** Waits for the result and writes its partitions into the answer, ordered by topic id and partition. */
    private static <R, P extends PartitionIdData> void finish(
        ObjectNode answer, CompletableFuture<R> future, Function<R, List<TopicData<P>>> topics,
        BiConsumer<P, ObjectNode> describe
    ) throws ExecutionException, InterruptedException, TimeoutException {
        ArrayNode partitions = answer.putArray("partitions");
        List<TopicData<P>> sorted = new ArrayList<>(topics.apply(future.get(ANSWER_TIMEOUT_MS, TimeUnit.MILLISECONDS)));
        sorted.sort(Comparator.comparing(topic -> topic.topicId().toString()));
        for (TopicData<P> topic : sorted) {
            List<P> ordered = new ArrayList<>(topic.partitions());
            ordered.sort(Comparator.comparingInt(PartitionIdData::partition));
            for (P partition : ordered) {
                ObjectNode described = partitions.addObject();
                described.put("topic_id", topic.topicId().toString()).put("partition", partition.partition());
                describe.accept(partition, described);
            }
        }
    }

    private static void describeError(PartitionErrorData partition, ObjectNode into) {
        into.put("error_code", partition.errorCode()).put("error_message", partition.errorMessage());
    }

    private static void describeState(PartitionAllData partition, ObjectNode into) {
        into.put("error_code", partition.errorCode()).put("error_message", partition.errorMessage());
        into.put("state_epoch", partition.stateEpoch()).put("start_offset", partition.startOffset());
        ArrayNode batches = into.putArray("batches");
        for (PersisterStateBatch batch : partition.stateBatches()) {
            batches.addArray().add(batch.firstOffset()).add(batch.lastOffset())
                .add(batch.deliveryState()).add(batch.deliveryCount());
        }
    }

    private static void describeSummary(PartitionStateSummaryData partition, ObjectNode into) {
        into.put("error_code", partition.errorCode()).put("error_message", partition.errorMessage());
        into.put("state_epoch", partition.stateEpoch()).put("leader_epoch", partition.leaderEpoch());
        into.put("start_offset", partition.startOffset());
        into.put("delivery_complete_count", partition.deliveryCompleteCount());
    }
}
