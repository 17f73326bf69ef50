"""Java and the jars that run on it, fetched once into a cache: Spark's connector to Kafka, and Apache Kafka itself.

Used in production, by the Spark job, as well as by the embedded broker:

- `java`: the Java of this machine;
- `cache`: the sets of jars by version, each a directory that is whole or absent;
- `fetching`: one set of jars from Maven's repositories;
- `locks`: locks between processes;
- `errors`: what is raised where one of them is missing.
"""
