"""Which format of the metrics a header `Accept` gets."""

from __future__ import annotations

import pytest
from prometheus_client.exposition import choose_encoder

from holdfast.metrics.exposition import expose
from holdfast.metrics.registry import Registry

OM = "application/openmetrics-text"
TEXT_0, TEXT_1, OM_1 = "text/plain; version=0.0.4", "text/plain; version=1.0.0", f"{OM}; version=1.0.0"


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        # None, or any.
        ("", TEXT_0),
        ("*/*", TEXT_0),
        ("text/*", TEXT_0),
        ("application/json", TEXT_0),
        (",;,=", TEXT_0),
        # As Prometheus 2 and 3 send it.
        (f"{OM};version=1.0.0;q=0.5,{OM};version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2", OM_1),
        (f"{OM};version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=1.0.0;q=0.4,*/*;q=0.1", OM_1),
        ("text/plain;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.5", TEXT_1),
        # What is excluded.
        (f"{OM};q=0, text/plain", TEXT_0),
        (f"{OM}; q=0.000, */*", TEXT_0),
        (f"{OM};q=0", TEXT_0),
        (f"{OM};version=1.0.0;Q=0;escaping=values,text/plain;version=1.0.0", TEXT_1),
        ("text/plain;q=0, */*", OM),
        (f"text/plain;q=0,{OM};q=0,*/*", TEXT_0),
        # What is preferred, wherever it stands.
        (f"{OM};q=0.2,text/plain;q=0.8", TEXT_0),
        (f"{OM};q=0.2,*/*;q=0.8", TEXT_0),
        (f"text/plain;q=0.2,{OM};q=0.8", OM),
        (f"text/plain,{OM}", TEXT_0),
        (f"{OM},text/plain", OM),
        (f"application/json,{OM};q=0.1", OM),
        # Other spellings, and what is none.
        ("APPLICATION/OpenMetrics-Text ; Version = 1.0.0 ; q = 0.5", OM_1),
        (f'{OM};version="1.0.0"', OM_1),
        (f"{OM};version=0.0.1", TEXT_0),
        (f"{OM};version=abc", TEXT_0),
        (f"{OM};version=9.9.9,text/plain;q=0.1", TEXT_0),
        ("text/plain;version=x.y", TEXT_0),
        (f"{OM};q=nan", OM),
        (f"{OM};q=-1,text/plain", OM),
        (f"{OM};q=", OM),
    ],
)
def test_the_format_is_the_one_that_is_preferred(accept: str, content_type: str) -> None:
    assert expose(Registry(), accept).content_type.startswith(content_type)


def test_what_prometheus_sends_gets_what_its_own_library_chooses() -> None:
    accept = f"{OM};version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.3"
    assert expose(Registry(), accept).content_type == choose_encoder(accept)[1]
