"""Topics as the cluster has them: the state topic, the snapshot topic, those of users, and what is known of each."""
