"""`i2c`: every form of its arguments, and no write without a word."""

import msgspec
import pytest

from edged.board import Board
from edged.bus.settings import BoardConfig, SensorConfig
from edged.bus.sim import SimBuses, SimI2c
from edged.errors import InvalidArgumentsError
from edged.tools import i2c as module

SPEC_READ = {"action": "read", "bus": "/dev/i2c-1", "address": 0x48, "register": 0x00}
"""Specification, "I2C Expected Arguments", without what is for write."""


class Registers:
    """Plain registers that count up, and remember what was written."""

    def __init__(self):
        self.memory, self.pointer, self.written = bytearray(range(256)), 0, []

    def write(self, data):
        self.written.append(bytes(data))
        self.pointer = data[0]
        self.memory[data[0] : data[0] + len(data) - 1] = data[1:]

    def read(self, length):
        return bytes(self.memory[self.pointer : self.pointer + length])


@pytest.fixture
def chip():
    return Registers()


@pytest.fixture
def use(core, chip):
    core.add(*module.TOOLS)

    async def call(allow=(), buses=1, **arguments):
        i2c = {f"i2c-{n}": SimI2c(f"i2c-{n}", {0x48: chip}) for n in range(1, buses + 1)}
        config = BoardConfig(
            sensors={"attic": SensorConfig(driver="bme280", bus="i2c-1")}, allow=list(allow)
        )
        async with Board(config, SimBuses(i2c=i2c), core.clock, sleep=core.sleep) as board:
            services = msgspec.structs.replace(core.dispatcher.services, board=board)
            core.dispatcher.services = services
            return await core.call("i2c", msgspec.json.encode(arguments), core.agent)

    return call


@pytest.mark.parametrize(
    "arguments",
    [
        SPEC_READ,
        {"bus": "1", "address": "0x48", "register": "0x00"},
        {"bus": 1, "address": 72, "register": 0},
        {"bus": "i2c-1", "address": "72", "register": "0"},
        {"address": 0x48, "register": 0},
    ],
)
async def test_all_forms_of_an_address_read_the_same(use, arguments):
    """Issue 3, part 2: `/dev/i2c-1`, `1`, `"0x48"`, 72."""
    result = await use(**arguments, length=2)
    assert result.for_llm == "i2c-1 0x48 register 0x00: read 00 01"
    assert result.structured == {
        "bus": "i2c-1", "address": "0x48", "data": [0, 1], "hex": "0001", "register": 0
    }  # fmt: skip


@pytest.mark.parametrize("data", [[1, 2], "0x0102", "0x01 0x02", "\x01\x02"])
async def test_all_forms_of_data_write_the_same(use, chip, data):
    """Specification: `data: [0x01, 0x02]`; text and hex beside it."""
    result = await use(**SPEC_READ | {"action": "write", "data": data}, confirm=True)
    assert chip.written == [b"\x00\x01\x02"]
    assert result.for_llm == "i2c-1 0x48 register 0x00: written 01 02"


async def test_a_write_needs_a_confirmation(use, chip):
    """Contract, section 8: confirm, or `allow:` of the board's configuration."""
    arguments = {"address": 0x48, "data": [1]}
    refused = await use(**arguments)
    assert refused.is_error
    assert "a write to i2c-1/0x48 needs confirm: true, or allow: [i2c-1/0x48]" in refused.for_llm
    assert chip.written == []
    for allow in (["i2c-1/0x48"], ["i2c-1"]):
        assert not (await use(**arguments, allow=allow)).is_error


async def test_a_transfer_reads_in_one_transaction(use, chip):
    result = await use(action="transfer", address=0x48, data=[0x10], length=3, confirm=True)
    assert result.structured["data"] == [0x10, 0x11, 0x12]
    result = await use(action="read", address=0x48, register=0x20, stop_between=True)
    assert result.structured["data"] == [0x20]


async def test_a_register_may_have_two_bytes(use, chip):
    """AT24C32 and larger, VL53L1X and others."""
    await use(address=0x48, register="0x1234", register_size=2)
    assert chip.written == [b"\x12\x34"]


async def test_what_a_sensor_holds_is_not_written(use):
    """Issue 3, part 3: claims with the holder's name."""
    result = await use(address=0x76, register=0, data=[1], confirm=True)
    assert result.for_llm == "i2c-1/0x76 is in use by the sensor attic"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"bus": 1}, "address: is required: 72 or 0x48"),
        ({"address": 0xEC}, "an 8-bit label? then 0x76"),
        ({"address": 0x100}, "0x100 is not from 0x03 to 0x77"),
        ({"address": "x48"}, "'x48' is not a number: write 72 or 0x48"),
        ({"address": 72.5}, "address"),
        ({"address": 72, "register": 256}, "register: 0x100 is not from 0x00 to 0xff"),
        ({"address": 72, "data": [256]}, "data"),
        ({"address": 72, "data": [1.5]}, "data"),
        ({"address": 72, "data": [-1]}, "data"),
        ({"address": 72, "data": "0x123"}, "'0x123' is not hex"),
        ({"address": 72, "action": "write"}, "data: is required for a write"),
        ({"address": 72, "action": "read", "data": [1]}, "belongs to action write or transfer"),
        ({"bus": "i2c-9", "address": 72}, "no bus i2c-9"),
        ({"address": 72, "buses": 2}, "bus: is required: there is i2c-1, i2c-2"),
        ({"address": 0x20}, "nothing answered at address 0x20"),
    ],
)
async def test_what_makes_no_sense_is_refused_with_what_would(use, arguments, reason):
    """Facts, picoclaw: 1.5 and -0.5 were taken for bytes, `"0x48"` refused."""
    try:
        result = await use(**arguments)
        text = result.for_llm
        assert result.is_error
    except InvalidArgumentsError as error:
        text = str(error)
    assert reason in text


async def test_the_buses_are_listed_and_scanned(use):
    assert (await use()).for_llm == "i2c-1"
    scanned = await use(action="scan")
    assert scanned.structured["found"][0]["address"] == "0x48"
    assert "0x48: " in scanned.for_llm
    none = await use(buses=0)
    assert "no I2C bus" in none.for_llm
