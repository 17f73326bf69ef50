"""The connection to a Kafka that lets nobody in without TLS, a login and ACLs."""
