"""Records that every log has, independent of the state that it keeps.

| Module | Contents |
|---|---|
| `header` | the `hf` header: owner epoch and sequence |
| `checkpoint` | the record by which a node owns a log partition |
| `fencing`, `log_start` | which records count, and where a log is whole from: the rule of every reader |
| `single_object` | the first bytes of every Avro value |
"""
