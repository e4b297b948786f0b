"""`cron`: jobs on schedules."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from edged import results
from edged.cron.spec import Spec
from edged.results import Result
from edged.tool import Context, Hints, tool

Action = Literal["add", "list", "get", "update", "remove", "enable", "disable", "run"]


class Cron(Spec, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Inputs of `cron`."""

    action: Annotated[
        Action | None,
        Meta(description="add when a schedule is given, get when an id is, else list."),
    ] = None
    id: Annotated[
        str | None, Meta(description="Of get, update, remove, enable, disable, run; or the name.")
    ] = None
    limit: Annotated[int, Meta(ge=1, le=1_000, description="Of list.")] = 50
    offset: Annotated[int, Meta(ge=0, description="Of list: how many to leave out.")] = 0


@tool(
    "cron",
    label="Schedules",
    category="automation",
    arguments_max=256 << 10,
    # The inner call's record has them, without the inner tool's sensitive ones.
    sensitive=frozenset({"arguments"}),
    hints=Hints(destructive=True, open_world=False),
    aliases={
        "job_id": "id",
        "cron": "cron_expr",
        "timezone": "tz",
        "text": "message",
        "content": "message",
    },
)
async def cron(params: Cron, ctx: Context) -> Result:
    """Schedule a command, a tool call or a message, once or again and again; manage the jobs."""
    service = ctx.services.cron()
    action = params.action or _action(params)
    spec = Spec(**{name: getattr(params, name) for name in Spec.__struct_fields__})
    found = await service.act(
        ctx.caller, ctx.session, action, params.id or "", spec, params.limit, params.offset
    )
    value = msgspec.to_builtins(found)
    return results.text(_TEXTS[action](value), structured=value)


def _action(params: Cron) -> Action:
    if params.id:
        return "get"
    said = (params.schedule, params.cron_expr, params.every_seconds, params.at_seconds)
    return "add" if any(said) else "list"


def _listed(value: dict[str, Any]) -> str:
    jobs = value["jobs"]
    if not jobs:
        return "No jobs."
    rows = [_line(job) for job in jobs]
    left = value["total"] - len(jobs)
    if left > 0:
        rows.append(f"{left} more: list with offset and limit.")
    return "\n".join(rows)


def _line(job: dict[str, Any]) -> str:
    parts = [f"{job['id']}: {job['name']}", job["schedule"], job["state"]]
    if job["next_run"]:
        parts.append(f"next {_local(job['next_run'], job['tz'])}")
    last = job["last"]
    if last is not None:
        parts.append(f"last {last['status']}")
    return "; ".join(parts)


def _told(value: dict[str, Any]) -> str:
    lines = [_line(value)]
    known = ("command", "tool", "arguments", "message")
    lines += [f"{field}: {value[field]}" for field in known if value[field]]
    if value["message"] and value["channel"]:
        chat = f" ({value['chat_id']})" if value["chat_id"] else ""
        lines.append(f"to: {value['channel']}{chat}")
    lines += [_run(run, value["tz"]) for run in value["runs"]]
    return "\n".join(lines)


def _run(run: dict[str, Any], tz: str) -> str:
    when = _local(run["due"], tz)
    if run["until"] != run["due"]:
        when += f" to {_local(run['until'], tz)}"
    text = f"run {run['id']}, {when}: {run['status']}"
    return f"{text}\n{run['output']}".rstrip()


def _added(value: dict[str, Any]) -> str:
    job = value["job"]
    times = ", ".join(_local(time, job["tz"]) for time in job["next_runs"])
    word = "Next runs" if len(job["next_runs"]) > 1 else "Runs"
    text = f"Cron job added: {job['name']} (id: {job['id']}). {word} ({job['tz']}): {times}"
    if job["state"] == "waits for the clock":
        text += "\nThe board's clock is not set yet: it is planned anew once it is."
    return text


def _changed(value: dict[str, Any]) -> str:
    return f"Cron job {'removed' if value['status'] == 'removed' else 'is'} {_line(value['job'])}"


def _begun(value: dict[str, Any]) -> str:
    return f"{value['job']['name']}: {_run(value['run'], value['job']['tz'])}"


_TEXTS = {
    "list": _listed,
    "get": _told,
    "add": _added,
    "update": _changed,
    "enable": _changed,
    "disable": _changed,
    "remove": _changed,
    "run": _begun,
}


def _local(time: str, tz: str) -> str:
    """A time of the wire as it is in the job's zone."""
    from edged.cron.zones import kept_zone  # noqa: PLC0415  loaded already where there is a job

    return datetime.fromisoformat(time).astimezone(kept_zone(tz)).strftime("%Y-%m-%d %H:%M:%S")


TOOLS = (cron,)
