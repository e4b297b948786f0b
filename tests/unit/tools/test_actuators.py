"""`actuator`: what is configured acts, and says what it knows."""

import msgspec
import pytest

from edged.board import Board
from edged.bus.settings import ActuatorConfig, BoardConfig
from edged.bus.sim import SimBuses, SimI2c
from edged.drivers import pcf8574
from edged.errors import ConfigError
from edged.testing import FakeClock
from edged.tools import actuators


class Rig:
    """A board with a port expander and its relays."""

    def __init__(self, core, **config):
        self.clock = core.clock
        self.chip = pcf8574.Sim(core.clock)
        self.bus = SimI2c("i2c-1", {0x20: self.chip})
        options = {"address": 0x20, **config.pop("options", {})}
        one = ActuatorConfig(driver="pcf8574", bus="i2c-1", **config)
        del options["address"]
        self.events = []
        self.board = Board(
            BoardConfig(actuators={"relays": msgspec.structs.replace(one, options=options)}),
            SimBuses(i2c={"i2c-1": self.bus}),
            core.clock,
            sleep=core.sleep,
            publish=lambda kind, facts: self.events.append((kind, facts)),
        )


@pytest.fixture
def rig(core):
    core.add(*actuators.TOOLS)
    return Rig(core)


async def use(core, rig, **arguments):
    async with rig.board as board:
        services = msgspec.structs.replace(core.dispatcher.services, board=board)
        core.dispatcher.services = services
        return await core.call("actuator", msgspec.json.encode(arguments), core.agent)


async def test_actuators_are_listed_with_their_commands(core, rig):
    result = await use(core, rig)
    assert result.for_llm.startswith("relays: pcf8574 on i2c-1; ")
    assert result.structured["actuators"][0]["commands"][0]["arguments"]["properties"]


async def test_a_described_one_tells_what_its_commands_take(core, rig):
    result = await use(core, rig, actuator="relays")
    assert result.for_llm.startswith("relays: pcf8574\n  set: ")


async def test_none_is_told_how_to_be_configured(core, rig):
    rig.board = Board(BoardConfig(), SimBuses(), core.clock)
    assert "add them under `board: actuators:`" in (await use(core, rig)).for_llm
    for arguments, words in (
        ({"actuator": "arm"}, "no actuator 'arm': "),
        ({"action": "act"}, "actuator: is required; "),
    ):
        rig.board = Board(BoardConfig(), SimBuses(), core.clock)
        said = (await use(core, rig, **arguments)).for_llm
        assert said.startswith(words)
        assert "there is none" not in said
        assert said.endswith("none is configured")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"action": "act"}, "actuator: is required; there is relays"),
        ({"actuator": "arm"}, "no actuator 'arm': there is relays"),
        ({"actuator": "relays", "command": "dance"}, "relays has no 'dance': it knows set"),
        ({"actuator": "relays", "action": "act"}, "command: is required"),
        ({"actuator": "relays", "command": "set", "arguments": {"no": 1}}, "no"),
    ],
)
async def test_what_makes_no_sense_is_refused_with_what_would(core, rig, arguments, reason):
    result = await use(core, rig, **arguments)
    assert result.is_error
    assert reason in result.for_llm


def test_a_driver_that_only_measures_is_no_actuator():
    config = BoardConfig(actuators={"x": ActuatorConfig(driver="bme280")})
    with pytest.raises(ConfigError, match=r"board.actuators.x.driver: bme280 only measures"):
        Board(config, SimBuses(), FakeClock())
