"""The history of a state topic as it lies in a directory: what the job that writes it and all who read it must agree on.

- `schema`: columns, kinds, directories and names of files;
- `covered`: the small files that say how far it reaches;
- `place`: the directory, or the store that a URI names;
- `days`: its files by day, read while the job adds some and joins others;
- `lost`: sentences about what neither the history nor the log has;
- `past`: what it has of one share partition, read backward within bounds.

`place`, `days` and `past` need pyarrow, which is an extra.
"""
