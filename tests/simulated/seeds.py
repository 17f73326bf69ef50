"""Which lives `pytest tests/simulated` lives, so that nothing else of the same run lives them again."""

from __future__ import annotations

from typing import Final

from holdfast.runtime.build import BUILD
from tests.simulated.coverage import CLUSTER, MEMORY

#: Where the lives of the compiled build begin: `make sim` has those below on the pure one.
_FIRST: Final = 0 if BUILD == "pure" else 1_000
#: Kind of life to its seeds.
TESTED: Final = {MEMORY: range(_FIRST, _FIRST + 500), CLUSTER: range(_FIRST, _FIRST + 60)}
#: Lives beyond those that failed once.
FAILED: Final = ((MEMORY, 637), (MEMORY, 746), (CLUSTER, 502), (CLUSTER, 529), (CLUSTER, 869))
