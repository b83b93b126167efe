import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** A running total per key, exactly once. Arguments: servers, app id, input, output, state directory, store, name=value... */
public final class RunningTotal {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final String STORE = "accounts";

  private static final class Total extends ContextualProcessor<String, byte[], String, byte[]> {
    private KeyValueStore<String, byte[]> accounts;

    @Override
    public void init(ProcessorContext<String, byte[]> context) {
      super.init(context);
      accounts = context.getStateStore(STORE);
    }

    @Override
    public void process(Record<String, byte[]> record) {
      try {
        JsonNode payment = JSON.readTree(record.value());
        byte[] stored = accounts.get(record.key());
        long count = 1;
        long sum = payment.get("amount").asLong();
        long lastTs = payment.get("ts").asLong();
        if (stored != null) {
          ByteBuffer before = ByteBuffer.wrap(stored);
          count += before.getLong();
          sum += before.getLong();
        }
        accounts.put(record.key(), ByteBuffer.allocate(24).putLong(count).putLong(sum).putLong(lastTs).array());
        var balance = JSON.createObjectNode().put("count", count).put("sum", sum).put("last_ts", lastTs);
        context().forward(record.withValue(JSON.writeValueAsBytes(balance)));
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }
  }

  public static void main(String[] arguments) {
    String store = arguments[5];
    Properties settings = new Properties();
    settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
    settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
    settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[4]);
    settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    settings.put("auto.offset.reset", "earliest");
    for (int index = 6; index < arguments.length; index++) {
      String[] setting = arguments[index].split("=", 2);
      settings.put(setting[0], setting[1]);
    }
    var supplier = store.equals("rocksdb") ? Stores.persistentKeyValueStore(STORE) : Stores.inMemoryKeyValueStore(STORE);
    Topology topology = new Topology()
        .addSource("input", new StringDeserializer(), new ByteArrayDeserializer(), arguments[2])
        .addProcessor("total", Total::new, "input")
        .addStateStore(Stores.keyValueStoreBuilder(supplier, Serdes.String(), Serdes.ByteArray()), "total")
        .addSink("output", arguments[3], new StringSerializer(), new ByteArraySerializer(), "total");
    KafkaStreams streams = new KafkaStreams(topology, settings);
    streams.setStateListener((now, before) -> System.out.println("state " + now));
    Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(10))));
    streams.start();
  }
}
