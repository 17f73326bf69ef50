"""What the processes that tests start find in place of hypothesis, see `tests/children.py`."""

raise ImportError("kio would import hypothesis in each node, where no installed Holdfast has it")
