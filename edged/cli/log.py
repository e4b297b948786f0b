"""`edged log`: the trail of calls."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Any

from edged.cli import show
from edged.cli.parser import Parser, add_connection, connect, count

EXAMPLE = "edged log --limit 20\nedged log -f --json"
HEADER = ("TIME", "TOOL", "OUTCOME", "MS", "BY", "DETAIL")


def options(parser: Parser) -> None:
    """Add the verb's options."""
    parser.add_argument("-f", "--follow", action="store_true", help="go on as calls end")
    parser.add_argument(
        "--limit", metavar="N", type=count, default=50, help="newest records to show (50)"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document; with -f a line for each"
    )
    add_connection(parser)


def run(args: Any) -> int:
    """Run the verb; returns the exit code."""
    client = connect(args)
    if not args.follow:
        records = client.request("edged/log", {"limit": args.limit})["records"]
        if args.json:
            show.json(records)
        else:
            _Lines(records, as_json=False, typical=False)
        return 0
    first, more = client.follow("edged/log", {"limit": args.limit, "follow": True})
    printed = _Lines(first["records"], as_json=args.json)
    for method, params in more:
        if method == "edged/log":
            printed.add(params)
        elif method == "edged/gap":
            sys.stderr.write(f"edged: {params['lost']} records are left out: this end was slow\n")
    return 0


class _Lines:
    """Records one by one, in the columns of the first ones.

    On a terminal a detail has lines of its own below: a column would be too narrow.
    """

    def __init__(
        self, records: list[dict[str, Any]], *, as_json: bool, typical: bool = True
    ) -> None:
        self._json = as_json
        self._below = show.is_terminal()
        usual = ("01-01 00:00:00", "a_usual_name", "invalid_arguments", "1000.0", "local unix", "")
        rows = [*map(_row, records), *([usual] if typical else [])]
        self._columns = show.Columns(self._shown(HEADER), [self._shown(row) for row in rows])
        if not as_json:
            show.out(self._columns.header())
        for record in records:
            self.add(record)
        sys.stdout.flush()

    def add(self, record: dict[str, Any]) -> None:
        if self._json:
            show.json_line(record)
            return
        row = _row(record)
        show.out(self._columns.line(self._shown(row)))
        if self._below:
            show.below(row[-1])
        sys.stdout.flush()

    def _shown(self, row: tuple[str, ...]) -> tuple[str, ...]:
        return row[:-1] if self._below else row


def _row(record: dict[str, Any]) -> tuple[str, ...]:
    return (
        _local(record["time"]),
        record["tool"],
        record["outcome"],
        f"{record['duration_ms']:.1f}",
        f"{record['user']} {record['door']}",
        _detail(record),
    )


def _detail(record: dict[str, Any]) -> str:
    count = record.get("count", 1)
    many = f"{count} calls" if count > 1 else ""
    return ": ".join(filter(None, (many, record.get("detail", ""))))


def _local(time: str) -> str:
    """A time of the trail (RFC 3339, UTC) on this machine's clock."""
    try:
        return f"{datetime.fromisoformat(time).astimezone():%m-%d %H:%M:%S}"
    except ValueError:
        return time
