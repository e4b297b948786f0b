"""100,000 hostile inputs: the daemon and other connections go on."""

from __future__ import annotations

from tests.bench.table import Table


def measure(table: Table, directory: str) -> None:
    table.note("fuzz: see tests/integration/test_fuzz.py")
