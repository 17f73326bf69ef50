"""`holdfast page`: the address at which it may be served."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from holdfast.cli import main
from holdfast.console.commands.page import _Bugs
from holdfast.console.outcomes import Exit


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "192.0.2.1:80", "example.org:80"])
def test_an_address_that_others_reach_is_refused(listen: str) -> None:
    result = CliRunner().invoke(main, ["page", "--listen", listen])
    assert result.exit_code == Exit.WRONG_USAGE
    assert f"--listen {listen} is not an address of loopback, and the page has no logins" in result.stderr


def test_an_address_that_is_none_is_refused() -> None:
    result = CliRunner().invoke(main, ["page", "--listen", "9000"])
    assert result.exit_code == Exit.WRONG_USAGE
    assert "--listen 9000 is not HOST:PORT" in result.stderr


def test_a_bug_is_told_of_once_with_what_to_report(capsys: pytest.CaptureFixture[str]) -> None:
    bugs = _Bugs()
    for path in ("/", "/", "/\x1b[31m"):
        try:
            raise KeyError("nothing")
        except KeyError as error:
            bugs.tell(error, path)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("which is a bug of Holdfast") == 2
    assert said.err.count("KeyError: 'nothing'") == 2
    assert "\x1b" not in said.err
    for number in range(1_000):
        bugs.tell(KeyError(), f"/{number}")
    assert capsys.readouterr().err.count("which is a bug of Holdfast") <= 20
