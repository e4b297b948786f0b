"""Tools about tools: `tool_describe` and `tool_call` (contract, section 9)."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from edged import results
from edged.results import Result
from edged.tool import READS, Context, Hints, tool

Name = Annotated[str, Meta(description="The tool's name.", min_length=1, max_length=128)]


class Describe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Inputs of `tool_describe`."""

    name: Name


@tool("tool_describe", label="Describe a tool", category="discovery", hints=READS)
def tool_describe(params: Describe, ctx: Context) -> Result:
    """Show a tool's full documentation, inputs, permissions and state."""
    found = ctx.services.describe(ctx.caller, params.name, ctx.session)
    state = found.status + (f" ({found.reason_code})" if found.reason_code else "")
    # What follows in the description is the body's beginning, which stands below.
    about = found.description.partition("\n\n")[0] if found.body else found.description
    lines = [f"{found.name}: {about}", f"State: {state}; from {found.source}"]
    if found.problem:
        lines.append(f"Problem: {found.problem}")
    lines += ["Inputs (JSON Schema): " + msgspec.json.encode(found.schema).decode()]
    if found.sensitive:
        lines.append(f"Sensitive inputs, never logged: {', '.join(found.sensitive)}")
    if found.permissions is not None:
        lines.append("Permissions: " + msgspec.json.encode(found.permissions).decode())
    if found.body:
        lines += ["", found.body.strip()]
    structured = {k: v for k, v in msgspec.to_builtins(found).items() if k != "body"}
    return results.text("\n".join(lines), structured=structured)


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Inputs of `tool_call`."""

    name: Name
    arguments: Annotated[dict[str, Any], Meta(description="The tool's inputs.")] = {}


@tool(
    "tool_call",
    label="Call a tool",
    category="discovery",
    hints=Hints(),
    # The inner call's record has them, without the inner tool's sensitive ones.
    sensitive=frozenset({"arguments"}),
    timeout_s=3_660.0,
    cut=False,
)
async def tool_call(params: Call, ctx: Context) -> Result:
    """Call a tool by name, also one that a search promoted and the list does not show."""
    return await ctx.call(params.name, msgspec.json.encode(params.arguments))


TOOLS = (tool_describe, tool_call)
