"""The config topic: settings of all nodes of one state topic; written by commands, read to its end and followed by nodes."""
