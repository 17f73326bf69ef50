"""Pruning: snapshots in the log, then the cut, never past a registered reader."""
