import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.StringJoiner;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A stock KafkaShareConsumer that does what it is told.
 *
 * <p>Arguments: settings of the consumer, as name=value. Each line of standard input is a step, each line of standard output its
 * answer, both with tabs between their parts; clients.py lists them. Runs with the classes of every release that has the consumer.
 */
public final class StockConsumer {
    private final Map<String, ConsumerRecord<String, String>> given = new HashMap<>();
    private final KafkaShareConsumer<String, String> consumer;

    private StockConsumer(Properties settings) {
        consumer = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        for (String arg : args) {
            String[] parts = arg.split("=", 2);
            settings.setProperty(parts[0], parts[1]);
        }
        StockConsumer stock = new StockConsumer(settings);
        BufferedReader steps = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String step = steps.readLine(); step != null; step = steps.readLine()) {
            System.out.println(stock.answer(Arrays.asList(step.split("\t"))));
            System.out.flush();
        }
    }

    private String answer(List<String> step) {
        List<String> rest = step.subList(1, step.size());
        try {
            switch (step.get(0)) {
                case "subscribe":
                    consumer.subscribe(rest);
                    return "ok";
                case "poll":
                    return poll(Duration.ofMillis(Long.parseLong(rest.get(0))));
                case "acknowledge":
                    for (String place : rest.subList(1, rest.size())) {
                        consumer.acknowledge(given.get(place), AcknowledgeType.valueOf(rest.get(0)));
                    }
                    return "ok";
                case "commit":
                    return commit();
                case "close":
                    consumer.close();
                    return "ok";
                default:
                    return "error\tIllegalArgumentException\t" + step;
            }
        } catch (RuntimeException problem) {
            return "error\t" + problem.getClass().getSimpleName() + "\t" + String.valueOf(problem.getMessage()).replaceAll("\\s", " ");
        }
    }

    private String poll(Duration wait) {
        StringJoiner answer = new StringJoiner("\t").add("ok");
        for (ConsumerRecord<String, String> record : consumer.poll(wait)) {
            String place = record.partition() + ":" + record.offset();
            given.put(place, record);
            answer.add(place + ":" + record.deliveryCount().orElse((short) -1) + ":" + record.value());
        }
        return answer.toString();
    }

    private String commit() {
        StringJoiner answer = new StringJoiner("\t").add("ok");
        for (Map.Entry<TopicIdPartition, Optional<KafkaException>> outcome : consumer.commitSync().entrySet()) {
            String error = outcome.getValue().map(problem -> problem.getClass().getSimpleName()).orElse("");
            answer.add(outcome.getKey().partition() + ":" + error);
        }
        return answer.toString();
    }
}
