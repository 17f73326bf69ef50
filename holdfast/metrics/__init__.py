"""Counters, gauges and histograms in a registry that any exporter can read."""
