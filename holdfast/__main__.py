"""`python -m holdfast` is the command line tool, where its script is not on the path."""

from holdfast.cli import main

main(prog_name="holdfast")
