"""Leaders of a share partition: the rules hold in every state of each scope, and each broken rule is caught by what it breaks."""

from dataclasses import replace
from typing import Final

import pytest

from tests.model.leaders import LeaderRules, Leaders, LeaderScope, Left, explore

RULES: Final = LeaderRules()
#: A leader on another node than the state.
WIRE: Final = replace(RULES, transport="wire")
SCOPES: Final = {
    "accept": LeaderScope(Left(produce=2, take=2, accept=2, late=1)),
    "release": LeaderScope(Left(produce=2, take=2, accept=1, release=2, late=1)),
    "lost": LeaderScope(Left(produce=1, take=2, accept=2, release=1, lose=2, late=1), offsets=1),
    "lost twice": LeaderScope(Left(produce=1, take=1, accept=1, release=2, lose=2), offsets=1, leaders=1),
    "lost, then another": LeaderScope(Left(produce=2, take=1, accept=2, lose=1), leaders=1),
    "three": LeaderScope(Left(produce=1, take=3, accept=2, release=1, late=2), offsets=1, leaders=3),
    "hand-over": LeaderScope(Left(produce=2, take=2, accept=2, hand_over=1)),
    "alter": LeaderScope(Left(produce=2, take=2, accept=2, late=1, alter=1)),
    "delete": LeaderScope(Left(produce=1, take=2, accept=2, release=1, late=1, lose=1, delete=1), offsets=1),
}
#: (rules, scope, what it breaks).
MUTANTS: Final = {
    "each leader decides where a group begins": (replace(RULES, begin="each leader"), "accept", "L2"),
    "a state is made whatever was made meanwhile": (replace(RULES, begin="two steps"), "accept", "L2"),
    "a load fences nobody": (replace(WIRE, fence=False), "accept", "L1"),
    "a leader that was frozen hands out without a look": (replace(RULES, hand_out="freely"), "accept", "L1"),
    "a former owner hands out until it hears of the next": (replace(RULES, hand_over="goes on"), "hand-over", "L1"),
    "an accept is answered before it is in the log": (replace(RULES, answer="at once"), "accept", "L1"),
    "what waits for its Write is given out": (replace(RULES, waits=False), "accept", "L3"),
    "the last Write of an offset holds": (replace(WIRE, combine="last"), "lost twice", "L4"),
    "the start offset passes what was given out": (replace(RULES, start="given"), "accept", "L2"),
    "an alteration keeps the state epoch": (replace(RULES, alter=False), "alter", "L5"),
    "a Write without an answer is taken for done": (replace(WIRE, rolls_back=False), "lost, then another", "L2"),
    "assumption: a leader on another node, and a state that was deleted": (WIRE, "delete", "L5"),
}
#: Other rules that hold too.
HOLD_TOO: Final = {
    "all that is handed out is confirmed, in a hand-over, too": (
        replace(RULES, hand_out="confirmed", hand_over="goes on"),
        "hand-over",
    ),
    "on another node, with state epochs above those of deleted states": (replace(WIRE, after_delete="above"), "delete"),
    **{f"on another node: {scope}": (WIRE, scope) for scope in SCOPES if scope != "delete"},
}


@pytest.mark.parametrize(
    ("scope", "states"),
    [
        ("accept", 1_291),
        ("release", 10_321),
        ("lost", 996),
        ("lost twice", 45),
        ("lost, then another", 77),
        ("three", 6_947),
        ("hand-over", 985),
        ("alter", 10_877),
        ("delete", 1_882),
    ],
)
def test_rules_of_leaders_hold_in_every_state_of_a_scope(scope: str, states: int) -> None:
    explored = explore(Leaders(RULES, SCOPES[scope]))
    assert not explored.broken, explored.trace
    assert explored.states == states, "the model has changed"


@pytest.mark.parametrize("name", MUTANTS)
def test_broken_rule_of_leaders_is_caught(name: str) -> None:
    rules, scope, breaks = MUTANTS[name]
    explored = explore(Leaders(rules, SCOPES[scope]))
    assert explored.broken.split(" ")[0] == breaks, explored.trace


@pytest.mark.parametrize("name", HOLD_TOO)
def test_other_rules_of_leaders_hold_too(name: str) -> None:
    rules, scope = HOLD_TOO[name]
    explored = explore(Leaders(rules, SCOPES[scope]))
    assert not explored.broken, explored.trace
