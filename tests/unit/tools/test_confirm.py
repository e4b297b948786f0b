"""What a person is shown who is asked to agree (contract, section 8)."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from edged import results
from edged.errors import DeniedError
from edged.tools._confirm import confirmed


class Write(msgspec.Struct, frozen=True):
    address: str = "0x3c"
    register: int | str | None = None
    data: list[int] | str | None = None
    confirm: bool = False


class Person:
    """Agrees, and remembers to what."""

    def __init__(self):
        self.shown = ""

    def can(self, method):
        return method == "elicitation/create"

    async def ask(self, asks, *, strict):
        assert strict
        self.shown = asks["confirm"].params["message"]
        return {"confirm": {"action": "accept", "content": {"confirm": True}}}


async def run(params, _ctx):
    if not params.confirm:
        raise DeniedError("confirm: true is needed", unconfirmed="write to i2c-1/0x3c")
    return results.text("done")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"register": 7, "data": [1, 2]}, '{"register":7,"data":[1,2]}'),
        ({"register": 7, "data": " " * 500 + "ff ff"}, '{"register":7,"data":"ff ff"}'),
        ({"data": "ff\n\u202eff"}, '{"data":"ff \\\\u202eff"}'),
        (
            {"register": "0x" + "0" * 400 + "7", "data": [9]},
            f'{{"register":"0x{"0" * 118} … {"0" * 39}7 (of 403 characters)","data":[9]}}',
        ),
        (
            {"data": [255] * 400 + [1, 2]},
            f'{{"data":"[{"255," * 29}255 … {"255," * 9}1,2] (of 1605 characters)"}}',
        ),
    ],
)
async def test_the_question_shows_both_ends_of_each_input(given, shown):
    """400 characters of all were shown, which an agent filled with one of them."""
    person = Person()
    ctx = SimpleNamespace(client=person)
    assert (await confirmed(Write(**given), ctx, run)).content == results.text("done").content
    assert person.shown == f"An agent wants to write to i2c-1/0x3c. Its inputs: {shown}"
