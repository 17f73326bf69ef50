"""Load on Holdfast and on Apache Kafka's own share coordinator, on one machine, answers checked. See README.md."""
