"""The commands, one module or package per verb.

- run: `serve`, `compact`, `dev`, `broker`;
- look: `node` (status, settings, metrics, partitions, readers), `groups`, `dump`, `snapshots`, `history` (and `diff`), `state`;
- change: `state`, `topics`, and the admin's decisions in `node`.
"""
