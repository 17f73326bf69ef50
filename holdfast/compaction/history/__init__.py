"""The history: Parquet files of every record that counted.

- `schema`: columns, kinds and directories;
- `writer`: writes a batch;
- `coverage`, `covered_files`: up to which offset the history tells everything, and where it has gaps.
"""
