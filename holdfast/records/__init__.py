"""Records of a log: pure, with no clock, no I/O but the schema files, and no state that outlives a call.

| Room | Contents |
|---|---|
| `log/` | the parts that every log has: header, checkpoint, fencing, log start |
| `share/` | the records of share state: keys, values, batches, codecs, replay, snapshot store |
| `native/` | twins in C of some functions of both, in the build that ships |
| `errors` | what can be wrong with bytes |

`log` knows nothing of share state. Values are `NamedTuple`s, because millions of them are made, hashed and compared per minute and a
tuple does all three at C speed; they are as immutable as a frozen dataclass.
"""
