"""Settings of all tests.

Property tests run the same few examples each time, unless `HYPOTHESIS_PROFILE` names another profile.
They run on the package that Python finds first; where `BUILD_UNDER_TEST` names a build, it must be that one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, Phase, settings

from holdfast.runtime.build import BUILD

settings.register_profile(
    "ci", derandomize=True, deadline=None, max_examples=100, database=None, suppress_health_check=[HealthCheck.too_slow]
)
# The same examples where only the failure counts, not the smallest example of it.
settings.register_profile("mutant", settings.get_profile("ci"), phases=(Phase.explicit, Phase.generate))
settings.register_profile("nightly", deadline=None, max_examples=5000, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_report_header() -> str:
    return f"holdfast: {BUILD} build"


def pytest_configure(config: pytest.Config) -> None:
    wanted = os.environ.get("BUILD_UNDER_TEST", BUILD)
    if wanted != BUILD:
        raise pytest.UsageError(f"BUILD_UNDER_TEST is {wanted}, and the package that was found is the {BUILD} build.")


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Undo what a test's command set of the process's logging, so that no later test loses its lines."""
    root, ours = logging.getLogger(), logging.getLogger("holdfast")
    handlers, level, our_level = root.handlers[:], root.level, ours.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    ours.setLevel(our_level)
    logging.captureWarnings(False)
    structlog.reset_defaults()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, where the hot path is C, the tests that reach into it as only Python lets them."""
    for item in items:
        mark = item.get_closest_marker("pure_build")
        if mark is not None and BUILD != "pure":
            item.add_marker(pytest.mark.skip(reason=mark.args[0]))
