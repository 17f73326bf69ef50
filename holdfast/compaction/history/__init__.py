"""The history: Parquet files of every record that counted, how they lie, and up to where they tell."""
