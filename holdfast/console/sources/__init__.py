"""Where commands read from: a node, the log, the snapshot store, the history."""
