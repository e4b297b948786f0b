"""The SDS011 driver: frames of the control protocol (version 1.3), and its model."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.bus.sim import SimSerial
from edged.drivers import sds011
from edged.drivers.sds011 import Frames
from edged.errors import DataError, NoDeviceError
from edged.testing import FakeClock

EXAMPLE = bytes.fromhex("AAC0D4043A0AA1601DAB")
"""Of the sensor's specification: 123.6 and 261.8 ug/m3, number A160."""


@pytest.fixture
def sim():
    return sds011.Sim(FakeClock())


@pytest.fixture
async def port(sim):
    return await SimSerial({"ttyS0": sim}).open("ttyS0", sds011.INFO.serial, "test")


def fed(data, size):
    frames = Frames()
    return [one for at in range(0, len(data), size) for one in frames.feed(data[at : at + size])]


def test_commands_are_the_protocols():
    """P, 2 and 4, with their checksums."""
    assert sds011.command(sds011.QUERY).hex() == "aab404" + "00" * 12 + "ffff02ab"
    assert sds011.command(sds011.WORK).hex() == "aab4060101" + "00" * 10 + "ffff06ab"


def test_the_example_of_the_specification():
    """Byte 2 on: D4 04 is 1236 tenths, 3A 0A is 2618."""
    assert Frames().feed(EXAMPLE) == [EXAMPLE]
    assert [(s.channel, s.value, s.quality) for s in sds011.samples(EXAMPLE)] == [
        ("pm2_5", 123.6, "ok"),
        ("pm10", 261.8, "ok"),
    ]
    assert sds011.frame(sds011.DATA, EXAMPLE[2:8]) == EXAMPLE


def test_beyond_the_sensors_range_the_limit_is_given_and_marked():
    """Specification: 0.0 to 999.9 ug/m3."""
    data = sds011.frame(sds011.DATA, bytes.fromhex("0f2710270000"))
    assert [(s.value, s.quality) for s in sds011.samples(data)] == [
        (999.9, "ok"),
        (999.9, "clipped"),
    ]


@pytest.mark.parametrize("at", range(10))
@pytest.mark.parametrize("size", [1, 7, 10, 100])
def test_a_spoiled_byte_costs_its_frame_at_most(at, size):
    """Head, command, checksum and tail all count; the next frame is whole."""
    spoiled = bytearray(EXAMPLE)
    spoiled[at] ^= 0x10
    assert fed(bytes(spoiled) + EXAMPLE, size) == [EXAMPLE]


@given(st.integers(0, 9), st.integers(1, 30))
def test_who_joins_in_the_middle_of_a_frame_gets_the_next(start, size):
    assert fed(EXAMPLE[start:] + EXAMPLE, size)[-1] == EXAMPLE


async def test_it_reads_what_is_true_when_it_asks(sim, port):
    device = await sds011.probe(sds011.Config(), port, FakeClock().sleep)
    assert device.identity == "SDS011 a160"
    sim.emit()
    sim.pm2_5, sim.pm10 = 42.1, 999.9
    assert [s.value for s in await device.read()] == [42.1, 999.9]


async def test_a_sleeping_sensor_is_woken(sim, port):
    """P, 4: it stays asleep until it is told to work."""
    sim.asleep = True
    device = await sds011.probe(sds011.Config(), port, FakeClock().sleep)
    assert (await device.read())[0].value == 7.3


async def test_a_sensor_that_only_sends_is_read_too(sim, port):
    sim.deaf = True
    found = asyncio.ensure_future(sds011.probe(sds011.Config(), port, FakeClock().sleep))
    while not found.done():
        await asyncio.sleep(0)
        sim.emit()
    assert found.result().identity == "SDS011 a160"


async def test_a_silent_line_is_no_device(sim, port, monkeypatch):
    monkeypatch.setattr(sds011, "ANSWER_S", 0.01)
    sim.deaf = True
    with pytest.raises(NoDeviceError, match="no SDS011 is heard on ttyS0"):
        await sds011.probe(sds011.Config(), port, FakeClock().sleep)


async def test_a_sensor_that_fell_asleep_is_no_device_and_no_old_value(sim, port, monkeypatch):
    monkeypatch.setattr(sds011, "ANSWER_S", 0.01)
    device = await sds011.probe(sds011.Config(), port, FakeClock().sleep)
    sim.asleep = True
    with pytest.raises(NoDeviceError, match="no SDS011"):
        await device.read()


async def test_endless_noise_is_given_up(sim, port):
    """Every poll is bounded."""
    sim.measured = lambda: b"\xaa" * 1000
    with pytest.raises(DataError, match="receives [0-9]+ bytes but no frame of an SDS011"):
        await sds011.probe(sds011.Config(), port, FakeClock().sleep)


async def test_a_closed_port_leaves_the_model_without_a_listener(sim, port):
    await port.close()
    sim.emit()
