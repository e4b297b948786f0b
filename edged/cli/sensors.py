"""`edged sensors`: the readings of the board."""

from __future__ import annotations

import sys
import time
from typing import Any

from edged.cli import show
from edged.cli.parser import Parser, add_connection, add_json, connect
from edged.client import Client
from edged.units import amount

EXAMPLE = "edged sensors --watch"

HEADER = ("SENSOR", "CHANNEL", "VALUE", "AGE", "STATE")
WATCH_S = 1.0


def options(parser: Parser) -> None:
    """Add the verb's options."""
    parser.add_argument("--watch", action="store_true", help="go on showing them; Ctrl-C ends it")
    parser.add_argument("--fresh", action="store_true", help="measure now, whatever is known")
    add_json(parser)
    add_connection(parser)


def run(args: Any) -> int:
    """Run the verb; returns the exit code."""
    client = connect(args)
    while True:
        sensors = _read(client, fresh=args.fresh)
        if args.json and args.watch:
            show.json_line({"sensors": sensors})
        elif args.json:
            show.json({"sensors": sensors})
        else:
            _print(sensors)
        if not args.watch:
            return 0
        sys.stdout.flush()
        time.sleep(WATCH_S)
        if show.is_terminal() and not args.json:
            sys.stdout.write("\033[H\033[J")


def _read(client: Client, *, fresh: bool) -> list[dict[str, Any]]:
    sensors: list[dict[str, Any]] = client.request("edged/sensors")["sensors"]
    # Those that nobody samples too.
    unknown = [s["name"] for s in sensors if fresh or s["state"] == "unknown" or s["every_s"] == 0]
    if unknown:
        # Those that were never measured are now: who asks wants to know.
        for name in unknown:
            client.request("tools/call", {"name": "sensor", "arguments": {"sensor": name}})
        sensors = client.request("edged/sensors")["sensors"]
    return sensors


def _print(sensors: list[dict[str, Any]]) -> None:
    if not sensors:
        show.out("no sensors are configured: `edged scan` prints lines for edged.yaml")
        return
    rows = [row for sensor in sensors for row in _rows(sensor)]
    show.table(HEADER, rows, whole=True)


def _rows(sensor: dict[str, Any]) -> list[tuple[str, ...]]:
    state = ": ".join(filter(None, (sensor["state"], sensor["error"])))
    if not sensor["readings"]:
        return [(sensor["name"], "", "", "", state)]
    return [
        (
            sensor["name"],
            reading["channel"],
            _value(reading),
            show.duration(reading["age_s"]),
            _quality(state, reading, sensor["alarms"]),
        )
        for reading in sensor["readings"]
    ]


def _value(reading: dict[str, Any]) -> str:
    return "-" if reading["value"] is None else amount(reading["value"], reading["unit"])


def _quality(state: str, reading: dict[str, Any], alarms: dict[str, str]) -> str:
    parts = [state]
    if reading["quality"] not in {"ok", state}:
        parts.append(": ".join(filter(None, (reading["quality"], reading.get("note", "")))))
    if reading["channel"] in alarms:
        parts.append(f"alarm: {alarms[reading['channel']]}")
    return "; ".join(parts)
