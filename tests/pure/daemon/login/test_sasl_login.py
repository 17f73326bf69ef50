"""The login of one connection, as a dialogue: calls in, outcomes out."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

import pytest
import scramp.core  # type: ignore[import-untyped]  # it ships no types
from hypothesis import given
from hypothesis import strategies as st

from holdfast.daemon.login.credentials import KeptUsers, Users, derive
from holdfast.daemon.login.mechanisms import MECHANISMS
from holdfast.daemon.login.sasl_login import Answered, LoggedIn, LoginRules, Outcome, Refused, SaslLogin, Undecided
from holdfast.kafka.protocol import scram
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.protocol.primitives import MalformedBody
from holdfast.kafka.protocol.sasl_calls import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    AuthenticateAnswer,
    decode_authenticate_answer,
    decode_handshake_answer,
    encode_authenticate,
    encode_handshake,
)
from holdfast.kafka.protocol.scram import SCRAM_SHA_256, SCRAM_SHA_512, ClientSide
from tests.world.identity.mechanisms import SCRAM

ALICE = {each: derive(each, "sesame", 4_096) for each in SCRAM}
USERS = Users(KeptUsers({"alice": ALICE}))
ANY = tuple(MECHANISMS)


def login(
    mechanisms: tuple[str, ...] = ANY, lifetime_ms: int = 0, users: Callable[[], Users] = lambda: USERS
) -> SaslLogin:
    return SaslLogin(LoginRules(mechanisms, 4_096, lifetime_ms, users))


def choose(ours: SaslLogin, mechanism: str) -> Outcome:
    return ours.take(SASL_HANDSHAKE, 1, encode_handshake(mechanism), 0)


def say(ours: SaslLogin, message: bytes, version: int = 2) -> Outcome:
    return ours.take(SASL_AUTHENTICATE, version, encode_authenticate(version, message), 0)


def answer(outcome: Outcome, version: int = 2) -> AuthenticateAnswer:
    assert not isinstance(outcome, Undecided)
    return decode_authenticate_answer(version, outcome.body, 0)


def log_in(ours: SaslLogin, mechanism: str, name: str = "alice", password: str = "sesame", version: int = 2) -> Outcome:
    """Return how a login ends that does all as it should, but for the password."""
    assert isinstance(choose(ours, mechanism), Answered)
    if mechanism == "PLAIN":
        undecided = say(ours, f"\0{name}\0{password}".encode(), version)
        assert isinstance(undecided, Undecided)
        return ours.checked(undecided.check())
    client = ClientSide(mechanism, name, password)
    challenged = say(ours, client.begin(), version)
    assert isinstance(challenged, Answered)
    outcome = say(ours, client.prove(answer(challenged, version).message), version)
    if isinstance(outcome, LoggedIn):
        client.check(answer(outcome, version).message)
    return outcome


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("version", [0, 1, 2])
def test_who_knows_the_password_is_let_in(mechanism: str, version: int) -> None:
    outcome = log_in(login(lifetime_ms=9_000), mechanism, version=version)
    assert isinstance(outcome, LoggedIn)
    assert (outcome.name, outcome.lifetime_ms) == ("alice", 9_000)
    assert answer(outcome, version).error_code == 0
    assert answer(outcome, version).lifetime_ms == (9_000 if version else 0)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_and_an_unknown_user_are_told_the_same(mechanism: str) -> None:
    wrong, unknown = (log_in(login(), mechanism, name, "guess") for name in ("alice", "mallory"))
    assert isinstance(wrong, Refused)
    assert isinstance(unknown, Refused)
    assert wrong.body == unknown.body
    assert answer(wrong) == AuthenticateAnswer(
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        f"Authentication failed due to invalid credentials with SASL mechanism {mechanism}",
        b"",
        0,
    )
    assert [(each.mechanism, each.name) for each in (wrong, unknown)] == [(mechanism, "alice"), (mechanism, "mallory")]
    assert str(wrong).startswith(f"{mechanism} as user 'alice': ")


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", ["Zoë", "Zoe\u0308"])
def test_all_ways_to_write_a_name_are_one_user(mechanism: str, name: str) -> None:
    users = Users(KeptUsers({"Zoë": {each: derive(each, "sesame", 4_096) for each in SCRAM}}))
    outcome = log_in(login(users=lambda: users), mechanism, name)
    assert isinstance(outcome, LoggedIn)
    assert outcome.name == "Zoë"


def test_a_client_that_normalises_nothing_is_the_same_user() -> None:
    ours = login()
    choose(ours, SCRAM_SHA_256)
    assert isinstance(say(ours, "n,,n=\uff41lice,r=nonce".encode()), Answered)
    assert ours._exchange is not None
    assert ours._exchange.name == "alice"
    choose(other := login(), "PLAIN")
    refused = say(other, "\0\U0001f600\0sesame".encode())
    assert isinstance(refused, Refused)
    assert "its name is none" in refused.why


def test_a_mechanism_that_is_off_is_refused_with_those_that_are_on() -> None:
    outcome = choose(login((SCRAM_SHA_512,)), "PLAIN")
    assert isinstance(outcome, Refused)
    assert decode_handshake_answer(outcome.body, 0) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, [SCRAM_SHA_512])
    assert outcome.why == "it chooses the mechanism 'PLAIN', and there are SCRAM-SHA-512"


def test_a_login_without_headers_is_refused_with_the_version_to_send() -> None:
    outcome = login().take(SASL_HANDSHAKE, 0, encode_handshake("PLAIN"), 0)
    assert isinstance(outcome, Refused)
    assert decode_handshake_answer(outcome.body, 0).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert outcome.why == "it sends SaslHandshake 0, after which logins have no header; it must send 1"


def test_what_comes_out_of_its_order_is_refused() -> None:
    early = say(login(), b"\0alice\0sesame")
    assert answer(early).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert isinstance(early, Refused)
    ours = login()
    choose(ours, "PLAIN")
    twice = choose(ours, "PLAIN")
    assert isinstance(twice, Refused)
    assert decode_handshake_answer(twice.body, 0).error_code == ErrorCode.ILLEGAL_SASL_STATE
    hasty = login()
    choose(hasty, "PLAIN")
    assert isinstance(say(hasty, b"\0alice\0guess"), Undecided)
    second = say(hasty, b"\0alice\0sesame")
    assert answer(second).error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_a_login_that_is_put_off_is_told_to_try_again() -> None:
    ours = login()
    choose(ours, "PLAIN")
    assert isinstance(say(ours, b"\0alice\0sesame"), Undecided)
    refused = ours.put_off()
    answered = answer(refused)
    assert answered.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert "try again" in (answered.error_message or "")
    assert str(refused) == "PLAIN as user 'alice': too many wait for the check"


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"alice\0sesame", "its message has 2 parts, and three are expected"),
        (b"\0\0sesame", "it gives no name or no password"),
        (b"\0alice\0", "it gives no name or no password"),
        (b"bob\0alice\0sesame", "it wants to act as another user than it is"),
        (b"\xff", "its message is not UTF-8"),
        (b"x" * 4_097, "its message has more than 4096 bytes"),
    ],
)
def test_a_message_of_plain_that_is_none_is_refused(message: bytes, why: str) -> None:
    ours = login()
    choose(ours, "PLAIN")
    outcome = say(ours, message)
    assert isinstance(outcome, Refused)
    assert outcome.why.endswith(why)
    assert answer(outcome).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_long_name_is_refused_before_it_is_prepared() -> None:
    for mechanism, message in (
        (SCRAM_SHA_256, b"n,,n=" + b"a" * 4_000 + b",r=nonce"),
        ("PLAIN", b"\0" + b"a" * 256 + b"\0x"),
    ):
        ours = login()
        choose(ours, mechanism)
        assert isinstance(say(ours, message), Refused)


@pytest.mark.parametrize(
    "name", ["\ufdfa" * 255, "\ufdfa" * 15, "\u3300" * 64, "\ufb03" * 86, "a" + "\u0300\u0323" * 128]
)
@pytest.mark.parametrize("place", ["name", "password"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_nothing_is_prepared_that_grows_beyond_the_longest_name(
    monkeypatch: pytest.MonkeyPatch, mechanism: str, place: str, name: str
) -> None:
    """One character may become 18, and SASLprep looks at each a dozen times; nobody has logged in yet."""
    prepared: list[str] = []

    def saslprep(text: str) -> str:
        prepared.append(unicodedata.normalize("NFKC", text))
        return prepared[-1]

    monkeypatch.setattr(scramp.core, "saslprep", saslprep)
    monkeypatch.setattr(scram, "saslprep", saslprep)
    ours = login()
    choose(ours, mechanism)
    if mechanism == "PLAIN":
        outcome = say(ours, f"\0{name}\0x".encode() if place == "name" else f"\0alice\0{name}".encode())
    else:
        outcome = say(ours, f"n,,n={name},r=nonce".encode() if place == "name" else f"n,,r=nonce,n={name}".encode())
    assert isinstance(outcome, Refused)
    assert max(map(len, prepared), default=0) <= scram.CHARACTERS_MAX


@pytest.mark.parametrize("name", ["k\u00e4the", "\u682a\u5f0f\u4f1a\u793e", "a" * 255, "\ud55c" * 255])
def test_a_name_beyond_ascii_is_a_name(name: str) -> None:
    assert scram.prepare_name(name) == name
    users = Users(KeptUsers({name: {each: derive(each, "sesame", 4_096) for each in SCRAM}}))
    mechanisms = [each for each in MECHANISMS if len(name.encode()) < 700 or each == "PLAIN"]
    for mechanism in mechanisms:
        assert isinstance(log_in(login(users=lambda: users), mechanism, name), LoggedIn)


def test_a_name_in_a_log_line_is_cut_and_shows_no_line_end() -> None:
    ours = login()
    choose(ours, "PLAIN")
    refused = say(ours, b"\0" + b"a\n" * 127 + b"\0x")
    assert isinstance(refused, Refused)
    assert len(str(refused)) < 200
    assert "\n" not in str(refused)


def test_a_login_anew_must_be_of_the_same_user_by_the_same_mechanism() -> None:
    ours = login()
    assert isinstance(log_in(ours, SCRAM_SHA_256), LoggedIn)
    assert isinstance(log_in(ours, SCRAM_SHA_256), LoggedIn)
    other = log_in(ours, SCRAM_SHA_512)
    assert isinstance(other, Refused)
    assert other.why.endswith("it logs in again as another user, or by another mechanism")


def test_users_are_those_of_the_moment_at_which_a_login_begins() -> None:
    users = Users(KeptUsers({}))
    ours = login(users=lambda: users)
    assert isinstance(log_in(ours, SCRAM_SHA_256), Refused)
    users = USERS
    assert isinstance(log_in(login(users=lambda: users), SCRAM_SHA_256), LoggedIn)


@pytest.mark.parametrize("is_again", [False, True])
@pytest.mark.parametrize("becomes", ["removed", "given another password", "added again with the same password"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_login_that_began_before_its_user_changed_comes_to_nothing(
    mechanism: str, becomes: str, is_again: bool
) -> None:
    password = "sesame" if "same" in becomes else "another"
    keys = {} if becomes == "removed" else {"alice": {each: derive(each, password, 4_096) for each in SCRAM}}
    users = USERS
    ours = login(users=lambda: users)
    if is_again:
        assert isinstance(log_in(ours, mechanism), LoggedIn)
    choose(ours, mechanism)
    if mechanism == "PLAIN":
        undecided = say(ours, b"\0alice\0sesame")
        assert isinstance(undecided, Undecided)
        users = Users(KeptUsers(keys))
        outcome = ours.checked(undecided.check())
    else:
        client = ClientSide(mechanism, "alice", "sesame")
        challenged = answer(say(ours, client.begin()))
        users = Users(KeptUsers(keys))
        outcome = say(ours, client.prove(challenged.message))
    assert isinstance(outcome, Refused)
    assert outcome.why == "its user was removed or changed since it began to log in"
    assert answer(outcome).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_login_goes_on_when_only_other_users_changed(mechanism: str) -> None:
    counted = iter(range(100))

    def users() -> Users:
        others = {f"bob{next(counted)}": {SCRAM_SHA_512: derive(SCRAM_SHA_512, "x", 4_096)}}
        return Users(KeptUsers({"alice": ALICE} | others))

    assert isinstance(log_in(login(users=users), mechanism), LoggedIn)


@given(st.lists(st.tuples(st.sampled_from([SASL_HANDSHAKE, SASL_AUTHENTICATE]), st.binary(max_size=60)), max_size=4))
def test_bytes_of_any_kind_never_let_anybody_in(calls: list[tuple[int, bytes]]) -> None:
    ours = login()
    for api_key, body in calls:
        try:
            outcome = ours.take(api_key, 1, body, 0)
        except MalformedBody:
            continue
        assert not isinstance(outcome, LoggedIn)
        if isinstance(outcome, Refused):
            return


@given(st.sampled_from(MECHANISMS), st.lists(st.binary(max_size=60), min_size=1, max_size=3))
def test_messages_of_any_kind_never_let_anybody_in(mechanism: str, messages: list[bytes]) -> None:
    ours = login()
    choose(ours, mechanism)
    for message in messages:
        outcome = say(ours, message)
        assert not isinstance(outcome, LoggedIn)
        if isinstance(outcome, Undecided):
            assert isinstance(ours.checked(False), Refused)
            return
        if isinstance(outcome, Refused):
            return
