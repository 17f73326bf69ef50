"""The program for `spark-submit`: the compaction job, with the options of `holdfast compact`; docs/spark.md says how."""

import sys

from holdfast.cli import main

main(["compact", *sys.argv[1:]])
