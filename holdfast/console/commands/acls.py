"""`holdfast acls`: the file of access rules of a node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click

from holdfast.console.options import dry_run_option, json_option
from holdfast.console.outcomes import Exit, Failure
from holdfast.console.show.output import counted, print_json, print_rows, say
from holdfast.console.show.tables import Column, escaped
from holdfast.daemon.access.acl import ANY, ANYBODY, CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from holdfast.daemon.access.acl_file import AclFileError, AclFileMissing, Line, line_of, read_lines, write_lines
from holdfast.daemon.access.rules import Rules
from holdfast.daemon.settings.components.listener import principal_problem

_COLUMNS: Final = {name: Column(name) for name in Acl._fields}

_group_option = click.option("--group", "groups", multiple=True, help="A group, or * for all; several may be given.")
_topic_option = click.option("--topic", "topics", multiple=True, help="A topic, or * for all; several may be given.")
_cluster_option = click.option("--cluster", is_flag=True, help="The cluster: admin commands, and CLUSTER_ACTION.")
_operation_type = click.Choice([each.value for each in Operation], case_sensitive=False)


def _file_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add the option that names the file."""
    return click.option(
        "--acls-file",
        "path",
        type=click.Path(dir_okay=False, path_type=Path),
        envvar="HOLDFAST_ACLS_FILE",
        show_envvar=True,
        required=True,
        metavar="FILE",
        help="The file of access rules, which is the setting acls_file of the node.",
    )(command)


def _rule_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say rules; the command gets `rules` in their place."""

    @click.option(
        "--allow-principal", "allowed", multiple=True, metavar="PRINCIPAL", help="As in User:orders, or User:*."
    )
    @click.option(
        "--deny-principal", "denied", multiple=True, metavar="PRINCIPAL", help="Denies; it wins over all that allow."
    )
    @click.option("--host", default=ANY, show_default=True, help="Address of the client, without a port.")
    @click.option(
        "--operation",
        "operations",
        type=_operation_type,
        multiple=True,
        required=True,
        help="Operation that the rule is about.",
    )
    @_group_option
    @_topic_option
    @_cluster_option
    @click.option(
        "--resource-pattern-type",
        "pattern",
        type=click.Choice(["literal", "prefixed"], case_sensitive=False),
        default="literal",
        show_default=True,
        help="Whether the group or topic is meant, or all whose names begin so.",
    )
    @wraps(command)
    def with_rules(
        allowed: Sequence[str],
        denied: Sequence[str],
        host: str,
        operations: Sequence[str],
        groups: Sequence[str],
        topics: Sequence[str],
        cluster: bool,
        pattern: str,
        **arguments: Any,  # noqa: ANN401
    ) -> None:
        principals = [(each, Permission.ALLOW) for each in allowed] + [(each, Permission.DENY) for each in denied]
        if not principals:
            raise Failure("Nobody is named; give --allow-principal or --deny-principal.", Exit.WRONG_USAGE)
        rules = [
            Acl(principal, permission, Operation(operation.upper()), resource, name, kind, host)
            for principal, permission in principals
            for operation in operations
            for resource, name, kind in _resources(groups, topics, cluster, PatternType(pattern.upper()))
        ]
        for rule in rules:
            field, why = rule.problem()
            if field:
                raise Failure(f"The {field} {why}.", Exit.WRONG_USAGE)
        command(rules=list(dict.fromkeys(rules)), **arguments)

    return with_rules


def _resources(
    groups: Sequence[str], topics: Sequence[str], is_cluster: bool, pattern: PatternType
) -> list[tuple[ResourceType, str, PatternType]]:
    """Return the resources that options name.

    Raises:
        Failure: they name none.
    """
    if not groups and not topics and not is_cluster:
        raise Failure("No resource is named; give --group, --topic or --cluster.", Exit.WRONG_USAGE)
    cluster = [(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL)] if is_cluster else []
    named = [(ResourceType.GROUP, groups), (ResourceType.TOPIC, topics)]
    return [(resource, name, pattern) for resource, names in named for name in names] + cluster


@click.group()
def acls() -> None:
    """Show and change who may do what, in the file of access rules of a node.

    The commands work on the file, on the host of the node, and a node that runs takes the change over.

    Example: holdfast acls list --acls-file acls.jsonl
    """


@acls.command("add")
@_rule_options
@dry_run_option
@json_option
@_file_option
def add(rules: list[Acl], dry_run: bool, as_json: bool, path: Path) -> None:
    """Add rules; the file is made if it is missing.

    There is a rule for each principal, operation and resource that is named.

    Example: holdfast acls add --acls-file acls.jsonl --allow-principal User:orders --operation ALL --group orders
    """
    lines = _read(path, may_be_missing=True)
    known = {line.acl for line in lines}
    added = [rule for rule in rules if rule not in known]
    _change(path, [*lines, *map(line_of, added)], added, [], dry_run, as_json)


@acls.command("remove")
@_rule_options
@dry_run_option
@json_option
@_file_option
def remove(rules: list[Acl], dry_run: bool, as_json: bool, path: Path) -> None:
    """Remove rules; each rule that is named must be there, and comments stay.

    Example: holdfast acls remove --acls-file acls.jsonl --allow-principal User:orders --operation ALL --group orders
    """
    lines = _read(path)
    known = {line.acl for line in lines}
    if missing := [rule for rule in rules if rule not in known]:
        raise Failure(f"There is no such rule: {missing[0]}; `holdfast acls list` shows all.", Exit.NOT_FOUND)
    _change(path, [line for line in lines if line.acl not in rules], [], rules, dry_run, as_json)


@acls.command("list")
@click.option("--principal", help="Only rules that are about this one, as in User:orders; those of User:* among them.")
@click.option("--group", help="Only rules that are about this group; those of prefixes among them.")
@click.option("--topic", help="Only rules that are about this topic; those of prefixes among them.")
@json_option
@_file_option
def list_rules(principal: str | None, group: str | None, topic: str | None, as_json: bool, path: Path) -> None:
    """Show the rules, in the order of the file.

    Example: holdfast acls list --acls-file acls.jsonl --principal User:orders
    """
    rows = [
        _row(line.acl)
        for line in _read(path)
        if line.acl is not None
        and (principal is None or line.acl.principal in (principal, ANYBODY))
        and (group is None or _is_about(line.acl, ResourceType.GROUP, group))
        and (topic is None or _is_about(line.acl, ResourceType.TOPIC, topic))
    ]
    if as_json:
        print_json(rows)
    else:
        print_rows(_COLUMNS, rows)


@acls.command("check")
@click.option(
    "--principal", required=True, help="Principal, as in User:orders; User:ANONYMOUS is any client without login."
)
@click.option("--operation", type=_operation_type, required=True, help="Operation that it would carry out.")
@_group_option
@_topic_option
@_cluster_option
@click.option(
    "--host", default=ANY, show_default=True, help="Address of the client, without a port; *: no matter where."
)
@click.option(
    "--super-users",
    envvar="HOLDFAST_SUPER_USERS",
    show_envvar=True,
    default="",
    help="Principals that may do everything, with a semicolon between them.",
)
@json_option
@_file_option
def check(
    principal: str,
    operation: str,
    groups: Sequence[str],
    topics: Sequence[str],
    cluster: bool,
    host: str,
    super_users: str,
    as_json: bool,
    path: Path,
) -> None:
    """Say whether a principal may do something, and which rule decides; what is denied ends with exit code 8.

    Example: holdfast acls check --acls-file acls.jsonl --principal User:orders --operation READ --group orders
    """
    if problem := principal_problem(principal):
        raise Failure(f"The principal {problem}.", Exit.WRONG_USAGE)
    supers = [each.strip() for each in super_users.split(";") if each.strip()]
    rules = Rules((line.acl for line in _read(path) if line.acl is not None), supers)
    rows = []
    for resource, name, _ in _resources(groups, topics, cluster, PatternType.LITERAL):
        decision = rules.decide(principal, host, Operation(operation.upper()), resource, name)
        row = {"resource": resource.value, "name": name, "is_allowed": decision.is_allowed, "why": decision.why}
        rows.append(row | {"rule": None if decision.rule is None else _row(decision.rule)})
        if not as_json:
            verdict = "allowed" if decision.is_allowed else "denied"
            click.echo(escaped(f"{resource.value} {name}: {verdict}, for {decision.why}"))
    if as_json:
        print_json(rows)
    if not all(row["is_allowed"] for row in rows):
        raise Failure(f"{principal} may not {operation.upper()} all of this.", Exit.DENIED)


def _is_about(acl: Acl, resource: ResourceType, name: str) -> bool:
    is_named = name.startswith(acl.name) if acl.pattern is PatternType.PREFIXED else acl.name in (name, ANY)
    return acl.resource is resource and is_named


def _read(path: Path, *, may_be_missing: bool = False) -> list[Line]:
    try:
        return read_lines(path)
    except AclFileMissing as error:
        if may_be_missing:
            return []
        raise Failure(str(error), Exit.NOT_FOUND) from None
    except AclFileError as error:
        raise Failure(str(error), Exit.WRONG_USAGE) from None


def _row(acl: Acl) -> dict[str, str]:
    """Return a rule by its fields, for JSON and for a table."""
    return {name: value if isinstance(value, str) else value.value for name, value in acl._asdict().items()}


def _change(
    path: Path, lines: list[Line], added: list[Acl], removed: list[Acl], is_dry_run: bool, is_json: bool
) -> None:
    is_changed = bool(added or removed) and not is_dry_run
    if is_changed:
        try:
            write_lines(path, lines)
        except AclFileError as error:
            raise Failure(str(error)) from None
    if is_json:
        changes = {"added": [_row(acl) for acl in added], "removed": [_row(acl) for acl in removed]}
        print_json(changes | {"changed": is_changed, "dry_run": is_dry_run})
        return
    for sign, acls_ in (("+", added), ("-", removed)):
        for acl in acls_:
            say(f"{sign} {acl}")
    if is_dry_run:
        say("Nothing was changed (--dry-run).")
    elif is_changed:
        say(f"{path} has {counted(sum(line.acl is not None for line in lines), 'rule')}.")
    else:
        say("Nothing changed: the file has these rules.")
