"""Stock share consumers at the gateway beside the same consumers at its broker (`benchmarks --only gateway`)."""
