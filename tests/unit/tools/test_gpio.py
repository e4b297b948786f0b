"""`gpio` on the simulated board (issue 2, part 9)."""

import msgspec
import pytest

from edged.board import Board
from edged.bus.settings import BoardConfig, GpioConfig
from edged.bus.sim import SimBuses, SimGpio, StoryButton
from edged.tools import gpio


@pytest.fixture(autouse=True)
def tools(core):
    core.add(*gpio.TOOLS)


async def use(core, board=None, **arguments):
    if board is not None:
        services = msgspec.structs.replace(core.dispatcher.services, board=board)
        core.dispatcher.services = services
    return await core.call("gpio", msgspec.json.encode(arguments), core.agent)


async def test_without_inputs_the_lines_are_listed_with_their_levels(core):
    """A value is the logical level."""
    for arguments in ({}, {"action": "list"}):
        result = await use(core, **arguments)
        assert result.for_llm == (
            "button: input on GPIO27, active low: off\n"
            "door: input on GPIO22: off\n"
            "led: output on GPIO17: off"
        )
        rows = {row["name"]: row for row in result.structured["lines"]}
        assert rows["led"]["value"] is False
        assert rows["led"]["safe"] == "off"
        assert rows["button"]["active_low"] is True


@pytest.mark.parametrize("value", ["on", True, "true", 1, "1"])
@pytest.mark.parametrize("named", [{"line": "led", "action": "write"}, {"name": "led"}])
async def test_a_line_with_a_value_is_written(core, value, named):
    """The spellings that agents use; the answer is what the line then reads."""
    result = await use(core, value=value, **named)
    assert (result.for_llm, result.structured) == ("led is on", {"line": "led", "value": True})
    assert await core.board.read_line("led")


@pytest.mark.parametrize("value", [{"value": "off"}, {"state": False}, {"level": 0}])
async def test_a_line_is_switched_off_again(core, value):
    """Aliases `state` and `level`."""
    await use(core, line="led", value="on")
    assert (await use(core, line="led", **value)).for_llm == "led is off"
    assert not await core.board.read_line("led")


async def test_a_line_without_a_value_is_read(core):
    """An input and an output too; someone presses from second 50 on (the simulation)."""
    assert (await use(core, line="led")).structured == {"line": "led", "value": False}
    assert (await use(core, line="button", action="read")).for_llm == "button is off"
    core.clock.advance(StoryButton.PRESS_S + 1 - core.clock.now() % StoryButton.PERIOD_S)
    assert (await use(core, line="button")).for_llm == "button is on"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"action": "read"}, "gpio: line: is required; lines: button, door, led"),
        ({"action": "write", "line": "led"}, "gpio: value: is required: on or off"),
        ({"action": "read", "line": "led", "value": "on"}, "gpio: value: belongs to action write"),
        ({"line": "led", "duty": 0.5}, "gpio: duty: belongs to action pwm"),
        ({"line": "led", "value": "on", "duration": 5}, "gpio: duration: belongs to action pulse"),
        (
            {"line": "pump"},
            "no gpio line 'pump': there is button, door, led, and those of the chips, such as GPIO17",
        ),
        ({"line": "button", "value": "on"}, "button is an input: only outputs can be written"),
    ],
)
async def test_what_makes_no_sense_is_refused_with_what_would(core, arguments, reason):
    """Errors say what to do, and nothing is driven."""
    result = await use(core, **arguments)
    assert result.is_error
    assert result.for_llm.endswith(reason)
    assert not await core.board.read_line("led")


@pytest.mark.parametrize("value", ["high", 2, -1, [1]])
async def test_a_value_that_is_no_level_is_refused(core, value):
    """Contract, section 8."""
    with pytest.raises(ValueError, match="gpio: value: must be"):
        await use(core, line="led", value=value)


async def test_a_line_that_cannot_be_had_hides_no_other(core):
    """It stands in the list with its reason, and is tried again each time."""
    lines = SimGpio({"GPIO17": None}, core.clock.now)
    gpio = {
        "led": GpioConfig(line="GPIO17", direction="output"),
        "pump": GpioConfig(line="GPIO99", direction="output"),
    }
    board = Board(BoardConfig(gpio=gpio), SimBuses(gpio=lines), core.clock)
    async with board:
        result = await use(core, board)
    assert not result.is_error
    assert "led: output on GPIO17: off\npump: output on GPIO99: no line 'GPIO99'" in result.for_llm
    rows = {row["name"]: row for row in result.structured["lines"]}
    assert "value" not in rows["pump"]
    assert "GPIO99" in rows["pump"]["error"]


async def test_a_board_without_lines_says_how_to_add_them(core):
    """A newcomer's first call."""
    bare = Board(BoardConfig(), SimBuses(), core.clock)
    async with bare:
        result = await use(core, bare)
        assert "add them under `board: gpio:`" in result.for_llm
        missing = await use(core, bare, action="read")
        whole = await use(core, bare, action="list", all=True)
    assert whole.for_llm.startswith(
        "No GPIO chip is here: check that the kernel's driver is loaded."
    )
    assert missing.for_llm.endswith("lines: none is configured")


def test_the_schema_is_plain():
    """Contract, section 8: enums as strings; a level may be said in three ways."""
    properties = gpio.gpio.schema["properties"]
    assert properties["action"]["type"] == "string"
    assert properties["action"]["enum"] == [
        "list",
        "pulse",
        "pwm",
        "read",
        "servo",
        "watch",
        "write",
    ]
    assert properties["value"]["anyOf"] == [
        {"type": "string", "enum": ["off", "on"]},
        {"type": "boolean"},
        {"type": "integer", "minimum": 0, "maximum": 1},
    ]
