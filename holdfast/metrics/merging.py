"""The metrics of several processes as one text of Prometheus: each sample with a label more, each family once.

Source: the Prometheus text format 0.0.4 and OpenMetrics 1.0, as `prometheus_client` writes both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

_END: Final = "# EOF"


def merge_texts(texts: Iterable[tuple[Mapping[str, object], str]]) -> str:
    """Return the texts of several processes as one, in which the samples of each have its labels in addition.

    The head of a family is that of the first one that has it; all texts are of one format.
    """
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    has_end = False
    for labels, text in texts:
        added = ",".join(f'{name}="{value}"' for name, value in labels.items())
        family = ""
        for line in text.split("\n"):
            if line == _END:
                has_end = True
            elif line.startswith("# "):
                _, sort, family, *_ = line.split(" ", 3)
                head = heads.setdefault(family, [])
                if not any(known.startswith(f"# {sort} ") for known in head):
                    head.append(line)
            elif line:
                samples.setdefault(family, []).append(_label(line, added))
    lines = [line for family, head in heads.items() for line in (*head, *samples.get(family, ()))]
    return "".join(f"{line}\n" for line in (*lines, *([_END] if has_end else [])))


def _label(sample: str, added: str) -> str:
    if not added:
        return sample
    name, _, rest = sample.partition(" ")
    before, brace, _ = name.partition("{")
    if not brace:
        return f"{name}{{{added}}} {rest}"
    return f"{before}{{{added},{sample[len(before) + 1 :]}"
