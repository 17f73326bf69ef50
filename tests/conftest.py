"""Settings of all tests: property tests run the same few examples each time, unless `HYPOTHESIS_PROFILE` names another profile."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci", derandomize=True, deadline=None, max_examples=100, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("nightly", deadline=None, max_examples=5000, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
