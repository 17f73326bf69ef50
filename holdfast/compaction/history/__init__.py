"""The writer of the history: Parquet files of every record that counted, in the form that `holdfast.history` describes.

- `writer`: writes a batch; `rows`: its rows, packed and as Parquet;
- `joining`: puts one file in the place of many;
- `coverage`, `covered_files`: up to which offset the history tells everything, and where it has gaps.
"""
