"""The records in flight of one group in one partition of a topic, from their acquisition to the write that settles them.

Read in this order:

- `partition`: theory of operation, and the calls of a share partition;
- `values`: what goes in and comes out;
- `batches`, `window`: which offsets are known, and the state of each;
- `locks`: until when a member holds what it acquired;
- `loading`, `acquiring`, `acknowledging`, `settling`, `archiving`: one event each;
- `record_batches`: what is asked of the record batches that a fetch brought.
"""
