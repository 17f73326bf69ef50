"""The places that commands read.

- `node_states`: a running node; `group_nodes`: all nodes that divide a log;
- `member_conditions`: how each of those nodes is;
- `kafka_reader`: topics of a cluster; `log_reader`, `log_states`: a state topic, record by record and as states;
- `state_topics`: which state topic a cluster has;
- `brokers_or_nodes`: whether brokers are there at all;
- `snapshot_reader`: the snapshot store, compared with the log;
- `history_files`: the history; `history_log`: the log after it; `history_states`: what both say of an instant or an offset;
- `topic_names`: names for the ids in the log.
"""
