"""Asks the person at the client to agree to what needs a confirmation (contract, section 8).

A tool finds out that one is needed before it does anything: so it may begin again with it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from edged import wording
from edged.errors import DeniedError
from edged.results import Result
from edged.tool import Ask, Client, Context

SHOWN_MAX = 160
"""Characters of one input that the question shows; of a longer one both ends and the length."""

_END = 40


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
    inputs = msgspec.json.encode({name: _shown(value) for name, value in given.items()}).decode()
    schema = {
        "type": "object",
        "properties": {
            "confirm": {"type": "boolean", "title": "Do it", "default": False},
        },
        "required": ["confirm"],
    }
    message = f"An agent wants to {wording.one_line(act)}. Its inputs: {inputs}"
    ask = Ask("elicitation/create", {"message": message, "requestedSchema": schema})
    said = (await client.ask({"confirm": ask}, strict=True))["confirm"]
    if said["action"] == "cancel":
        raise DeniedError(
            f"the person at the client was asked whether you may {act}, and did not answer: do "
            "not do it until they agree"
        )
    if said["action"] != "accept" or said.get("content", {}).get("confirm") is not True:
        raise DeniedError(f"the person at the client refused to let you {act}: do not do it")


def _shown(value: Any) -> Any:
    """An input as a person sees it: in one line, and nothing in it that is not seen."""
    whole = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    text = wording.one_line(whole)
    if len(text) > SHOWN_MAX:
        return f"{text[: SHOWN_MAX - _END]} … {text[-_END:]} (of {len(whole)} characters)"
    return text if isinstance(value, str) or text != whole else value
