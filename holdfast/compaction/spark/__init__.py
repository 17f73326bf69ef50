"""What the job needs of Spark, its processes and its file systems.

- `session`: the session; `log_stream`: the log as a stream, read and folded;
- `fold_processor`, `buckets`: the fold on Spark's workers, and its state;
- `query_files`, `files`: the directory of a query, and small files behind any URI;
- `java_process`: the Java that the job starts, and its last lines;
- `home`, `worker_daemon`: what makes Spark's Python start sooner;
- `failures`, `worker_start`: what fails in Spark as one line, and what is tried again;
- `py_files`: our code as a zip for workers on other machines.
"""
