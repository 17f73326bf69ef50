"""The Spark job that folds the log into snapshots, manifests and history.

Only `job` and the modules it imports need PySpark; `config`, `report` and `history` are for everybody.
"""
