"""`cron`: jobs on schedules."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from edged import results
from edged.cron.spec import Spec
from edged.cron.view import readable
from edged.results import Result
from edged.tool import Context, Hints, tool
from edged.tools._forms import check_inputs

SAID = (
    "schedule",
    "cron_expr",
    "every_seconds",
    "at_seconds",
    "command",
    "message",
    "tool",
    "task",
)
"""Inputs by which a job is added or changed."""

Action = Literal["add", "list", "get", "update", "remove", "enable", "disable", "run"]


class Cron(Spec, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Inputs of `cron`."""

    action: Annotated[
        Action | None,
        Meta(description="get when an id is given, add when a job is, else list."),
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
    """Schedule a command, a tool call, a message or a subagent's task; manage the jobs."""
    service = ctx.services.cron()
    action = params.action or _action(params)
    spec = Spec(**{name: getattr(params, name) for name in Spec.__struct_fields__})
    found = await service.act(
        ctx.caller, action, params.id or "", spec, params.limit, params.offset
    )
    value = msgspec.to_builtins(found)
    return results.text(_TEXTS[action](value), structured=value)


def _action(params: Cron) -> Action:
    if params.id:
        # Who says more than the id wants more than to look at it.
        check_inputs(params, "get", dict.fromkeys(SAID, ("update",)), "cron")
        return "get"
    # Without a schedule, as of an unset variable, it is refused: the job would be lost.
    return "add" if any(getattr(params, name) for name in SAID) else "list"


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
    parts = [job["schedule"], job["state"]]
    if job["next_run"]:
        parts.append(f"next {readable(job['next_run'])}")
    last = job["last"]
    if last is not None:
        parts.append(f"last {last['status']}")
    return f"{job['id']}: {job['name']}\n  {'; '.join(parts)}"


def _told(value: dict[str, Any]) -> str:
    lines = [_line(value)]
    known = ("command", "tool", "arguments", "task", "agent", "message")
    lines += [f"{field}: {value[field]}" for field in known if value[field]]
    if (value["message"] or value["task"]) and value["channel"]:
        chat = f" ({value['chat_id']})" if value["chat_id"] else ""
        lines.append(f"to: {value['channel']}{chat}")
    lines += [_run(run) for run in value["runs"]]
    return "\n".join(lines)


def _run(run: dict[str, Any]) -> str:
    when = readable(run["due"])
    if run["until"] != run["due"]:
        when += f" to {readable(run['until'])}"
    text = f"run {run['id']}, {when}: {run['status']}"
    return f"{text}\n{run['output']}".rstrip()


def _added(value: dict[str, Any]) -> str:
    job = value["job"]
    word = "Next runs" if len(job["next_runs"]) > 1 else "Runs"
    lines = [f"Cron job added: {job['name']} (id: {job['id']})", f"{word} ({job['tz']}):"]
    lines += [f"  {readable(time)}" for time in job["next_runs"]]
    if job["state"] == "waits for the clock":
        lines.append("The board's clock is not set yet: it is planned anew once it is.")
    return "\n".join(lines + _warnings(value))


def _changed(value: dict[str, Any]) -> str:
    word = "removed" if value["status"] == "removed" else "is"
    return "\n".join([f"Cron job {word} {_line(value['job'])}", *_warnings(value)])


def _warnings(value: dict[str, Any]) -> list[str]:
    return [f"Warning: {text}" for text in value["warnings"]]


def _begun(value: dict[str, Any]) -> str:
    return f"{value['job']['name']}: {_run(value['run'])}"


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


TOOLS = (cron,)
