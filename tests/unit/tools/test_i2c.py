"""`i2c`: every form of its arguments, and no write without a word."""

import msgspec
import pytest

from edged.board import Board
from edged.bus.settings import BoardConfig, SensorConfig
from edged.bus.sim import SimBuses, SimI2c
from edged.errors import EdgedError, InvalidArgumentsError
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

    async def call(allow=(), buses=1, caller=None, limits=None, **arguments):
        chips = dict.fromkeys((0x20, 0x48, 0x70, 0x76), chip)
        i2c = {f"i2c-{n}": SimI2c(f"i2c-{n}", dict(chips)) for n in range(1, buses + 1)}
        config = BoardConfig(
            sensors={"attic": SensorConfig(driver="bme280", bus="i2c-1")},
            allow=list(allow),
            limits=limits or {},
        )
        async with Board(config, SimBuses(i2c=i2c), core.clock, sleep=core.sleep) as board:
            services = msgspec.structs.replace(core.dispatcher.services, board=board)
            core.dispatcher.services = services
            raw = msgspec.json.encode(arguments)
            return await core.call("i2c", raw, caller or core.agent)

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
    await use(address=0x48, register="0x1234", register_size=2, confirm=True)
    assert chip.written == [b"\x12\x34"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"register": 0, "data": [1]},
        {"register": 0xE0B6, "register_size": 2},
        {"register": 0},
        {},
        {"action": "transfer", "data": [1]},
        {"action": "transfer", "register": 1},
    ],
)
async def test_what_a_sensor_holds_is_not_touched(use, arguments):
    """Issue 3, part 3: claims with the holder's name; a read may do as much as a write."""
    result = await use(address=0x76, confirm=True, **arguments)
    assert result.for_llm == "i2c-1/0x76 is in use by the sensor attic"


async def test_an_owner_who_looks_for_a_fault_may_read_what_a_sensor_holds(core, use, chip):
    """A register of one byte, of a chip that has registers; and nothing is written."""
    chip.memory[0xD0] = 0x60
    result = await use(caller=core.owner, address=0x76, register=0xD0)
    assert result.structured["data"] == [0x60]
    for more in ({"register_size": 2}, {"data": [1]}, {"action": "transfer", "data": [1]}):
        refused = await use(caller=core.owner, address=0x76, register=1, confirm=True, **more)
        assert refused.for_llm == "i2c-1/0x76 is in use by the sensor attic"


@pytest.mark.parametrize(
    "arguments",
    [
        {"address": 0x20, "register": 255},
        {"address": 0x70, "register": 8},
        {"address": 0x48, "register": "0x0166", "register_size": 2},
        {"address": 0x20, "action": "transfer", "register": 255},
        {"address": 0x20, "register": 255, "stop_between": True},
    ],
)
async def test_a_read_that_writes_data_needs_a_confirmation(use, chip, arguments):
    """What selects a register is an output's new level to a chip that has none."""
    result = await use(**arguments)
    assert "needs confirm: true" in result.for_llm
    assert chip.written == []


@pytest.mark.parametrize(
    ("bus", "reason"),
    [
        ("i2c-1/0x70/3", "a write to i2c-1/0x70 needs confirm: true"),
        ("i2c-1/112/3", "a write to i2c-1/0x70 needs confirm: true"),
        ("i2c-1/0x20/7", "a multiplexer is at 0x70 to 0x77"),
        ("i2c-1/0x70/" + "0" * 5000, "0x70"),
    ],
)
async def test_a_multiplexer_is_not_switched_without_a_word(use, chip, bus, reason):
    """To choose a channel writes to its address, and lets through what is before it."""
    result = await use(bus=bus, address=0x48, register=0)
    assert reason in result.for_llm
    assert chip.written == []


async def test_what_is_held_before_a_multiplexer_is_held_behind_it_too(use):
    """The chips of the trunk answer whatever channel is on."""
    result = await use(bus="i2c-1/0x70/0", address=0x76, data=[1], confirm=True)
    assert result.for_llm == "i2c-1/0x76 is in use by the sensor attic"


@pytest.mark.parametrize("hex_", ["ff " * 100_000, "0x" + "ff" * 9000])
async def test_more_bytes_than_a_transfer_has_are_refused_before_they_are_read(use, hex_):
    """Five million bytes of hex were 800 MB of lists."""
    try:
        result = await use(address=0x48, data={"hex": hex_}, confirm=True)
        text = result.for_llm
    except EdgedError as error:
        text = str(error)
    assert "over" in text


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
        ({"address": 0x21}, "nothing answered at address 0x21"),
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
    found = [row["address"] for row in scanned.structured["found"]]
    assert found == ["0x20", "0x48", "0x70", "0x76"]
    assert "0x48: " in scanned.for_llm
    assert "0x76: in use by the sensor attic" in scanned.for_llm
    none = await use(buses=0)
    assert "no I2C bus" in none.for_llm


LIMITS = {"i2c-1/0x48": {0x40: (0, 0x0FFF), 0x10: (1, 1)}}


@pytest.mark.parametrize(
    "written",
    [
        {"register": 0x40, "data": [0x0F, 0xFF]},
        {"register": 0x40, "data": [0x00]},
        {"data": [0x10, 0x01]},
        {"action": "transfer", "data": [0x40, 0x00, 0x01], "length": 1},
    ],
)
async def test_what_is_within_the_owners_limits_is_written(use, chip, written):
    """Issue 3, part 3: value limits per address."""
    assert not (await use(address=0x48, limits=LIMITS, confirm=True, **written)).is_error
    assert len(chip.written) == 1


@pytest.mark.parametrize(
    "written",
    [
        {"register": 0x40, "data": [0x10, 0x00]},
        {"register": 0x10, "data": [0x00]},
        {"register": 0x41, "data": [0x00]},
        {"data": [0x40, 0x10, 0x00]},
        {"action": "transfer", "data": [0x41]},
        # To a chip whose registers have one byte this is a write.
        {"action": "read", "register": 0x4110, "register_size": 2},
        {"action": "transfer", "register": 0x10, "data": [0x02]},
    ],
)
async def test_no_confirmation_lifts_the_owners_limits(use, chip, written):
    refused = await use(address=0x48, limits=LIMITS, confirm=True, allow=["i2c-1"], **written)
    assert refused.is_error
    assert "i2c-1/0x48" in refused.for_llm
    assert "is not within limits: under board: in edged.yaml" in refused.for_llm
    assert "0x40 from 0x0 to 0xfff, 0x10 from 0x1 to 0x1" in refused.for_llm
    assert not chip.written


async def test_limits_leave_reads_and_other_addresses_alone(use, chip):
    assert not (await use(address=0x48, limits=LIMITS, register=0x41)).is_error
    other = await use(address=0x76 - 0x56, limits=LIMITS, confirm=True, data=[1, 2])
    assert not other.is_error


async def test_limits_hold_behind_a_multiplexer_where_the_address_answers_too(use, chip):
    """TCA9548A: what is before it hears what is said behind it."""
    refused = await use(bus="i2c-1/0x70/3", address=0x48, limits=LIMITS, confirm=True, data=[9, 9])
    assert "is not within limits" in refused.for_llm
