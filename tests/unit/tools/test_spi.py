"""`spi` on simulated buses (issue 3, part 2)."""

import msgspec
import pytest

from edged.board import Board
from edged.bus.settings import BoardConfig
from edged.bus.sim import SimBuses, SimSpi
from edged.tools import spi


class Chip:
    """Answers the complement of each byte, and remembers what came."""

    def __init__(self):
        self.sent = []

    def transfer(self, write):
        self.sent.append(write)
        return bytes(255 - byte for byte in write)


@pytest.fixture
def chip():
    return Chip()


@pytest.fixture
def bench(core, chip):
    """A board with these chip selects; `allow` is the owner's."""
    core.add(*spi.TOOLS)

    def bench(*names, allow=(), **targets):
        known = {name: SimSpi(name, chip) for name in names or ("spi0.0",)}
        board = Board(BoardConfig(allow=list(allow)), SimBuses(spi=known), core.clock)
        core.dispatcher.services = msgspec.structs.replace(core.dispatcher.services, board=board)
        return board

    bench()
    return bench


async def use(core, **arguments):
    return await core.call("spi", msgspec.json.encode(arguments), core.agent)


@pytest.mark.parametrize("device", ["spi0.0", "/dev/spidev0.0", "spidev0.0", "0.0", None])
@pytest.mark.parametrize("action", [{}, {"action": "read"}])
async def test_reading_sends_zeros_and_says_what_came(core, bench, chip, device, action):
    """All forms of a device; the only one needs no name."""
    result = await use(core, device=device, length=3, **action)
    assert chip.sent == [b"\x00\x00\x00"]
    assert result.structured["data"] == [255, 255, 255]
    assert not result.is_error


async def test_a_read_may_send_ones(core, bench, chip):
    """Some chips take zeros for a command."""
    result = await use(core, action="read", length=2, fill=255)
    assert chip.sent == [b"\xff\xff"]
    assert result.structured["hex"] == "0000"


@pytest.mark.parametrize(
    "data",
    [
        [0x9F, 0, 1],
        "0x9f0001",
        "0x9f 0x00 0x01",
        "0x9F,00,01",
        {"hex": "9f:00:01"},
        {"hex": "0x9f0001"},
    ],
)
@pytest.mark.parametrize("action", [{}, {"action": "transfer"}])
async def test_a_transfer_sends_bytes_in_any_form(core, bench, chip, data, action):
    """Issue 3, part 2: `data` as bytes, text, hex."""
    result = await use(core, device="spi0.0", data=data, confirm=True, **action)
    assert chip.sent == [b"\x9f\x00\x01"]
    assert result.for_llm == "spi0.0: sent 9f 00 01, received 60 ff fe"
    assert result.structured == {
        "device": "spi0.0",
        "sent": 3,
        "received": 3,
        "data": [0x60, 0xFF, 0xFE],
        "hex": "60fffe",
    }


@pytest.mark.parametrize("data", ["hi", {"text": "hi"}])
async def test_a_transfer_sends_text(core, bench, chip, data):
    await use(core, data=data, confirm=True)
    assert chip.sent == [b"hi"]


async def test_a_transfer_needs_a_confirmation_or_the_owners_allowance(core, bench, chip):
    """Contract, section 8."""
    denied = await use(core, data=[1, 2])
    assert denied.is_error
    assert "a write to spi0.0 needs confirm: true, or allow: [spi0.0]" in denied.for_llm
    assert not (await use(core, data=[1, 2], confirm=True)).is_error
    bench(allow=["spi0.0"])
    assert not (await use(core, data=[1, 2])).is_error
    assert chip.sent == [b"\x01\x02"] * 2


@pytest.mark.parametrize(
    "call", [{"length": 1}, {"data": [1], "confirm": True}], ids=["read", "transfer"]
)
async def test_a_chip_select_that_is_held_is_refused_with_its_holder(core, bench, chip, call):
    """Issue 3, part 3: claims on chip selects."""
    board = bench()
    async with board.claim("spi0.0", "sensor adc"):
        result = await use(core, **call)
    assert result.is_error
    assert "spi0.0 is in use by sensor adc" in result.for_llm
    assert chip.sent == []


async def test_chip_selects_are_listed(core, bench):
    bench("spi0.0", "spi0.1")
    for arguments in ({}, {"action": "list"}):
        result = await use(core, **arguments)
        assert result.for_llm == "spi0.0: /dev/spidev0.0\nspi0.1: /dev/spidev0.1"
        assert result.structured["devices"][1] == {"device": "spi0.1", "path": "/dev/spidev0.1"}


async def test_a_board_without_spi_says_what_to_do(core, bench):
    board = Board(BoardConfig(), SimBuses(), core.clock)
    core.dispatcher.services = msgspec.structs.replace(core.dispatcher.services, board=board)
    listed = await use(core)
    assert listed.structured == {"devices": []}
    assert "`edged doctor` says how to switch one on" in listed.for_llm
    read = await use(core, length=1)
    assert "device: is required: there is none" in read.for_llm
    named = await use(core, device="spi0.0", length=1)
    assert "no bus spi0.0 (there is none)" in named.for_llm


@pytest.mark.parametrize(("reads", "word"), [("all_ones", "ones"), ("all_zeros", "zeros")])
async def test_a_line_that_nothing_drives_is_doubted(core, bench, reads, word):
    """All ones and all zeros are no chip's answer: say so (facts, fault 23)."""
    target = SimSpi("spi0.0", None)
    target.reads = reads
    board = Board(BoardConfig(), SimBuses(spi={"spi0.0": target}), core.clock)
    core.dispatcher.services = msgspec.structs.replace(core.dispatcher.services, board=board)
    result = await use(core, length=2)
    assert f"(all {word}: so reads a line that no chip drives" in result.for_llm
    assert f"all {word}" in result.structured["note"]
    assert "note" not in (await use(core, length=1)).structured


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"action": "read"}, "spi: length: is required: bytes to read"),
        ({"action": "read", "length": 1, "data": [1]}, "spi: data: belongs to action transfer"),
        ({"action": "transfer", "confirm": True}, "spi: data: is required: bytes to send"),
        ({"data": [], "confirm": True}, "spi: data: is required: bytes to send"),
        ({"data": [1], "length": 2, "confirm": True}, "spi: length: belongs to action read"),
        ({"data": "0x9", "confirm": True}, "'0x9' is not hex: write two digits for each byte"),
        ({"data": "0x1 0x2", "confirm": True}, "is not hex: write two digits for each byte"),
        ({"data": {"hex": "zz"}, "confirm": True}, "'zz' is not hex"),
        ({"device": "spi7.0", "length": 1}, "no bus spi7.0 (there is spi0.0)"),
        ({"length": 5_000}, "5000 bytes are more than the kernel's buffer of 4096"),
    ],
)
async def test_what_makes_no_sense_is_refused_with_what_would(
    core, bench, chip, arguments, reason
):
    """Errors say what to do, and no byte moves."""
    result = await use(core, **arguments)
    assert result.is_error
    assert reason in result.for_llm
    assert chip.sent == []


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"data": [1.5]}, "data"),
        ({"data": [256]}, "data"),
        ({"data": [-1]}, "data"),
        ({"data": {"hex": "00", "text": "a"}}, "data"),
        ({"data": {}}, "data"),
        ({"length": 0}, "length"),
        ({"mode": 4}, "mode"),
        ({"bits": 33}, "bits_per_word"),
        ({"speed": 0}, "max_speed_hz"),
        ({"fill": 1}, "fill"),
    ],
)
async def test_numbers_out_of_range_are_refused_not_cut(core, bench, chip, arguments, fault):
    """Numbers that are not whole, or not a byte, are cut by other programs."""
    with pytest.raises(ValueError, match=f"spi: {fault}"):
        await use(core, confirm=True, **arguments)
    assert chip.sent == []


@pytest.mark.parametrize(
    "words",
    [
        {"speed": 1_000_000, "bits": 16, "count": 2},
        {"speed_hz": "1000000", "bits_per_word": 16, "length": "2"},
        {"max_speed_hz": 1e6, "bits_per_word": 16.0, "length": 2},
    ],
)
async def test_settings_go_to_the_bus_in_the_spellings_of_clients(core, bench, words):
    """Other programs say `speed` and `bits`; a whole number may have a point."""
    seen = []

    class Recorder(SimSpi):
        async def transfer(self, write, settings):
            seen.append(settings)
            return write

    board = Board(BoardConfig(), SimBuses(spi={"spi0.0": Recorder("spi0.0", None)}), core.clock)
    core.dispatcher.services = msgspec.structs.replace(core.dispatcher.services, board=board)
    result = await use(core, bus="0.0", mode=3, lsb_first=True, cs_high=True, **words)
    assert not result.is_error
    (settings,) = seen
    assert msgspec.structs.astuple(settings) == (3, 1_000_000, 16, True, True)


def test_the_schema_is_plain():
    """Contract, section 8: enums with their type."""
    properties = spi.spi.schema["properties"]
    assert properties["action"]["enum"] == ["list", "read", "transfer"]
    assert properties["fill"] == {
        "type": "integer",
        "enum": [0, 255],
        "description": "What read sends, over and over: 0 or 255.",
        "default": 0,
    }
    assert [option["type"] for option in properties["data"]["anyOf"]] == [
        "array",
        "string",
        "object",
    ]
