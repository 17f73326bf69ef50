"""A real Apache Kafka without docker: its own jars, fetched once and run on loopback.

For development, tests, benchmarks and the demo. Nothing of the daemon needs this package.
"""

from holdfast.broker.embedded import (
    FAST_START,
    EmbeddedKafka,
    OnStep,
    StartStep,
    detached_bootstrap_servers,
    development_kafka,
    start_detached,
    stop_detached,
)
from holdfast.jars.cache import KAFKA_VERSION, cache_dir, classpath, jars
from holdfast.jars.errors import BrokerError
from holdfast.jars.java import java

__all__ = [
    "FAST_START",
    "KAFKA_VERSION",
    "BrokerError",
    "EmbeddedKafka",
    "OnStep",
    "StartStep",
    "cache_dir",
    "classpath",
    "detached_bootstrap_servers",
    "development_kafka",
    "jars",
    "java",
    "start_detached",
    "stop_detached",
]
