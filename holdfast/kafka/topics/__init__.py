"""What brokers say of users' topics: who leads their partitions, where these begin and end, and how old their records are."""
