"""The commands, one module or package per verb."""
