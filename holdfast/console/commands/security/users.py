"""`holdfast users`: who can log in at a node, in a file that holds no password."""

import sys
from collections.abc import Sequence
from getpass import GetPassWarning
from pathlib import Path
from typing import Any, Final
from warnings import catch_warnings

import click

from holdfast.console.options import dry_run_option, json_option
from holdfast.console.outcomes import Exit, Failure
from holdfast.console.show.output import print_json, print_table, say
from holdfast.daemon.login.credentials import (
    ITERATIONS_DEFAULT,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    KeptUsers,
    PasswordRefused,
    derive,
)
from holdfast.daemon.login.users_file import UsersFileMissing, UsersFileWrong, read_kept, why_no_name, write_kept
from holdfast.kafka.protocol.scram import KEY_BYTES

_STDIN: Final = "-"

_file_option = click.option(
    "--file",
    "path",
    envvar="HOLDFAST_LISTENER_USERS_FILE",
    show_envvar=True,
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file that listener.users.file names.",
)


@click.group()
def users() -> None:
    """Say who can log in at the nodes that read a file of users.

    A running node takes over a changed file by itself, within files.reload.interval.ms.

    Example: holdfast users list --file /etc/holdfast/users
    """


@users.command("add")
@click.argument("name")
@click.option(
    "--mechanism",
    "mechanisms",
    multiple=True,
    type=click.Choice(list(KEY_BYTES)),
    help="A mechanism by which the user logs in; PLAIN goes by any of them.  [default: all]",
)
@click.option(
    "--iterations",
    type=click.IntRange(ITERATIONS_MIN, ITERATIONS_MAX),
    default=ITERATIONS_DEFAULT,
    show_default=True,
    help="How much work a guess of the password costs, and each login.",
)
@click.option(
    "--password-file",
    type=click.Path(dir_okay=False, allow_dash=True),
    help="File whose first line is the password, or - for the standard input.  [default: a prompt]",
)
@_file_option
@dry_run_option
@json_option
def add_user(
    name: str,
    mechanisms: Sequence[str],
    iterations: int,
    password_file: str | None,
    path: Path,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Add a user, or give one a new password.

    The file is made if there is none; nodes of one cluster must have copies of one file.

    Example: holdfast users add alice --file /etc/holdfast/users --password-file alice.password
    """
    if why := why_no_name(name):
        raise Failure(f"{name!r} is no name of a user: {why}.", Exit.WRONG_USAGE)
    kept = _read(path, may_be_missing=True)
    password = _read_password(password_file)
    try:
        own = {each: derive(each, password, iterations) for each in mechanisms or KEY_BYTES}
    except PasswordRefused as error:
        raise Failure(f"The password is refused: {error}.", Exit.WRONG_USAGE) from None
    is_new = name not in kept.credentials
    _write(path, kept.changed({**kept.credentials, name: own}), is_dry_run=dry_run)
    if as_json:
        print_json({"name": name, "mechanisms": list(own), "is_new": is_new, "dry_run": dry_run})
        return
    verb = "would be" if dry_run else "is"
    what = f"{name} {verb} {'added' if is_new else 'given a new password'}, with {', '.join(own)}"
    say(f"{what}: nothing was changed (--dry-run)." if dry_run else f"{what}.")


@users.command("remove")
@click.argument("name")
@_file_option
@dry_run_option
@json_option
def remove_user(name: str, path: Path, dry_run: bool, as_json: bool) -> None:
    """Remove a user; connections that are open stay so until their login ends (connections.max.reauth.ms).

    Example: holdfast users remove alice --file /etc/holdfast/users
    """
    kept = _read(path)
    if name not in kept.credentials:
        raise Failure(f"{path} has no user {name!r}; `holdfast users list` shows who is in it.", Exit.NOT_FOUND)
    others = {each: own for each, own in kept.credentials.items() if each != name}
    _write(path, kept.changed(others), is_dry_run=dry_run)
    if as_json:
        print_json({"name": name, "dry_run": dry_run})
    else:
        say(f"{name} would be removed: nothing was changed (--dry-run)." if dry_run else f"{name} is removed.")


@users.command("list")
@_file_option
@json_option
def list_users(path: Path, as_json: bool) -> None:
    """Print who is in a file, and by which mechanisms each can log in.

    Example: holdfast users list --file /etc/holdfast/users
    """
    rows: list[dict[str, Any]] = [
        {"name": name, "mechanisms": sorted(own), "iterations": min(each.iterations for each in own.values())}
        for name, own in sorted(_read(path).credentials.items())
    ]
    if as_json:
        print_json(rows)
    else:
        cells = [(row["name"], ", ".join(row["mechanisms"]), row["iterations"]) for row in rows]
        print_table(("user", "mechanisms", "iterations"), cells, numbers=("iterations",))


def _read(path: Path, *, may_be_missing: bool = False) -> KeptUsers:
    try:
        return read_kept(path, may_be_missing=may_be_missing)
    except UsersFileMissing as error:
        raise Failure(str(error), Exit.NOT_FOUND) from None
    except UsersFileWrong as error:
        raise Failure(str(error), Exit.WRONG_USAGE) from None


def _write(path: Path, kept: KeptUsers, *, is_dry_run: bool) -> None:
    if is_dry_run:
        return
    try:
        write_kept(path, kept)
    except UsersFileWrong as error:
        raise Failure(str(error)) from None


def _read_password(password_file: str | None) -> str:
    if password_file is not None:
        return _first_lines(password_file, 1)[0]
    try:
        with catch_warnings(action="error", category=GetPassWarning):
            return str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    except GetPassWarning:  # there is no terminal
        password, again = _first_lines(_STDIN, 2)
    if not password or password != again:
        raise Failure(
            "There is no terminal, and no password was entered twice on the standard input; name a file that has it by "
            "--password-file, or - for the standard input.",
            Exit.WRONG_USAGE,
        )
    return password


def _first_lines(name: str, count: int) -> list[str]:
    """Return the first `count` lines of a file, or of the standard input; those that it lacks are empty."""
    if name == _STDIN and sys.stdin is None:  # it is closed
        return [""] * count
    try:
        with click.open_file(name, encoding="utf-8") as file:
            return [str(file.readline()).removesuffix("\n").removesuffix("\r") for _ in range(count)]
    except (OSError, UnicodeDecodeError) as error:
        where = "the standard input" if name == _STDIN else name
        raise Failure(f"The password cannot be read from {where} ({error}).", Exit.WRONG_USAGE) from None
