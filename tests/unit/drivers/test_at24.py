"""The driver of 24C EEPROMs, against the chips' model through the bus."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.bus.sim import NackError, SimI2c
from edged.drivers import at24
from edged.drivers.at24 import Read, Write
from edged.errors import BusError, DataError, InvalidArgumentsError, NoDeviceError
from edged.testing import FakeClock


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def sim(clock):
    return at24.Sim(clock)


@pytest.fixture
def bus(sim):
    return SimI2c("i2c-1", {0x50: sim})


@pytest.fixture
async def device(bus, clock):
    return await at24.probe(at24.Config("24c32"), bus, clock.sleep)


async def wired(chip, clock, address=0x50):
    """A chip and its driver."""
    sim = at24.Sim(clock, chip=chip)
    targets = {address + number: block for number, block in enumerate(sim.blocks())}
    bus = SimI2c("i2c-1", targets)
    return sim, await at24.probe(at24.Config(chip, address), bus, clock.sleep)


@pytest.mark.parametrize(
    ("chip", "size", "blocks", "page"),
    [
        ("24c01", 128, 1, 8),
        ("24c02", 256, 1, 8),
        ("24c04", 512, 2, 16),
        ("24c08", 1024, 4, 16),
        ("24c16", 2048, 8, 16),
        ("24c32", 4096, 1, 32),
        ("24c64", 8192, 1, 32),
        ("24c128", 16384, 1, 64),
        ("24c256", 32768, 1, 64),
        ("24c512", 65536, 1, 128),
    ],
)
async def test_each_chip_is_written_over_pages_and_blocks_and_read_back(
    chip, size, blocks, page, clock
):
    """One-byte addresses up to 16 kbit, whose upper bits are in the I2C address; else two."""
    sim, device = await wired(chip, clock)
    assert (sim.layout.blocks, sim.layout.page) == (blocks, page)
    assert device.identity == f"{chip}, {size} bytes"
    data = bytes(range(100))
    for offset in (offset for offset in (0, 3, 206, size - 100) if offset + 100 <= size):
        said = await device.act("write", Write(offset, hex=data.hex()))
        assert said == f"wrote 100 bytes at {offset:#06x} and read them back"
        assert sim.memory[offset : offset + 100] == data
        read = await device.act("read", Read(offset, 100))
        assert read.startswith(f"{offset:#06x}: 00 01 02 03")
        sim.memory[offset : offset + 100] = b"\xff" * 100
    assert set(sim.memory) == {0xFF}, "nothing else was touched"


async def test_what_crosses_a_page_is_split(sim, device):
    """Fault 24 (eeprom-writer#9): in a page the address wraps, so the start was overwritten."""
    await device.act("write", Write(0x1E, hex="01020304"))
    assert sim.memory[0x1E:0x22] == b"\x01\x02\x03\x04"
    assert sim.memory[0:2] == b"\xff\xff"
    assert sim.cycles == 2


def test_the_model_wraps_within_its_page(sim, clock):
    """Page write: more bytes than the page has left overwrite its beginning."""
    sim.write(b"\x00\x1e\x01\x02\x03\x04")
    assert sim.memory[0x1E:0x20] == b"\x01\x02"
    assert sim.memory[0:2] == b"\x03\x04"
    with pytest.raises(NackError):
        sim.read(1)
    clock.advance(0.005)
    sim.write(b"\x0f\xff")
    assert sim.read(2) == b"\xff\x03", "over the end to the beginning (sequential read)"


@given(st.integers(0, 300), st.integers(0, 300), st.sampled_from([8, 16, 32, 64, 128, 256]))
def test_spans_are_whole_and_cross_nothing(offset, length, step):
    parts = at24.spans(offset, length, step)
    assert [i for start, count in parts for i in range(start, start + count)] == list(
        range(offset, offset + length)
    )
    assert all(start // step == (start + count - 1) // step for start, count in parts)


async def test_it_waits_for_the_chip_and_not_longer(device, clock):
    """Fault 24 (ot3-firmware#441): no acknowledgement for 5 ms after each page (acknowledge polling)."""
    before = clock.monotonic()
    await device.act("write", Write(0, text="a"))
    assert clock.monotonic() - before == pytest.approx(0.005, abs=0.0011)


async def test_a_chip_that_is_gone_after_a_write_is_given_up(device, bus, clock):
    """Every poll is bounded: 10 ms."""

    class Dead:
        def write(self, data):
            pass

        def read(self, length):
            raise NackError

    bus.targets[0x50] = Dead()
    before = clock.monotonic()
    with pytest.raises(NoDeviceError, match="24c32 at 0x50 on i2c-1: it does not answer any more"):
        await device.act("write", Write(0, text="a"))
    assert clock.monotonic() - before == pytest.approx(0.01)


async def test_a_write_protected_chip_is_noticed(sim, device):
    """Pin WP: it acknowledges and keeps what it has."""
    sim.write_protected = True
    with pytest.raises(DataError, match="did not keep what was written: is it write-protected"):
        await device.act("write", Write(0, text="hello"))


async def test_text_is_shown_beside_its_bytes(device):
    await device.act("write", Write(0x10, text="Grüße"))
    await device.act("write", Write(0x20, text="hello"))
    assert await device.act("read", Read(0x20, 5)) == "0x0020: 68 65 6c 6c 6f 'hello'"
    assert await device.act("read", Read(0x10, 7)) == "0x0010: 47 72 c3 bc c3 9f 65"
    assert await device.act("read", Read(0x20, 6)) == "0x0020: 68 65 6c 6c 6f ff"
    assert await device.read() == ()


@pytest.mark.parametrize(
    ("params", "words"),
    [
        (Read(4096, 1), "4096 and 1 bytes are beyond the chip's 4096"),
        (Read(4090, 7), "beyond the chip's 4096"),
        (Write(4095, text="ab"), "beyond the chip's 4096"),
        (Write(0, text="a" * 257), "257 bytes are too many: 256 at a time"),
        (Write(0), "give hex or text"),
        (Write(0, hex="00", text="a"), "give hex or text"),
        (Write(0, hex=" "), "give hex or text"),
        (Write(0, hex="0g"), "is not hexadecimal"),
        (Write(0, hex="012"), "is not hexadecimal"),
    ],
)
async def test_what_cannot_be_is_refused_before_a_byte_moves(params, words, bus, sim, device):
    bus.stuck = True
    with pytest.raises(InvalidArgumentsError, match=words):
        await device.act(type(params).__name__.lower(), params)
    assert sim.cycles == 0


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "chip"),
        ({"chip": "24c3"}, "chip: '24c3' is not one of 24c01, "),
        ({"chip": "24c04", "address": 0x51}, "takes 2 addresses: give their first, 0x50"),
        ({"chip": "24c08", "address": 0x56}, "takes 4 addresses: give their first, 0x54"),
        ({"chip": "24c16", "address": 0x53}, "takes 8 addresses: give their first, 0x50"),
    ],
)
def test_a_chip_that_cannot_be_there_is_refused(config, words):
    """AT24C16 datasheet, device addressing: its address pins are not connected."""
    with pytest.raises(msgspec.ValidationError, match=words):
        msgspec.convert(config, at24.Config)


async def test_looking_for_it_sends_no_byte(sim, device):
    """A 24c02 asked as a 24c32 would take the second byte of the address as data."""

    class Watched:
        written = []

        def write(self, data):
            self.written.append(data)

        def read(self, length):
            return bytes(length)

    watched = Watched()
    await at24.probe(at24.Config("24c02"), SimI2c("i2c-1", {0x50: watched}), FakeClock().sleep)
    assert watched.written == []


async def test_each_of_its_addresses_must_be_there(clock):
    """A 24c04 where a 24c08 was said."""
    targets = dict(enumerate(at24.Sim(clock, chip="24c04").blocks(), 0x54))
    with pytest.raises(NoDeviceError, match="0x56"):
        await at24.probe(at24.Config("24c08", 0x54), SimI2c("i2c-1", targets), clock.sleep)


@pytest.mark.parametrize(("kind", "error"), [("nack", NoDeviceError), ("timeout", BusError)])
async def test_a_fault_is_an_error(kind, error, bus, device):
    bus.fail(0x50, kind)
    for action in (
        device.safe,
        lambda: device.act("read", Read(0)),
        lambda: device.act("write", Write(0, text="a")),
    ):
        with pytest.raises(error):
            await action()
    bus.fail(0x50, kind, times=0)
    await device.act("write", Write(0, text="a"))
