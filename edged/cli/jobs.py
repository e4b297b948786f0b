"""`edged jobs`: what runs on a schedule, and what came of it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from edged.cli import UsageError, complain, show
from edged.cli.parser import Parser, add_connection, add_json, connect
from edged.client import Client
from edged.cron.view import readable

EXAMPLE = "edged jobs\nedged jobs show backup\nedged jobs disable 1f0c9a2e"

ACTIONS = ("list", "show", "run", "enable", "disable", "remove")
OFF = "cron is switched off, and jobs wait: edged tools --enable cron"
HEADER = ("ID", "NAME", "SCHEDULE", "NEXT", "LAST", "STATE")
PAGE = 1_000
STATUS_COLOURS = {"ok": "green", "error": "red", "missed": "yellow", "interrupted": "yellow"}


def options(parser: Parser) -> None:
    """Add the verb's options."""
    parser.add_argument("action", choices=ACTIONS, nargs="?", default="list", help="(list)")
    parser.add_argument("id", metavar="ID", nargs="?", help="the job's id, or its name")
    add_json(parser)
    add_connection(parser)


def run(args: Any) -> int:
    """Run the verb; returns the exit code."""
    if (args.action == "list") == bool(args.id):
        needs = "takes no id" if args.id else "needs an id: edged jobs lists them"
        raise UsageError(f"jobs {args.action} {needs}")
    client = connect(args)
    if args.action == "list":
        jobs, is_on = _all(client)
        if args.json:
            show.json(jobs)
        else:
            _list(jobs)
        if not is_on:
            complain(OFF, 0)
        return 0
    found = client.request("edged/jobs", {"action": args.action, "id": args.id})
    if args.json:
        show.json(found)
    elif args.action == "show":
        _show(found)
    elif args.action == "run":
        _run(found["run"])
    else:
        job = found["job"]
        state = "removed" if found["status"] == "removed" else job["state"]
        if args.action == "disable" and state == "running":
            state = "disabled; a run goes on to its end"
        show.out(f"{job['name']}: {state}")
    failed = args.action == "run" and found["run"]["status"] not in ("ok", "running")
    return 1 if failed else 0


def _all(client: Client) -> tuple[list[dict[str, Any]], bool]:
    """All jobs, and whether any runs by itself."""
    jobs: list[dict[str, Any]] = []
    while True:
        page = client.request("edged/jobs", {"action": "list", "limit": PAGE, "offset": len(jobs)})
        jobs += page["jobs"]
        if not page["jobs"] or len(jobs) >= page["total"]:
            return jobs, page["is_on"]


def _list(jobs: list[dict[str, Any]]) -> None:
    if not jobs:
        show.out('no jobs: edged call cron schedule="0 9 * * *" command=… adds one')
        return
    rows = [_row(job) for job in jobs]
    columns = show.Columns(HEADER, rows, whole=("NEXT",))
    show.out(columns.header())
    for row in rows:
        show.out(columns.line(row, ("", "", "", "", STATUS_COLOURS.get(row[4], ""))))


def _row(job: dict[str, Any]) -> tuple[str, ...]:
    last = job["last"]
    return (
        job["id"],
        job["name"],
        job["schedule"],
        _short(job["next_run"]) if job["next_run"] else "-",
        last["status"] if last else "-",
        job["state"],
    )


def _show(job: dict[str, Any]) -> None:
    times = job["next_runs"]
    if job["next_run"] and job["next_run"] not in times:
        # A retry, which is none of the schedule's times.
        times = [job["next_run"], *times]
    policy = f"overlap {job['overlap']}, misfire {job['misfire']}, retries {job['retries']}"
    show.facts(
        [
            ("id", job["id"]),
            ("name", job["name"]),
            ("of", f"{job['user']}, {job['role']}"),
            ("schedule", f"{job['schedule']} ({job['tz']})"),
            ("state", job["state"]),
            ("next", "\n".join(map(readable, times)) or "never"),
            ("command", job["command"]),
            ("tool", job["tool"]),
            ("arguments", ", ".join(f"{k}={v}" for k, v in job["arguments"].items())),
            ("task", job["task"]),
            ("agent", job["agent"]),
            ("message", job["message"]),
            ("to", _target(job) if job["message"] or job["task"] else ""),
            ("policy", policy),
        ]
    )
    for run in job["runs"]:
        show.out("")
        _run(run)


def _target(job: dict[str, Any]) -> str:
    channel = job["channel"] or "the default channel"
    return f"{channel} ({job['chat_id']})" if job["chat_id"] else channel


def _run(run: dict[str, Any]) -> None:
    when = readable(run["due"])
    if run["until"] != run["due"]:
        when += f" to {readable(run['until'])}"
    attempt = f", retry {run['attempt']}" if run["attempt"] else ""
    status = show.paint(run["status"], STATUS_COLOURS.get(run["status"], ""))
    show.out(f"run {run['id']}, {when}{attempt}: {status}")
    if output := run["output"].rstrip():
        show.prose(output, "    ")


def _short(time: str) -> str:
    """A time to the minute, for a narrow column: 2027-01-31 09:00 -05."""
    found = datetime.fromisoformat(time)
    return f"{found:%Y-%m-%d %H:%M} {found.isoformat()[-6:].removesuffix(':00')}"
