"""The commands, one module or package per verb.

- run: `serve`, `compact`, `dev`, `broker`;
- look: `node` (status, settings, metrics, partitions, readers), `groups`, `dump`, `snapshots`, `history` (and `diff`), `state`;
- on any Kafka: `kafka_groups`, `find`, `page`;
- change: `state`, `topics`, `config`, `acls`, `security/` (users), and the admin's decisions in `node`;
- find out what is wrong: `diagnosis/` (doctor, debug).
"""
