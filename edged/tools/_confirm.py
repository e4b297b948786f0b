"""Asks the person at the client to agree to what needs a confirmation (contract, section 8).

A tool finds out that one is needed before it does anything: so it may begin again with it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from edged.errors import DeniedError
from edged.results import Result
from edged.tool import Ask, Client, Context

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
        act, client = error.unconfirmed, ctx.client
        if not act or client is None or not client.can("elicitation/create"):
            raise
    await _ask(client, params, act)
    return await run(msgspec.structs.replace(params, confirm=True), ctx)


async def _ask(client: Client, params: Any, act: str) -> None:
    """Put it to the person.

    Raises:
        DeniedError: they did not agree.
    """
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
    if said["action"] == "cancel":
        raise DeniedError(
            f"the person at the client was asked whether you may {act}, and did not answer: do "
            "not do it until they agree"
        )
    if said["action"] != "accept" or said.get("content", {}).get("confirm") is not True:
        raise DeniedError(f"the person at the client refused to let you {act}: do not do it")
