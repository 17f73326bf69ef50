"""What the findings say of the tests."""

from __future__ import annotations

from tests.pure.docs.pages import ROOT, code_spans, table
from tests.simulated.mutants import MUTANTS


def test_the_bugs_that_are_planted_in_every_node_are_mutants() -> None:
    rows = table((ROOT / "benchmarks" / "findings" / "node.md").read_text(), "planted bugs")
    names = [code_spans(planted)[0] for planted, *_ in rows]
    assert len(names) >= 5
    assert set(names) <= set(MUTANTS)
