"""The switch that writes the scenarios' expectations again."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write what happens into the scenario files")
