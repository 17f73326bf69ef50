"""What is on the log and on the wire: keys, snapshots, updates, checkpoints, codecs, batch combining, replay.

Everything here is pure: no clock, no I/O but the schema files, no state that outlives a call. Values are
`NamedTuple`s, because millions of them are made, hashed and compared per minute and a tuple does all three at C
speed; they are as immutable as a frozen dataclass.
"""
