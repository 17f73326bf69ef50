"""A refusal is a page for those who prefer one, and JSON for all others."""

from __future__ import annotations

import pytest

from holdfast.http_refusals import refusal
from tests.world.http import BROWSER


@pytest.mark.parametrize(
    ("accept", "path", "is_page"),
    [
        (BROWSER, "/", True),
        ("text/html", "/window", True),
        ("TEXT/HTML;q=0.9, application/json;q=0.8", "/", True),
        (BROWSER, "/api/v1/group", False),
        ("*/*", "/", False),
        ("", "/", False),
        ("application/json, text/html", "/", False),
        ("text/html;q=0.5, application/json", "/", False),
        ("text/html;q=0", "/", False),
        ("text/html;q=much", "/", False),
        ("text/htmlx, ;;q=,", "/", False),
    ],
)
def test_a_request_that_prefers_html_is_refused_by_a_page(accept: str, path: str, is_page: bool) -> None:
    scope = {"type": "http", "path": path, "headers": [(b"accept", accept.encode())]}
    answer = refusal(scope, 503, "Ask <later>.", {"Retry-After": "7"})
    assert answer.status_code == 503
    assert (answer.media_type == "text/html") == is_page
    assert (b"Ask &lt;later&gt;." in answer.body) == is_page
    assert (answer.headers["retry-after"], answer.headers.get("refresh")) == ("7", "7" if is_page else None)
