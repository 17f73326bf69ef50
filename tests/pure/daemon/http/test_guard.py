"""Whom the HTTP port shows what: tokens, names of the node, and what is needed where others reach it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.daemon.http.guard import (
    GuardRefused,
    HttpGuard,
    OpenGuard,
    ScrapeGuard,
    TokenGuard,
    make_guard,
    tls_files,
)
from holdfast.daemon.settings.components.http import HttpSettings


def test_a_token_is_needed_where_one_is_set_and_a_new_one_is_taken_over(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\nnot this\n")
    guard = make_guard(HttpSettings(token_file=str(file)), is_listener_open=True)
    assert guard.admits({"authorization": "Bearer first"})
    assert guard.admits({"authorization": "bearer  first "})
    for wrong in ({}, {"authorization": "first"}, {"authorization": "Basic first"}, {"authorization": "Bearer firs"}):
        assert not guard.admits(wrong)
    assert not guard.admits({"authorization": "Bearer not this"})
    file.write_text("the second\n")
    assert not guard.admits({"authorization": "Bearer first"})
    assert guard.admits({"authorization": "Bearer the second"})
    for gone in (lambda: file.write_text("\n"), file.unlink):
        gone()
        assert not guard.admits({"authorization": "Bearer the second"})
        assert not guard.admits({"authorization": "Bearer "})
        assert not guard.admits({})


@pytest.mark.parametrize(
    ("given", "is_listener_open", "guard"),
    [
        ({}, True, OpenGuard()),
        ({}, False, ScrapeGuard()),
        ({"tls_certificate_file": "c", "tls_client_ca_file": "c"}, False, OpenGuard()),
    ],
)
def test_without_a_token_all_is_shown_to_whom_the_listener_shows_it(
    given: dict[str, str], is_listener_open: bool, guard: HttpGuard
) -> None:
    made = make_guard(HttpSettings(**given), is_listener_open=is_listener_open)  # type: ignore[arg-type]
    assert type(made) is type(guard)
    assert (made.admits({}), made.admits_scrape({})) == (guard.admits({}), True)


def test_a_token_that_cannot_be_read_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(GuardRefused, match=r"http\.token\.file .*/none cannot be read \(No such file"):
        TokenGuard(str(tmp_path / "none"))
    empty = tmp_path / "empty"
    empty.write_text(" \ntoken\n")
    with pytest.raises(GuardRefused, match="has no token in its first line"):
        TokenGuard(str(empty))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"listen": "0.0.0.0:1"}, "set http.tls.certificate.file, and http.token.file or http.tls.client.ca.file"),
        ({"listen": "10.0.0.1:1", "token_file": "t"}, "set http.tls.certificate.file"),
        ({"listen": "node:1", "tls_certificate_file": "c"}, "set http.token.file or http.tls.client.ca.file"),
        ({"tls_client_ca_file": "c"}, "need http.tls.certificate.file"),
        ({"tls_key_file": "c"}, "need http.tls.certificate.file"),
    ],
)
def test_who_may_be_reached_by_others_needs_tls_and_a_token_or_certificates(settings: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        HttpSettings(**settings)


@pytest.mark.parametrize("listen", ["", "127.0.0.1:9", "127.3.4.5:9", "[::1]:0", "localhost:1"])
def test_on_loopback_nothing_is_needed(listen: str) -> None:
    assert (HttpSettings(listen=listen).listen_address is None) == (listen == "")
    assert tls_files(HttpSettings(listen=listen)) is None


def test_the_default_address_may_move_and_one_that_was_set_may_not() -> None:
    assert HttpSettings().may_move
    assert not HttpSettings(listen="127.0.0.1:9592").may_move
    assert HttpSettings(listen="127.0.0.1:9593", port_may_move=True).may_move


# ---- TLS -------------------------------------------------------------------------------------------------------------
