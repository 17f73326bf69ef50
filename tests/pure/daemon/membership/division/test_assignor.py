"""Who gets what: the ring from an empty group, then sticky and balanced."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.daemon.membership.division.assignor import Claim, divide
from holdfast.daemon.membership.division.ownership_map import Work

BOTH = ("x", "y")


def fresh(*members: str, offered: tuple[str, ...] = ()) -> dict[str, Claim]:
    return {member: Claim(duties_offered=offered) for member in members}


@pytest.mark.parametrize(
    ("members", "tasks", "duties", "divided"),
    [
        pytest.param(
            "ab",
            range(4),
            ("x", "y", "z", "w"),
            {"a": Work((0, 2), ("w", "y")), "b": Work((1, 3), ("x", "z"))},
            id="as many duties as tasks, an even number of nodes",
        ),
        pytest.param(
            "abc",
            range(5),
            ("y", "x"),
            {"a": Work((1, 4), ("x",)), "b": Work((2,), ("y",)), "c": Work((0, 3))},
            id="ring",
        ),
        pytest.param(
            "abcd", range(2), (), {"a": Work((0,)), "b": Work((1,)), "c": Work(), "d": Work()}, id="few tasks"
        ),
        pytest.param("a", range(3), ("x",), {"a": Work((0, 1, 2), ("x",))}, id="one node"),
        pytest.param("ab", (10, 9, 1), (), {"a": Work((1, 10)), "b": Work((9,))}, id="numeric order"),
        pytest.param("", range(3), ("x",), {}, id="nobody"),
    ],
)
def test_an_empty_group_is_one_ring(
    members: str, tasks: range, duties: tuple[str, ...], divided: dict[str, Work]
) -> None:
    assert divide(fresh(*members, offered=duties), tasks, duties) == divided
    assert divide(fresh(*reversed(members), offered=duties), reversed(tasks), reversed(duties)) == divided


def test_a_duty_goes_to_who_offers_it_and_to_nobody_where_none_does() -> None:
    claims = {"a": Claim(), "b": Claim(duties_offered=("x",)), "c": Claim()}
    assert divide(claims, range(2), ("x", "y")) == {"a": Work((1,)), "b": Work((), ("x",)), "c": Work((0,))}


def test_a_duty_that_only_a_full_member_offers_takes_the_place_of_a_task() -> None:
    claims = {"a": Claim(1, Work((0, 1)), ("x",)), "b": Claim(1, Work((2, 3)))}
    assert divide(claims, range(4), ("x",)) == {"a": Work((0, 1), ("x",)), "b": Work((2, 3))}
    claims = {"a": Claim(1, Work((0,)), ("x",)), "b": Claim(1), "c": Claim(1, Work((1,)))}
    assert divide(claims, range(2), ("x",)) == {"a": Work((), ("x",)), "b": Work((0,)), "c": Work((1,))}


def test_what_two_claim_belongs_to_the_newer_assignment() -> None:
    claims = {"a": Claim(3, Work((0, 1))), "b": Claim(4, Work((1, 2))), "c": Claim(4, Work((2, 3)))}
    assert divide(claims, range(4), ()) == {"a": Work((0,)), "b": Work((1, 2)), "c": Work((3,))}


def test_what_is_held_wins_over_the_ring() -> None:
    claims = {"a": Claim(1, Work((1, 3))), "b": Claim(1, Work((0, 2)))}
    assert divide(claims, range(4), ()) == {"a": Work((1, 3)), "b": Work((0, 2))}


members = st.sampled_from("abcde")
histories = st.lists(st.sets(members, min_size=1), min_size=1, max_size=6)


@given(histories, st.integers(0, 12), st.integers(0, 3))
def test_histories_stay_balanced_and_move_as_little_as_balance_allows(
    history: list[set[str]], task_count: int, duty_count: int
) -> None:
    duties = tuple("xyz"[:duty_count])
    held: dict[str, Work] = {}
    for generation, present in enumerate(history, start=1):
        claims = {member: Claim(generation - 1, held.get(member, Work()), duties) for member in present}
        divided = divide(claims, range(task_count), duties)
        items = [each for work in divided.values() for each in (*work.tasks, *work.duties)]
        assert sorted(items, key=str) == sorted([*range(task_count), *duties], key=str), "each has one owner"
        loads = {member: len(work.tasks) + len(work.duties) for member, work in divided.items()}
        assert max(loads.values()) - min(loads.values()) <= 1
        assert _kept(claims, divided) == _most_that_could_be_kept(claims, len(items))
        held = divided


def _kept(claims: dict[str, Claim], divided: dict[str, Work]) -> int:
    return sum(
        len(set(claim.held.tasks) & set(divided[member].tasks))
        + len(set(claim.held.duties) & set(divided[member].duties))
        for member, claim in claims.items()
    )


def _most_that_could_be_kept(claims: dict[str, Claim], count: int) -> int:
    """Try every way to give some members one more than the others."""
    least, more = divmod(count, len(claims))
    sizes = {member: len(claim.held.tasks) + len(claim.held.duties) for member, claim in claims.items()}
    return max(
        sum(min(size, least + (member in larger)) for member, size in sizes.items())
        for larger in combinations(sizes, more)
    )


@given(st.dictionaries(members, st.sets(st.sampled_from("xyz")), min_size=1), st.integers(0, 9))
def test_every_task_and_duty_has_one_owner_whoever_offers_what(offered: dict[str, set[str]], task_count: int) -> None:
    claims = {member: Claim(duties_offered=tuple(sorted(duties))) for member, duties in offered.items()}
    divided = divide(claims, range(task_count), "xyz")
    assert sorted(task for work in divided.values() for task in work.tasks) == list(range(task_count))
    done = [duty for work in divided.values() for duty in work.duties]
    assert sorted(done) == sorted(set().union(*offered.values()))
    assert all(set(work.duties) <= offered[member] for member, work in divided.items())


def test_what_a_member_cannot_reach_goes_to_those_who_can() -> None:
    three = {
        "a": Claim(1, Work((0, 1)), (), frozenset({0, 5})),
        "b": Claim(1, Work((2, 3))),
        "c": Claim(1, Work((4, 5))),
    }
    assert divide(three, range(6), ()) == {"a": Work((1,)), "b": Work((0, 2, 3)), "c": Work((4, 5))}
    # Nobody holds anything: it is never given to a member that cannot do it, and each is given once.
    new = {"a": Claim(out_of_reach=frozenset(range(5))), "b": Claim(out_of_reach=frozenset({5})), "c": Claim()}
    found = divide(new, range(6), ())
    assert sorted(task for work in found.values() for task in work.tasks) == [*range(6)]
    assert all(not new[member].out_of_reach & {*work.tasks} for member, work in found.items())


def test_what_nobody_reaches_stays_where_it_is() -> None:
    away = frozenset({0, 2})
    both = {"a": Claim(1, Work((0, 1)), (), away), "b": Claim(1, Work((2, 3)), (), away | {3})}
    assert divide(both, range(4), ()) == {"a": Work((0, 1, 3)), "b": Work((2,))}
