"""`request_permission`: an agent asks the owner for a path outside of its directories."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from edged import results, wording
from edged.errors import DeniedError, Fault, InvalidArgumentsError
from edged.policy import is_there
from edged.results import Result
from edged.tool import Ask, Context, Hints, tool

if TYPE_CHECKING:
    from edged.policy import Answer, Policy, Request
    from edged.workspace import Place, Workspace

WAIT_MAX = 600.0
"""Seconds that a call may wait for the owner."""


class RequestPermission(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Inputs of `request_permission`."""

    path: Annotated[
        str, Meta(description="The file or directory, as an absolute path.", min_length=1)
    ]
    command: Annotated[str, Meta(description="The command that needs it, for the owner.")] = ""
    reason: Annotated[str, Meta(description="What for, in a sentence to the owner.")] = ""
    write: Annotated[bool, Meta(description="To change it too, not only to read it.")] = False
    wait: Annotated[
        float, Meta(ge=0, le=WAIT_MAX, description="Seconds to wait for the answer.")
    ] = 0


# `request_id` is null where none was needed, which clients' schemas say in different ways.
ANSWER = {
    "type": "object",
    "properties": {
        "status": {"type": "string", "enum": ["granted", "denied", "pending"]},
        "path": {"type": "string"},
    },
    "required": ["status", "path"],
}


@tool(
    "request_permission",
    label="Ask the owner",
    category="permission",
    config_key="exec.ask_permission",
    hints=Hints(destructive=False, idempotent=True, open_world=False),
    timeout_s=WAIT_MAX + 60,
    output_schema=ANSWER,
    aliases={"timeout": "wait", "purpose": "reason", "cmd": "command"},
)
async def request_permission(params: RequestPermission, ctx: Context) -> Result:
    """Ask the owner for access to a path outside of the workspace; then try again."""
    workspace: Workspace = ctx.services.workspace
    policy: Policy = ctx.services.policy
    place = workspace.place(ctx.caller, params.path)
    caller = ctx.caller
    allowed = _allowed(workspace, ctx, place, params)
    if allowed:
        return _answer("granted", f"{place.shown} needs no request: {allowed}", place)
    workspace.outside(place)
    request = policy.request(
        caller, caller.session, place.host, params.command, params.reason, write=params.write
    )
    answer = await _said(ctx, request)
    if not answer and params.wait:
        answer = await _answered(ctx, request, params.wait)
    act = "write" if params.write else "read"
    if answer == "deny":
        text = f"the owner refused to let you {act} {place.shown}: do not ask again"
        return _answer("denied", text, place, request)
    if answer:
        how = "once" if answer == "once" else "for this session"
        return _answer("granted", f"you may {act} {place.shown} {how}", place, request)
    return _answer(
        "pending",
        f"asked the owner whether you may {act} {place.shown} (request {request.id}): nothing "
        "is allowed yet; try again once it is answered, and do other work until then",
        place,
        request,
        f"May an agent of {caller.user} {act} {place.shown}? Answer: "
        f"edged grant {request.id} once|session|deny",
    )


def _allowed(workspace: Workspace, ctx: Context, place: Place, params: RequestPermission) -> str:
    """Why no request is needed; empty where one is.

    Raises:
        InvalidArgumentsError: none would help.
    """
    try:
        found = workspace.route(
            ctx.caller, ctx.caller.session, params.path, write=params.write
        ).grant
    except DeniedError as error:
        if place.root or place.names:
            # What is read-only is so for everyone.
            raise InvalidArgumentsError([Fault("path", str(error))]) from None
        return ""
    if found is not None:
        # What was there when it was granted may be gone, and another in its place.
        return "the owner granted it already" if is_there(found) else ""
    return "it is yours" if place.root else "the owner's configuration allows it"


async def _said(ctx: Context, request: Request) -> str:
    """What the person at an owner's client says at once; empty where nobody does.

    A grant is the owner's to give (contract, section 4): at an agent's client may sit whoever
    the request is to be kept from.
    """
    caller, client = ctx.caller, ctx.client
    if client is None or not caller.is_owner or not client.can("elicitation/create"):
        return ""
    act = "write" if request.write else "read"
    # By its id it is this question and no other: an answer to it is none to the next one.
    parts = [f"An agent of {caller.user} wants to {act} {request.path} ({request.id})."]
    parts += [f"For: {request.command}"] if request.command else []
    parts += [f"Reason: {request.reason}"] if request.reason else []
    # In one line each, and nothing in them that is not seen: they are the agent's words.
    parts = [wording.one_line(part) for part in parts]
    answers = {"type": "string", "enum": ["once", "session", "deny"], "title": "Allow it"}
    schema = {"type": "object", "properties": {"duration": answers}, "required": ["duration"]}
    ask = Ask("elicitation/create", {"message": " ".join(parts), "requestedSchema": schema})
    said = (await client.ask({"permission": ask}, strict=True))["permission"]
    if said["action"] == "cancel":
        # They may still answer by another door.
        return ""
    duration: Answer = said["content"]["duration"] if said["action"] == "accept" else "deny"
    # It is the person's word, not that of the session that asked.
    by = msgspec.structs.replace(caller, session="", depth=0)
    ctx.services.policy.answer(request.id, duration, by)
    return duration


async def _answered(ctx: Context, request: Request, wait_s: float) -> str:
    """The owner's answer; empty when none came in time."""
    answered: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def heard(event: Any) -> None:
        same = event.kind == "permission.answered" and event.data["request_id"] == request.id
        if same and not answered.done():
            answered.set_result(event.data["answer"])

    stop = ctx.services.events.subscribe(heard)
    try:
        async with asyncio.timeout(wait_s):
            return await answered
    except TimeoutError:
        return ""
    finally:
        stop()


def _answer(
    status: str,
    text: str,
    place: Place,
    request: Request | None = None,
    for_user: str | None = None,
) -> Result:
    # As the caller wrote it: where links lead is for the owner to see.
    facts = {"status": status, "path": place.shown, "request_id": request.id if request else None}
    return results.text(text, structured=facts, for_user=for_user)


TOOLS = (request_permission,)
