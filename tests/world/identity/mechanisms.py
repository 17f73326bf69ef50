"""The mechanisms of SCRAM that a node speaks, written out: one that the product forgets is missed here."""

from __future__ import annotations

from typing import Final

SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
