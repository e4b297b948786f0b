"""`onewire` on simulated thermometers (issue 3, part 2)."""

import errno

import msgspec
import pytest

from edged.board import Board
from edged.bus.settings import BoardConfig
from edged.bus.sim import SimBuses, SimOneWire
from edged.drivers import ds18b20
from edged.tools import onewire

ID, SWITCH = "28-0316a2795bff", "3a-000000112233"


class Switch:
    """A DS2413, as w1_ds2413 shows it."""

    def file(self, attribute):
        return {"state": "0x1e\n"}.get(attribute, errno.ENOENT)


@pytest.fixture(autouse=True)
def tools(core):
    core.add(*onewire.TOOLS)


@pytest.fixture
def sim(core):
    return ds18b20.Sim(core.clock, device=ID, temperature_cel=-10.125)


async def call(core, targets, **arguments):
    board = Board(
        BoardConfig(), SimBuses(w1=SimOneWire(dict(targets))), core.clock, sleep=core.sleep
    )
    async with board:
        services = msgspec.structs.replace(core.dispatcher.services, board=board)
        core.dispatcher.services = services
        return await core.call("onewire", msgspec.json.encode(arguments), core.agent)


@pytest.mark.parametrize("arguments", [{}, {"action": "list"}])
async def test_without_inputs_the_devices_are_listed_with_their_kind(arguments, core, sim):
    """Maxim, application note 155: the family tells the chip."""
    targets = {
        **sim.devices,
        SWITCH: Switch(),
        "ff-000000000001": Switch(),
        "00-c00000000000": Switch(),
    }
    result = await call(core, targets, **arguments)
    assert result.for_llm.splitlines() == [
        "00-c00000000000: no device: a phantom of a line without its pull-up of 4.7 kΩ",
        f"{ID}: DS18B20 thermometer",
        f"{SWITCH}: DS2413 two switches",
        "ff-000000000001: of family ff",
    ]
    row = {"device": ID, "family": "28", "kind": "DS18B20 thermometer"}
    assert result.structured["devices"][1] == row


async def test_a_bus_without_devices_says_what_to_check(core):
    result = await call(core, {})
    assert not result.is_error
    assert "pull-up of 4.7 kΩ, and dtoverlay=w1-gpio" in result.for_llm
    assert result.structured == {"devices": []}


@pytest.mark.parametrize("arguments", [{"device": ID}, {"id": ID}, {"action": "read"}])
async def test_a_thermometer_is_measured(arguments, core, sim):
    """Datasheet, table 1: FF5E is -10.125."""
    result = await call(core, sim.devices, **arguments)
    assert result.for_llm == f"{ID}: temperature -10.1 °C"
    (row,) = result.structured["readings"]
    assert (row["channel"], row["value"], row["unit"]) == ("temperature", -10.125, "Cel")
    assert (row["quality"], row["age_s"], row["identity"]) == ("ok", 0.0, f"DS18B20 {ID}")


async def test_a_value_that_is_none_is_a_failure(core, sim):
    """Fault 32: 85 °C after power-on."""
    sim.scratchpad = ds18b20.POWER_ON_SCRATCHPAD
    result = await call(core, sim.devices, device=ID)
    assert result.is_error
    assert "85 °C of its power-on" in result.for_llm


async def test_a_file_is_read_as_text(core, sim):
    """w1_therm.rst and w1_ds2413.rst."""
    result = await call(core, sim.devices, attribute="ext_power")
    assert result.for_llm == f"{ID} ext_power: 1"
    assert result.structured == {"device": ID, "attribute": "ext_power", "text": "1"}
    result = await call(core, {SWITCH: Switch()}, device=SWITCH, attribute="state")
    assert result.structured["text"] == "0x1e"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"action": "read"}, f"device: is required: {ID}, {SWITCH}"),
        ({"device": SWITCH}, f"attribute: is required: {SWITCH} is DS2413 two switches, no"),
        ({"device": "28-000000000000"}, f"no 1-wire device 28-000000000000: there is {ID}"),
        ({"device": SWITCH, "attribute": "absent"}, f"{SWITCH}/absent is not there"),
        ({"action": "list", "device": ID}, "device: belongs to action read"),
        ({"action": "list", "attribute": "id"}, "attribute: belongs to action read"),
    ],
)
async def test_what_cannot_be_is_refused_with_what_there_is(arguments, words, core, sim):
    """Errors say what to do."""
    result = await call(core, {**sim.devices, SWITCH: Switch()}, **arguments)
    assert result.is_error
    assert words in result.for_llm


async def test_reading_the_only_device_of_none_is_refused(core):
    result = await call(core, {}, action="read")
    assert result.is_error
    assert "device: is required: there is none" in result.for_llm
