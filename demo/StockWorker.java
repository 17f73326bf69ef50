import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A worker with Apache Kafka's own share consumer, which knows nothing of Holdfast but an address; stock_worker.py is the same in Python.
 *
 * <p>Arguments: the address, a group, a topic, and how many milliseconds an order takes.
 * It writes down `given PARTITION OFFSET COUNT` of each order that it gets, and `accepted PARTITION OFFSET` once it was told that its
 * acknowledgement is kept, or `unsure PARTITION OFFSET` where it was not.
 */
public final class StockWorker {
    private StockWorker() {}

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.setProperty("bootstrap.servers", args[0]);
        settings.setProperty("group.id", args[1]);
        settings.setProperty("share.acknowledgement.mode", "explicit");
        settings.setProperty("max.poll.records", "20");
        Map<Integer, List<ConsumerRecord<String, String>>> given = new HashMap<>();
        try (KafkaShareConsumer<String, String> consumer =
                new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(args[2]));
            while (true) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(500));
                given.clear();
                records.forEach(record -> say("given", record, " " + record.deliveryCount().orElse((short) 0)));
                for (ConsumerRecord<String, String> record : records) {
                    Thread.sleep(Long.parseLong(args[3]));
                    consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                    given.computeIfAbsent(record.partition(), partition -> new ArrayList<>()).add(record);
                }
                consumer.commitSync().forEach((partition, error) ->
                    given.remove(partition.partition()).forEach(record -> say(error.isPresent() ? "unsure" : "accepted", record, "")));
                given.values().forEach(left -> left.forEach(record -> say("unsure", record, "")));
            }
        }
    }

    private static void say(String what, ConsumerRecord<String, String> record, String more) {
        System.out.println(what + " " + record.partition() + " " + record.offset() + more);
        System.out.flush();
    }
}
