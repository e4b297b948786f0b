"""The PMS5003 driver: frames of the manual (version 2.3, appendices I and II), and its model.

The idle frame and its checksum are reported ones (pimoroni/pms5003-python#3, #5).
"""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.bus.sim import SimSerial
from edged.drivers import pms5003
from edged.drivers.pms5003 import Frames, frame
from edged.errors import DataError, NoDeviceError
from edged.testing import FakeClock

IDLE = bytes.fromhex("424d001c" + "00" * 24 + "9700" + "0142")
MEASURED = frame(bytes.fromhex("0004000700090005000800" + "0a" + "00" * 12 + "9700"))


@pytest.fixture
def sim():
    return pms5003.Sim(FakeClock())


@pytest.fixture
async def port(sim):
    return await SimSerial({"ttyS0": sim}).open("ttyS0", pms5003.INFO.serial, "test")


def fed(data, size):
    frames = Frames()
    return [one for at in range(0, len(data), size) for one in frames.feed(data[at : at + size])]


def test_commands_are_the_manuals():
    """Appendix II; the checksum is the sum of all bytes before it."""
    assert pms5003.command(pms5003.PASSIVE) == bytes.fromhex("424de100000170")
    assert pms5003.command(pms5003.ASK) == bytes.fromhex("424de200000171")


def test_the_idle_frame_has_the_checksum_0142():
    assert frame(IDLE[4:-2]) == IDLE
    assert Frames().feed(IDLE) == [IDLE[4:-2]]


def test_the_values_in_air_count_and_not_those_of_standard_particles():
    """Appendix I: data 4 to 6 are under atmospheric environment."""
    samples = pms5003.samples(MEASURED[4:-2])
    assert [(s.channel, s.value, s.quality) for s in samples] == [
        ("pm1", 5.0, "ok"),
        ("pm2_5", 8.0, "ok"),
        ("pm10", 10.0, "ok"),
    ]


def test_beyond_the_sensors_range_the_limit_is_given_and_marked():
    """Technical index: PM2.5 up to 1000 ug/m3."""
    contents = bytes(6) + bytes.fromhex("03e803e9ffff") + bytes(14)
    assert [(s.value, s.quality) for s in pms5003.samples(contents)] == [
        (1000.0, "ok"),
        (1000.0, "clipped"),
        (1000.0, "clipped"),
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 31, 32, 33, 1000])
def test_a_start_right_behind_a_checksum_of_42_is_not_overlooked(size):
    """Hardware faults, 10: 42 42 4D on the wire, seen by who joins in the middle of a frame."""
    assert fed(IDLE[-1:] + MEASURED, size) == [MEASURED[4:-2]]
    assert fed(IDLE + IDLE, size) == [IDLE[4:-2], IDLE[4:-2]]
    assert fed(IDLE[17:] + IDLE + MEASURED, size) == [IDLE[4:-2], MEASURED[4:-2]]


@given(st.integers(0, 31), st.integers(1, 255), st.integers(1, 40))
def test_a_spoiled_byte_costs_its_frame_at_most(at, flip, size):
    """Hardware faults, 10: at most one frame lost, the next is whole."""
    spoiled = bytearray(MEASURED)
    spoiled[at] ^= flip
    found = fed(IDLE + bytes(spoiled) + MEASURED + IDLE, size)
    assert found[0] == IDLE[4:-2]
    assert found[-2:] == [MEASURED[4:-2], IDLE[4:-2]]
    assert len(found) == 3


@given(st.binary(max_size=200), st.integers(1, 40))
def test_noise_is_never_longer_kept_than_a_frame(noise, size):
    frames = Frames()
    for at in range(0, len(noise), size):
        frames.feed(noise[at : at + size])
        assert 1 <= frames.missing <= 32


def test_a_pms3003_has_shorter_frames():
    """Its manual: length 20, data 4 to 6 at the same place."""
    short = frame(bytes.fromhex("000100020003000400050006") + bytes(6))
    assert short[2:4] == b"\x00\x14"
    (contents,) = Frames().feed(short)
    assert [s.value for s in pms5003.samples(contents)] == [4.0, 5.0, 6.0]


async def test_it_reads_what_is_true_when_it_asks(sim, port):
    device = await pms5003.probe(pms5003.Config(), port, FakeClock().sleep)
    sim.pm1, sim.pm2_5, sim.pm10 = 11, 22, 33
    assert [s.value for s in await device.read()] == [11.0, 22.0, 33.0]


async def test_a_frame_from_before_the_question_is_no_reading(sim, port):
    """Issue 3, part 5: never a stale number; the port keeps what came while nobody read."""
    device = await pms5003.probe(pms5003.Config(), port, FakeClock().sleep)
    sim.emit()
    sim.pm2_5 = 99
    assert (await device.read())[1].value == 99.0


async def test_a_sensor_that_only_sends_is_read_too(sim, port):
    """Many wire its transmit pin alone: it stays in active mode."""
    sim.deaf = True
    reading = asyncio.ensure_future(pms5003.probe(pms5003.Config(), port, FakeClock().sleep))
    while not reading.done():
        await asyncio.sleep(0)
        sim.emit()
    assert reading.result().identity == "PMS5003"


async def test_a_silent_line_is_no_device(sim, port, monkeypatch):
    monkeypatch.setattr(pms5003, "ANSWER_S", 0.01)
    sim.deaf = True
    with pytest.raises(NoDeviceError, match="no PMS5003 is heard on ttyS0: check its 5 V"):
        await pms5003.probe(pms5003.Config(), port, FakeClock().sleep)


async def test_other_bytes_are_no_reading(sim, port, monkeypatch):
    monkeypatch.setattr(pms5003, "ANSWER_S", 0.01)
    sim.measured = lambda: b"hello"
    with pytest.raises(DataError, match="receives [0-9]+ bytes but no frame of a PMS5003"):
        await pms5003.probe(pms5003.Config(), port, FakeClock().sleep)


async def test_endless_noise_is_given_up(sim, port):
    """Every poll is bounded."""
    sim.measured = lambda: b"\x42" * 1000
    with pytest.raises(DataError, match="no frame"):
        await pms5003.probe(pms5003.Config(), port, FakeClock().sleep)


async def test_an_unplugged_port_is_no_device(sim):
    ports = SimSerial({"ttyS0": sim})
    port = await ports.open("ttyS0", pms5003.INFO.serial, "test")
    device = await pms5003.probe(pms5003.Config(), port, FakeClock().sleep)
    ports.pull("ttyS0")
    with pytest.raises(NoDeviceError, match="unplugged"):
        await device.read()
    sim.emit()
