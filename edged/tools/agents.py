"""`spawn`, `spawn_status`: tasks for models that work on their own with this board's tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from edged import results
from edged.results import Result, Text
from edged.tool import READS, Context, Hints, tool

if TYPE_CHECKING:
    from edged.agents.service import Running, Service, View

TASK_MAX = 100_000
PREVIEW = 300
"""Characters of a report in a list."""

LONGEST_S = 86_400.0
"""Of a task that is waited for; `tools.subagent.time` ends it before."""


class Spawn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Inputs of `spawn`."""

    task: Annotated[
        str,
        Meta(
            description="What is to be done, with all that it needs to know.", max_length=TASK_MAX
        ),
    ]
    agent: Annotated[
        str,
        Meta(description="Slug of the agent that does it; without: a plain one.", max_length=64),
    ] = ""
    label: Annotated[str, Meta(description="A short name for it.", max_length=200)] = ""
    model: Annotated[
        str, Meta(description="In place of the agent's, or PROVIDER/MODEL.", max_length=200)
    ] = ""
    max_tokens: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)] | None,
        Meta(description="Of one answer of the model."),
    ] = None
    temperature: Annotated[
        Annotated[float, Meta(ge=0, le=2)] | None, Meta(description="Of the model.")
    ] = None
    async_: Annotated[
        bool,
        Meta(description="true: answer at once; spawn_status tells when it is done."),
    ] = msgspec.field(name="async", default=False)


@tool(
    "spawn",
    label="Spawn a subagent",
    category="agents",
    hints=Hints(read_only=False, destructive=True, idempotent=False, open_world=True),
    aliases={"agent_id": "agent", "slug": "agent", "background": "async"},
    arguments_max=1 << 20,
    timeout_s=LONGEST_S,
    requires=("subagent",),
)
async def spawn(params: Spawn, ctx: Context) -> Result:
    """Have a subagent, a model with this board's tools, work on a task and report."""
    from edged.agents.service import Task  # noqa: PLC0415  with the first task

    service: Service = ctx.services.agents()
    asked = Task(
        params.task,
        params.label,
        params.agent,
        params.model,
        params.max_tokens,
        params.temperature,
        params.async_,
        frozenset() if ctx.session is None else ctx.session.promoted(),
    )
    if params.async_:
        one = await service.start(ctx.caller, asked)
        service.tell(ctx.caller, one)
        result = results.text(
            f"Subagent {one.head.task_id} works on: {one.head.label}\n"
            f"Ask for it with spawn_status task_id={one.head.task_id}.{_note(one)}",
            structured=msgspec.to_builtins(one.view()),
        )
        result.async_ = True
        return result
    one = await service.start(ctx.caller, asked, lambda text: ctx.update([Text(text)]))
    ctx.update([Text(f"subagent {one.head.task_id} works on: {one.head.label}")])
    view = await service.wait(one)
    structured = msgspec.to_builtins(view)
    if view.status == "completed":
        return results.text(view.text + _note(one), structured=structured)
    result = results.failure(_line(view) + _tail(view) + _note(one))
    result.structured = structured
    return result


class Status(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Inputs of `spawn_status`."""

    task_id: Annotated[
        str, Meta(description="As spawn gave it; without: all of yours.", max_length=100)
    ] = ""
    limit: Annotated[int, Meta(description="The newest so many.", ge=1, le=1_000)] = 20


@tool(
    "spawn_status",
    label="Status of subagents",
    category="agents",
    hints=READS,
    aliases={"id": "task_id"},
    requires=("subagent",),
)
async def spawn_status(params: Status, ctx: Context) -> Result:
    """Tell how far subagents are, and what they reported."""
    service: Service = ctx.services.agents()
    if params.task_id:
        view = await service.status(ctx.caller, params.task_id.strip())
        text = _line(view) + _tail(view)
        return results.text(text, structured={"tasks": [msgspec.to_builtins(view)]})
    views = await service.tasks(ctx.caller)
    if not views:
        return results.text("No subagents yet: spawn begins one.", structured={"tasks": []})
    counts: dict[str, int] = {}
    for view in views:
        counts[view.status] = counts.get(view.status, 0) + 1
    lines = [", ".join(f"{count} {status}" for status, count in counts.items())]
    newest = views[-params.limit :]
    for view in reversed(newest):
        lines += ["", _line(view)]
        preview = " ".join(view.text.split())
        cut = f"{preview[: PREVIEW - 1]}…" if len(preview) > PREVIEW else preview
        lines += [f"  {cut}"] if cut else []
    if len(views) > len(newest):
        lines += ["", f"{len(views) - len(newest)} older: ask with limit."]
    structured = {"tasks": [msgspec.to_builtins(view) for view in newest]}
    return results.text("\n".join(lines), structured=structured)


def _line(view: View) -> str:
    by = f" by {view.agent}" if view.agent else ""
    why = f": {view.reason}" if view.reason else ""
    return f"Subagent {view.task_id}{by}, {view.label}: {view.status}{why}"


def _note(one: Running) -> str:
    return f"\n\n({one.note})" if one.note else ""


def _tail(view: View) -> str:
    used = f"({view.turns} turns, {view.calls} calls, {view.tokens} tokens)"
    return f"\n{used}" + (f"\n\n{view.text}" if view.text else "")


TOOLS = (spawn, spawn_status)
