"""SCRAM from both sides, against the vectors of the standard; whatever else is said is refused by one exception."""

from __future__ import annotations

from base64 import b64decode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.kafka.protocol.scram import (
    SCRAM_SHA_256,
    ClientSide,
    Keys,
    ScramRefused,
    ServerSide,
    derive_keys,
)

#: RFC 7677, section 3.
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = b"n,,n=user,r=" + CLIENT_NONCE.encode()
CHALLENGE = f"r={CLIENT_NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
FINAL = f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
SIGNATURE = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
PENCIL = derive_keys(SCRAM_SHA_256, "pencil", 4_096, SALT)


def server(keys: Keys = PENCIL) -> ServerSide:
    return ServerSide(SCRAM_SHA_256, lambda name: keys, SERVER_NONCE)


def test_the_example_of_rfc_7677_from_both_sides() -> None:
    client, ours = ClientSide(SCRAM_SHA_256, "user", "pencil", CLIENT_NONCE), server()
    assert client.begin() == FIRST
    assert ours.challenge(FIRST) == CHALLENGE
    assert client.prove(CHALLENGE) == FINAL
    assert ours.verify(FINAL) == SIGNATURE
    client.check(SIGNATURE)


@pytest.mark.parametrize(("mechanism", "size"), [("SCRAM-SHA-256", 32), ("SCRAM-SHA-512", 64)])
def test_keys_have_the_size_that_is_expected_of_them(mechanism: str, size: int) -> None:
    keys = derive_keys(mechanism, "sesame", 4_096)
    assert (len(keys.stored_key), len(keys.server_key)) == (size,) * 2
    assert derive_keys(mechanism, "sesame", 4_096).salt != keys.salt


@pytest.mark.parametrize(
    "final",
    [
        FINAL.replace(b"p=dH", b"p=eH"),
        FINAL.replace(b"hvYD", b"hvYE"),
        FINAL.replace(b"biws", b"biwt"),
        FINAL.partition(b",p=")[0],
        b"\xff",
        b"",
    ],
)
def test_a_proof_that_is_none_is_refused(final: bytes) -> None:
    ours = server()
    ours.challenge(FIRST)
    with pytest.raises(ScramRefused):
        ours.verify(final)


def test_a_replayed_proof_is_refused_because_the_server_says_something_new_each_time() -> None:
    ours = ServerSide(SCRAM_SHA_256, lambda name: PENCIL)
    ours.challenge(FIRST)
    with pytest.raises(ScramRefused):
        ours.verify(FINAL)


def test_a_server_that_does_not_know_the_password_is_found_out() -> None:
    client = ClientSide(SCRAM_SHA_256, "user", "pencil", CLIENT_NONCE)
    client.begin()
    client.prove(CHALLENGE)
    with pytest.raises(ScramRefused):
        client.check(SIGNATURE.replace(b"6rri", b"7rri"))


def test_a_server_cannot_have_a_client_count_for_long() -> None:
    client = ClientSide(SCRAM_SHA_256, "user", "pencil", CLIENT_NONCE)
    client.begin()
    with pytest.raises(ScramRefused):
        client.prove(CHALLENGE.replace(b"i=4096", b"i=99999999"))


@given(st.binary(max_size=200) | st.text(alphabet="n,=rcpay0\0é", max_size=40).map(str.encode))
def test_whatever_is_said_first_or_last_is_answered_or_refused(message: bytes) -> None:
    for is_first in (True, False):
        ours = server()
        try:
            if is_first:
                ours.challenge(message)
            else:
                ours.challenge(FIRST)
                ours.verify(message)
        except ScramRefused:
            pass
