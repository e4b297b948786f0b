"""Asks the person at the client to agree to what needs a confirmation (contract, section 8).

A tool finds out that one is needed before it does anything: so it may begin again with it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from edged.errors import DeniedError
from edged.results import Result
from edged.tool import Ask, Context

SHOWN_MAX = 400
"""Characters of the inputs that the question shows."""


async def confirmed(
    params: Any, ctx: Context, run: Callable[[Any, Context], Awaitable[Result]]
) -> Result:
    """Run a tool; where it lacks a confirmation that the client can give, ask for it.

    Raises:
        DeniedError: nobody can be asked, or who was asked did not agree.
    """
    try:
        return await run(params, ctx)
    except DeniedError as error:
        if not error.unconfirmed or not await _agrees(ctx, params, error.unconfirmed):
            raise
    return await run(msgspec.structs.replace(params, confirm=True), ctx)


async def _agrees(ctx: Context, params: Any, act: str) -> bool:
    client = ctx.client
    if client is None or not client.can("elicitation/create"):
        return False
    given = {
        field.encode_name: value
        for field in msgspec.structs.fields(params)
        if (value := getattr(params, field.name)) != field.default
    }
    inputs = msgspec.json.encode(given).decode()[:SHOWN_MAX]
    schema = {
        "type": "object",
        "properties": {
            "confirm": {"type": "boolean", "title": "Do it", "default": False},
        },
        "required": ["confirm"],
    }
    message = f"An agent wants to {act}. Its inputs: {inputs}"
    ask = Ask("elicitation/create", {"message": message, "requestedSchema": schema})
    said = (await client.ask({"confirm": ask}, strict=True))["confirm"]
    return said["action"] == "accept" and said.get("content", {}).get("confirm") is True
