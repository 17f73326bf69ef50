"""A real Apache Kafka without docker: its own jars, fetched once and run on loopback.

For development, tests, benchmarks and the demo. Nothing of the daemon needs this package.
"""

from holdfast.broker.embedded import (
    FAST_START,
    START_TIMEOUT_S,
    EmbeddedKafka,
    OnStep,
    StartStep,
    detached_bootstrap_servers,
    development_kafka,
    start_detached,
    stop_detached,
)
from holdfast.broker.errors import BrokerError
from holdfast.jars.cache import KAFKA_VERSION, cache_dir, kafka_classpath, kafka_jars
from holdfast.jars.errors import JarsUnavailable
from holdfast.jars.java import find_java

__all__ = [
    "FAST_START",
    "KAFKA_VERSION",
    "START_TIMEOUT_S",
    "BrokerError",
    "EmbeddedKafka",
    "JarsUnavailable",
    "OnStep",
    "StartStep",
    "cache_dir",
    "detached_bootstrap_servers",
    "development_kafka",
    "find_java",
    "kafka_classpath",
    "kafka_jars",
    "start_detached",
    "stop_detached",
]
