import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.Properties;
import java.util.StringJoiner;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Stock share consumers, each in a thread of its own, which do what consumer.py does.
 *
 * <p>Arguments: how many, the topic, and settings of each as name=value. It says "ready", begins when it hears a line, says "first" when
 * each has records, and ends at the next line with what each saw. Times are System.nanoTime(), which on Linux is the system's monotonic
 * clock.
 */
public final class JavaConsumers {
    private static volatile boolean stopped;

    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[0]);
        Properties settings = new Properties();
        for (int i = 2; i < args.length; i++) {
            String[] parts = args[i].split("=", 2);
            settings.setProperty(parts[0], parts[1]);
        }
        List<One> all = new ArrayList<>();
        CountDownLatch first = new CountDownLatch(count);
        for (int i = 0; i < count; i++) {
            all.add(new One(settings, args[1], first));
        }
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.out.println("ready");
        input.readLine();
        for (One one : all) {
            one.start();
        }
        Thread said = new Thread(() -> {
            try {
                first.await();
                System.out.println("first");
            } catch (InterruptedException ignored) {
                // It ends before each had a record.
            }
        });
        said.start();
        input.readLine();
        stopped = true;
        said.interrupt();
        said.join();
        StringJoiner told = new StringJoiner(",", "[", "]");
        for (One one : all) {
            one.join();
            told.add(one.told());
        }
        System.out.println(told);
        // What closing takes is nobody's time.
        Runtime.getRuntime().halt(0);
    }

    private static double seconds() {
        return System.nanoTime() / 1e9;
    }

    /** One consumer. */
    private static final class One extends Thread {
        private final KafkaShareConsumer<byte[], byte[]> consumer;
        private final String topic;
        private final boolean isExplicit;
        private final CountDownLatch first;
        private final StringJoiner polls = new StringJoiner(",", "[", "]");
        private final StringJoiner problems = new StringJoiner(",", "[", "]");
        private double began;

        private One(Properties settings, String topic, CountDownLatch first) {
            this.consumer = new KafkaShareConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            this.topic = topic;
            this.isExplicit = "explicit".equals(settings.getProperty("share.acknowledgement.mode"));
            this.first = first;
        }

        @Override
        public void run() {
            boolean isFirst = true;
            began = seconds();
            consumer.subscribe(List.of(topic));
            while (!stopped) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) {
                    continue;
                }
                if (isFirst) {
                    isFirst = false;
                    first.countDown();
                }
                polls.add(String.format(Locale.ROOT, "[%.6f,%d]", seconds(), records.count()));
                if (isExplicit) {
                    for (ConsumerRecord<byte[], byte[]> record : records) {
                        consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                    }
                    for (Optional<KafkaException> problem : consumer.commitSync().values()) {
                        problem.ifPresent(each -> problems.add('"' + each.getClass().getSimpleName() + '"'));
                    }
                }
            }
        }

        private String told() {
            String form = "{\"began_s\":%.6f,\"cpu_s\":0.0,\"polls\":%s,\"latencies_ms\":[],\"problems\":%s}";
            return String.format(Locale.ROOT, form, began, polls, problems);
        }
    }
}
