"""Which password is checked next, counted in checks: no address waits for more than one of each other."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from holdfast.daemon.login.password_checks import Finding, PasswordCheck, PasswordChecks


class Checker:
    """Makes checks when it is told to, and keeps what became of each."""

    def __init__(self, waiting_max: int = 1_000, per_address_max: int = 1_000) -> None:
        self.checks = PasswordChecks(self._begin, waiting_max, per_address_max)
        self.made = 0
        #: By check, in the order in which they were found.
        self.found: dict[PasswordCheck, Finding] = {}
        self._begun: list[tuple[Callable[[], bool], Callable[[bool], None]]] = []

    def _begin(self, check: Callable[[], bool], done: Callable[[bool], None]) -> None:
        assert not self._begun, "one check is made at a time"
        self._begun.append((check, done))

    def ask(self, address: str, *, is_right: bool = False) -> PasswordCheck:
        check = PasswordCheck(address, lambda: is_right, lambda found: self.found.update({check: found}))
        self.checks.add(check)
        return check

    def make_one(self) -> bool:
        """Make the check that was begun; returns whether there was one."""
        if not self._begun:
            return False
        check, done = self._begun.pop()
        self.made += 1
        done(check())
        return True


def test_who_comes_late_waits_for_one_check_of_each_other_address() -> None:
    at = Checker()
    for _ in range(300):
        at.ask("attacker")
    for _ in range(50):
        at.ask("neighbour")
    ours = at.ask("ours", is_right=True)
    while ours not in at.found:
        assert at.make_one()
    assert at.found[ours] is True
    assert at.made <= 4  # the one that is made when ours comes, one of each other address, and ours


def test_an_address_with_as_many_as_it_may_have_is_told_at_once_and_others_are_not() -> None:
    at = Checker(per_address_max=3)
    asked = [at.ask("attacker") for _ in range(6)]
    assert at.found == dict.fromkeys(asked[4:])  # one is made, three wait
    ours = at.ask("ours")
    assert ours not in at.found
    assert at.checks.waiting == 4


def test_where_all_places_are_taken_the_newest_of_whoever_has_most_gives_one() -> None:
    at = Checker(waiting_max=4)
    crowd = [at.ask("attacker") for _ in range(5)]
    ours = at.ask("ours")
    assert at.found == {crowd[-1]: None}
    second = at.ask("ours")
    assert at.found == {crowd[-1]: None, crowd[-2]: None}
    third = at.ask("ours")
    assert at.found == {crowd[-1]: None, crowd[-2]: None, third: None}
    while at.make_one():
        pass
    assert {at.found[each] for each in (ours, second, *crowd[:3])} == {False}


def test_who_goes_is_not_checked_and_gives_back_its_place() -> None:
    at = Checker(per_address_max=1)
    current, waiting = at.ask("a"), at.ask("a")
    at.checks.cancel(waiting)
    at.checks.cancel(waiting)
    another = at.ask("a")
    at.checks.cancel(current)  # it is being made, and nobody waits for it
    while at.make_one():
        pass
    assert at.found == {another: False}
    assert at.made == 2
    assert at.checks.waiting == 0


def test_who_goes_while_it_is_checked_frees_no_processor() -> None:
    at = Checker()
    for _ in range(3):
        at.checks.cancel(at.ask("a"))  # `_begin` would see a second one
    assert at.make_one()
    assert not at.make_one()


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("ask"), st.sampled_from("abcd")),
            st.tuples(st.just("cancel"), st.integers(0, 40)),
            st.tuples(st.just("make"), st.just(0)),
        ),
        max_size=60,
    )
)
def test_each_check_is_found_once_or_cancelled_and_the_bounds_hold(steps: list[tuple[str, str | int]]) -> None:
    at = Checker(waiting_max=5, per_address_max=3)
    asked: list[PasswordCheck] = []
    gone: set[PasswordCheck] = set()
    for verb, what in steps:
        if verb == "ask":
            asked.append(at.ask(str(what)))
        elif verb == "make":
            at.make_one()
        elif asked:
            check = asked[int(what) % len(asked)]
            gone |= {check} - at.found.keys()
            at.checks.cancel(check)
        assert at.checks.waiting <= 5
        assert at.found.keys().isdisjoint(gone)
    while at.make_one():
        pass
    assert set(asked) == at.found.keys() | gone
