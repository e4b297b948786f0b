"""`make bench`: every claim of speed and memory, as a ratio of the same run.

    python -m tests.bench [NAME …]      NAME: calls start memory list warm hardware files
                                        jobs fuzz search api upstream peers

`board` is measured only when it is named: it boots the emulated board of `make hil`.
Prints a row for each claim and exits 1 when one is missed.
"""

from __future__ import annotations

import os
import sys
import tempfile

from tests.bench import (
    api,
    calls,
    emulated,
    files,
    fuzz,
    hardware,
    jobs,
    listing,
    memory,
    peers,
    search,
    start,
    upstream,
    warm,
)
from tests.bench.table import Table

GROUPS = {
    "calls": calls.measure,
    "start": start.measure,
    "memory": memory.measure,
    "list": listing.measure,
    "warm": warm.measure,
    "hardware": hardware.measure,
    "files": files.measure,
    "jobs": jobs.measure,
    "fuzz": fuzz.measure,
    "search": search.measure,
    "api": api.measure,
    "upstream": upstream.measure,
    "peers": peers.measure,
}
NAMED = {"board": emulated.measure}
"""Those that are measured only when they are named."""


def main(names: list[str]) -> int:
    groups = GROUPS | NAMED
    unknown = [name for name in names if name not in groups]
    if unknown:
        print(f"no such group: {', '.join(unknown)}; there are: {', '.join(groups)}")
        return 2
    # Byte code is a part of what a user has.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    table = Table()
    for name in names or GROUPS:
        with tempfile.TemporaryDirectory(prefix="edged-bench-") as directory:
            os.chmod(directory, 0o755)
            groups[name](table, directory)
    return table.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
