"""The wire server: sockets, connections, the table of calls, and Kafka's own calls that it answers."""
