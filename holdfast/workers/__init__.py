"""Several nodes on one host as workers of one `holdfast serve`: planned, started, looked after and stopped together.

The supervisor binds the address that all workers accept connections at, and starts a process for each.
It serves nothing itself: clients talk to the workers, and those to each other, as nodes on different hosts do.
"""
