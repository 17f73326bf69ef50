"""Pruning: snapshots in the log, then the deletion of what lies below, never past a registered reader."""
