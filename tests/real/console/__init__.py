"""The command line tool against real nodes and brokers."""
