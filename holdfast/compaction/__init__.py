"""The Spark job that folds the log into the snapshot store and the history; it imports `history`, `records` and `kafka`, and what is below.

Only `job` and the modules it imports need PySpark; `config`, `machine`, `report`, `progress`, `topics` and most of `history` do not.

- `job`: one query after the other, until the job is stopped or has reached the log's end;
- `query`: one query, and how it ends;
- `sink`: what is written of a batch, and when the group's offsets are committed;
- `topics`, `group`: the topics and the consumer group, as the driver uses them;
- `presence`: the marks by which jobs with one directory find each other;
- `batch_sizer`: how many records a batch takes in;
- `report`, `progress`: what a batch came to, and a run; `errors`: what ends one;
- `machine`: what Spark needs of the machine, looked at before it starts;
- `child_lines`: log lines of the job's processes, for the process that starts it;
- `spark/`: the session, the stream, the fold on its workers, files, failures;
- `history/`: writes the Parquet files of every change, and what they cover.
"""
