"""`holdfast page` as it is typed, on a stock Kafka: what it prints, its JSON, and its end."""

from __future__ import annotations

import asyncio

import pytest

from tests.real.page.opened import answer_when, by_cli, page_command
from tests.real.page.stuck import Stuck
from tests.waiting import in_patience
from tests.world.http import get

pytestmark = pytest.mark.real


async def test_its_json_has_the_numbers_of_the_command_line(kafka: str, stuck: Stuck) -> None:
    with page_command(kafka) as (port, _):
        path = f"/api/v1/group?group={stuck.group}"
        answer = await answer_when(port, path, lambda answer: answer.status == 200 and answer.json()["lag"] is not None)
        described = await by_cli(kafka, "groups", "describe", stuck.group)
        view = answer.json()
        assert {name: view[name] for name in described} == described
        unknown = await get(port, f"/api/v1/group?group={stuck.group[:-1]}")
        assert (unknown.status, unknown.json()["nearest"]) == (404, [stuck.group])
        assert (await get(port, "/api/v1/group-topics", method="POST")).status == 405
        assert (await get(port, "/", host="elsewhere.example")).status == 421


async def test_ctrl_c_ends_it_at_once_with_pages_open(kafka: str) -> None:
    opened = list[asyncio.StreamWriter]()
    with page_command(kafka) as (port, _):
        for _ in range(5):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            while not (await in_patience(reader.readline())).startswith(b"retry: "):
                pass
            opened.append(writer)
    for writer in opened:
        writer.close()
