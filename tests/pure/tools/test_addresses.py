"""Every address is joined by `format_address`, which puts an IPv6 host in brackets; a text joined by hand is no address."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
#: Where the one function is that joins them.
JOINS = Path("holdfast/kafka/addresses.py")

_HOST = re.compile(r"host|addr", re.IGNORECASE)
_PORT = re.compile(r"(^|_)port(_|$)", re.IGNORECASE)


def _name(value: ast.expr) -> str:
    """Return the last name of an expression, as that of the attribute, the function or the key that it takes."""
    match value:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
        case ast.Call(func=ast.Name(id="str"), args=[inner, *_]):
            return _name(inner)
        case ast.Call(func=inner) | ast.BoolOp(values=[inner, *_]) | ast.Subscript(value=inner):
            return _name(inner)
    return ""


def _is_place(before: ast.expr, after: ast.expr) -> bool:
    """Tell whether two expressions are a host and a port, by their names or as the two parts of one pair."""
    match before, after:
        case ast.Subscript(value=first, slice=ast.Constant(value=0)), ast.Subscript(
            value=second, slice=ast.Constant(value=1)
        ):
            return ast.dump(first) == ast.dump(second)
    return bool(_HOST.search(_name(before)) or _PORT.search(_name(after)))


def _parts(node: ast.AST) -> list[ast.expr]:
    """Return what a text is joined of, in an f-string or by `+`."""
    match node:
        case ast.JoinedStr(values=values):
            return [each.value if isinstance(each, ast.FormattedValue) else each for each in values]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return [*(_parts(left) or [left]), *(_parts(right) or [right])]
    return []


def joined_by_hand(source: str) -> Iterator[int]:
    """Yield the line of each text that has a host, a colon and a port."""
    for node in ast.walk(ast.parse(source)):
        parts = _parts(node)
        for before, colon, after in zip(parts, parts[1:], parts[2:], strict=False):
            if isinstance(colon, ast.Constant) and colon.value in (":", "]:") and _is_place(before, after):
                yield node.lineno  # type: ignore[attr-defined]  # an expression has a line


@pytest.mark.parametrize("room", ["holdfast", "tools", "examples"])
def test_no_address_is_joined_by_hand(room: str) -> None:
    paths = [path.relative_to(ROOT) for path in (ROOT / room).rglob("*.py")]
    found = [f"{path}:{line}" for path in paths if path != JOINS for line in joined_by_hand((ROOT / path).read_text())]
    assert not found, "use `holdfast.kafka.addresses.format_address`"


@pytest.mark.parametrize(
    "text",
    [
        'f"{host}:{port}"',
        'f"at {self.host}:{self.port} now"',
        'f"{address[0]}:{address[1]}"',
        'f"{HOST}:{ports.broker}"',
        'f"{broker}:{http_port or choose()}"',
        'f"[{name}]:{port}"',
        'f"{row["host"]}:{row["port"]}"',
        'host + ":" + str(port)',
    ],
)
def test_a_text_joined_by_hand_is_found(text: str) -> None:
    assert [*joined_by_hand(text.replace('["host"]', "['host']").replace('["port"]', "['port']"))]


@pytest.mark.parametrize("text", ['f"{key.group_id}:{key.partition}"', 'f"{name}: {port}"', 'f"{pair[0]}:{other[1]}"'])
def test_other_texts_are_no_addresses(text: str) -> None:
    assert not [*joined_by_hand(text)]
