"""Show the state of every share partition as a table of Spark SQL, read from a Holdfast snapshot topic.

It uses Spark, its connectors to Kafka and to Avro, and the schema files; nothing of Holdfast. docs/log-format.md explains the rules.
Each log partition is shown as of its newest manifest. The sum of digests is not compared, for Spark SQL has no BLAKE2b:
`read_snapshots.py` does that too.

Example, not run: tests/real/job/test_examples.py runs it under Spark:
    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0,org.apache.spark:spark-avro_2.13:4.2.0 \
        examples/read_snapshots_spark.py --bootstrap-server 127.0.0.1:9092
"""

import argparse
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import struct, to_json

SCHEMAS = Path(__file__).parents[1] / "holdfast" / "records" / "schemas"

#: An Avro single object is two bytes of marker, eight of the schema's fingerprint, and the body.
VIEWS = {
    "newest": """
        -- The topic is compacted, but not at once: of each key the last record counts, and a null removes it.
        SELECT partition AS log_partition, key, max_by(value, offset) AS value
        FROM records
        GROUP BY partition, key
        HAVING max_by(value, offset) IS NOT NULL
    """,
    "log_starts": """
        -- Read after the snapshots: what lies before may be deleted by now.
        SELECT partition AS log_partition, min(offset) AS log_start FROM log GROUP BY partition
    """,
    "manifests": """
        SELECT k.state_topic_id, k.log_partition, k.covered_offset, m.live_count
        FROM (
            SELECT from_avro(substring(key, 11), :share_manifest_key, map()) AS k,
                   from_avro(substring(value, 11), :share_manifest, map()) AS m
            FROM newest
            WHERE startswith(key, X'C301D06944B5ED58F3DA')
        )
    """,
    "entries": """
        SELECT log_partition, k.*, e.state
        FROM (
            SELECT log_partition,
                   from_avro(substring(key, 11), :share_entry_key, map()) AS k,
                   from_avro(substring(value, 11), :share_entry, map()) AS e
            FROM newest
            WHERE startswith(key, X'C3012A8E1FBF617A9C9F')
        )
    """,
    "newest_manifests": """
        SELECT state_topic_id, log_partition, max(covered_offset) AS covered_offset,
               max_by(live_count, covered_offset) AS live_count
        FROM manifests JOIN log_starts USING (log_partition)
        WHERE covered_offset >= log_start
        GROUP BY state_topic_id, log_partition
    """,
    "states": """
        SELECT * FROM (
            SELECT m.log_partition, m.covered_offset AS as_of_offset, m.live_count, e.group_id,
                   translate(rtrim('=', base64(e.topic_id)), '+/', '-_') AS topic_id, e.partition,
                   max_by(e.state, e.covered_offset) AS state
            FROM entries e
            JOIN newest_manifests m ON e.state_topic_id = m.state_topic_id AND e.log_partition = m.log_partition
            JOIN log_starts s ON s.log_partition = m.log_partition
            WHERE e.covered_offset BETWEEN s.log_start AND m.covered_offset
            GROUP BY ALL
        )
        WHERE state IS NOT NULL  -- null: the share partition is deleted
    """,
}

SHOWN = """
    SELECT group_id, topic_id, partition, log_partition, as_of_offset, state.state_epoch, state.leader_epoch,
           state.start_offset, state.delivery_complete_count, to_json(state.state_batches) AS state_batches
    FROM states
    ORDER BY group_id, topic_id, partition
"""

INCOMPLETE = """
    SELECT m.log_partition, m.live_count, count(s.state) AS found
    FROM newest_manifests m LEFT JOIN states s ON s.log_partition = m.log_partition
    GROUP BY ALL
    HAVING found != m.live_count
"""


def main() -> int:
    """Print the table, or its rows as JSON lines; returns the exit code, 1 where entries and manifest do not agree."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bootstrap-server", required=True, help="host:port of a broker")
    parser.add_argument("--topic", default="holdfast-share-snapshots")
    parser.add_argument("--state-topic", default="__holdfast_share_state")
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    options = parser.parse_args()
    spark = SparkSession.builder.appName("read-snapshots-example").getOrCreate()
    kafka = {"kafka.bootstrap.servers": options.bootstrap_server, "kafka.isolation.level": "read_uncommitted"}

    for view, topic in (("records", options.topic), ("log", options.state_topic)):
        spark.read.format("kafka").options(**kafka, subscribe=topic).load().createOrReplaceTempView(view)
    schemas = {file.stem: file.read_text(encoding="utf-8") for file in SCHEMAS.glob("share_*.avsc")}
    for name, query in VIEWS.items():
        used = {schema: text for schema, text in schemas.items() if f":{schema}," in query}
        view = spark.sql(query, args=used)
        if name in ("newest", "log_starts"):
            view = view.cache()
            view.count()  # now, so that all that follows looks at one and the same state of the topics
        view.createOrReplaceTempView(name)
    shown = spark.sql(SHOWN)
    if options.json:
        for row in shown.select(to_json(struct("*")).alias("line")).collect():
            sys.stdout.write(row.line + "\n")
    else:
        shown.show(1_000, truncate=False)
    incomplete = spark.sql(INCOMPLETE).collect()
    for row in incomplete:
        sys.stderr.write(
            f"Log partition {row.log_partition} has {row.live_count} share partitions, and entries of {row.found} "
            "were found; read the log itself.\n"
        )
    spark.stop()
    return 1 if incomplete else 0


if __name__ == "__main__":
    sys.exit(main())
