"""The PCA9685 driver: data sheet values, and its register model through the bus."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.bus.sim import SimI2c
from edged.drivers import pca9685
from edged.drivers.pca9685 import Angle, Config, Duty, Off, Pulse, Servo
from edged.errors import BusError, DataError, InvalidArgumentsError, NoDeviceError
from edged.testing import FakeClock

ARM = Config(servos={"ch0": Servo(min_us=500, max_us=2500, min_deg=-90, max_deg=90)})


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def sim(clock):
    return pca9685.Sim(clock)


@pytest.fixture
def bus(sim):
    return SimI2c("i2c-1", {0x40: sim})


@pytest.fixture
def start(bus, clock):
    async def start(config=ARM):
        return await pca9685.probe(config, bus, clock.sleep)

    return start


@pytest.mark.parametrize(
    ("hertz", "scale"), [(24, 253), (50, 121), (60, 101), (200, 30), (1000, 5), (1526, 3)]
)
def test_the_prescale_is_rounded(hertz, scale):
    """7.3.5, equation 1 and its example (200 Hz: 30); other drivers cut it off by one."""
    assert pca9685.prescale(hertz) == scale


def test_the_ends_of_the_prescale():
    """7.3.5: 3 to 255."""
    assert pca9685.prescale(23.85) == 255
    assert pca9685.prescale(1700) == 3
    for hertz in (23.75, 1800):
        with pytest.raises(ValueError, match="is not within 24 to 1526"):
            pca9685.prescale(hertz)


def test_every_address_but_the_all_call_one():
    """7.1: six address pins; 0x70 is the all-call address, from 0x78 on are reserved ones."""
    assert pca9685.INFO.addresses[0] == 0x40
    assert set(pca9685.INFO.addresses) == set(range(0x40, 0x78)) - {0x70}


def test_the_trim_is_the_oscillators():
    """The internal oscillator is 25 MHz, give or take 5 %."""
    assert pca9685.prescale(50, 1.05) == 127
    assert pca9685.prescale(50, 0.95) == 115


@pytest.mark.parametrize("hertz", [0, -50, 23, 2000])
def test_a_frequency_beyond_the_chip_is_refused(hertz):
    with pytest.raises(msgspec.ValidationError, match="frequency_hz: .* is not within 24 to 1526"):
        msgspec.convert({"frequency_hz": hertz}, Config)


@pytest.mark.parametrize(
    ("counts", "registers"),
    [
        (307, "00003301"),
        (1, "00000100"),
        (4095, "0000ff0f"),
        (4096, "00100000"),
        (5000, "00100000"),
        (0, "00000010"),
        (-1, "00000010"),
    ],
)
def test_an_output_is_on_from_zero_or_all_the_time_or_never(counts, registers):
    """7.3.3: bit 4 of ON_H is full on, of OFF_H full off; 307 counts are 1.5 ms at 50 Hz."""
    assert pca9685.encode_output(counts).hex() == registers


@given(st.integers(0, 4096))
def test_counts_encode_and_decode_to_themselves(counts):
    assert pca9685.decode_output(pca9685.encode_output(counts)) == counts


def test_registers_of_another_program_are_read_too():
    """7.3.3, examples: a shifted pulse; full off wins over full on."""
    assert pca9685.decode_output(bytes.fromhex("9901cc04")) == 819
    assert pca9685.decode_output(bytes.fromhex("000fcc04")) == 1484
    assert pca9685.decode_output(bytes.fromhex("00100010")) == 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"servos": {"ch0": {"min_us": 2000, "max_us": 1000}}}, "below max_us"),
        ({"servos": {"ch0": {"min_us": 0}}}, "min_us must be above 0"),
        ({"servos": {"ch0": {"min_deg": 180}}}, "min_deg must be below max_deg"),
        ({"servos": {"ch0": {}}, "frequency_hz": 1000}, "servos.ch0: max_us is longer"),
        ({"servos": {"ch16": {}}}, "Invalid enum value"),
        ({"servos": {"ch0": {}}, "safe": {"ch0": 0.5}}, "safe.ch0: pulses of its servo are 1000"),
        ({"safe": {"ch1": 1.1}}, "<= 1"),
        ({"trim": 2}, "<= 1.1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, words):
    with pytest.raises(msgspec.ValidationError, match=words):
        msgspec.convert(settings, Config)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        (Angle(1, 0), "channel: 1 is no servo"),
        (Angle(0, 90.1), "degrees: must be from -90 to 90"),
        (Angle(0, -91), "degrees: must be from -90 to 90"),
        (Pulse(0, 2600), "width_us: pulses of its servo are 500 to 2500 us, not 2600"),
        (Pulse(0, 10), "width_us: pulses of its servo"),
        (Duty(0, 0.5), "duty: pulses of its servo"),
        (Pulse(1, 20100), "width_us: is longer than a period, which is 19988 us"),
    ],
)
async def test_what_the_configuration_forbids_is_refused_and_moves_nothing(
    params, words, start, sim
):
    """Issue 3: an agent cannot fry the board; a servo beyond its end burns."""
    device = await start()
    with pytest.raises(InvalidArgumentsError, match=words):
        await device.act("any", params)
    assert sim.duty(params.channel) == 0


@pytest.mark.parametrize(
    ("params", "width_us", "line"),
    [
        (Duty(1, 0.5), 9994.24, "output 1 is on 50.0% of the time, 9994 us of each period"),
        (Duty(2, 1.0), 19988.48, "output 2 is on 100.0% of the time, 19988 us of each period"),
        (Duty(3, 0.0), 0, "output 3 is off"),
        (Pulse(15, 1500), 1498.16, "output 15 is on 7.5% of the time, 1498 us of each period"),
        (Pulse(15, 1505), 1503.04, "output 15 is on 7.5% of the time, 1503 us of each period"),
        (Pulse(0, 0), 0, "output 0 is off"),
        (Angle(0, -90), 497.76, "output 0 is on 2.5% of the time, 498 us of each period"),
        (Angle(0, 0), 1498.16, "output 0 is on 7.5% of the time, 1498 us of each period"),
        (Angle(0, 90), 2498.56, "output 0 is on 12.5% of the time, 2499 us of each period"),
    ],
)
async def test_an_output_does_what_it_is_told(params, width_us, line, start, sim):
    """At 50 Hz a count is 122/25 us: 1500 us are 307 of them, 1505 us are 308."""
    device = await start()
    assert await device.act("any", params) == line
    assert sim.width_us(params.channel) == pytest.approx(width_us, abs=0.01)
    samples = await device.read()
    assert [s.channel for s in samples] == [f"ch{n}" for n in range(16)]
    assert samples[params.channel].value == sim.duty(params.channel)
    assert all(s.value == 0 for n, s in enumerate(samples) if n != params.channel)


async def test_a_servos_ends_are_meant_to_the_microsecond(start, sim):
    """What is computed from a duty or an angle is never whole."""
    device = await start()
    await device.act("pulse", Pulse(0, 499.6))
    await device.act("pulse", Pulse(0, 2500.4))
    for width_us in (499.4, 2500.6):
        with pytest.raises(InvalidArgumentsError, match="500 to 2500 us"):
            await device.act("pulse", Pulse(0, width_us))


async def test_outputs_that_another_program_put_to_sleep_work_again(start, sim, clock):
    """7.3.1.1: then bit 7 waits to be written, and no output moves before."""
    for write in ("0020", "0600000008"):
        sim.write(bytes.fromhex(write))
    clock.advance(0.001)
    sim.write(bytes.fromhex("0030"))
    device = await start()
    assert sim.duty(0) == 0
    await device.act("duty", Duty(1, 0.5))
    assert sim.duty(1) == 0.5


@pytest.mark.parametrize("megahertz", [24.0, 25.0, 26.5])
async def test_the_trim_makes_pulses_right(megahertz, clock):
    sim = pca9685.Sim(clock, oscillator_hz=megahertz * 1e6)
    config = Config(trim=megahertz / 25)
    device = await pca9685.probe(config, SimI2c("i2c-1", {0x40: sim}), clock.sleep)
    await device.act("pulse", Pulse(4, 1500))
    assert sim.frequency_hz == pytest.approx(50, rel=0.004)
    assert sim.width_us(4) == pytest.approx(1500, abs=2.5)


async def test_off_is_for_one_or_for_all(start, sim):
    device = await start()
    for channel in range(1, 16):
        await device.act("duty", Duty(channel, 0.25))
    assert await device.act("off", Off(7)) == "output 7 is off"
    assert [n for n in range(16) if sim.duty(n)] == [*range(1, 7), *range(8, 16)]
    assert await device.act("off", Off()) == "all outputs are off"
    assert not any(sim.duty(n) for n in range(16))


async def test_the_safe_state_is_off_but_for_what_is_configured(start, sim):
    """Issue 3, part 3."""
    device = await start(Config(safe={"ch3": 1.0, "ch9": 0.25}))
    await device.act("duty", Duty(0, 0.9))
    await device.act("duty", Duty(3, 0.1))
    await device.safe()
    assert {n: sim.duty(n) for n in range(16) if sim.duty(n)} == {3: 1.0, 9: 0.25}


async def test_after_a_restart_of_the_daemon_no_output_moves(start, sim, bus, clock):
    """A frequency that is right already is left alone."""
    await (await start()).act("angle", Angle(0, 45))
    before = sim.width_us(0)
    await start()
    assert sim.width_us(0) == before > 0
    assert (await (await start()).read())[0].value == sim.duty(0)


async def test_another_frequency_switches_all_outputs_off_first(start, sim):
    """7.3.5: PRE_SCALE is blocked unless the chip sleeps."""
    await (await start()).act("duty", Duty(5, 0.5))
    device = await start(Config(frequency_hz=1000))
    assert sim.frequency_hz == pytest.approx(1000, rel=0.02)
    assert not any(sim.duty(n) for n in range(16))
    await device.act("duty", Duty(5, 0.5))
    assert sim.duty(5) == 0.5


async def test_the_all_call_address_is_given_up(start, sim):
    """7.3.1: at reset every PCA9685 answers at 0x70 too, where a multiplexer may be."""
    assert sim.read(1)[0] & 1
    await start()
    sim.write(b"\x00")
    assert sim.read(1) == b"\x20"


async def test_a_brown_out_is_noticed_and_ends_in_the_safe_state(start, sim, bus):
    device = await start(Config(safe={"ch3": 1.0}))
    await device.act("duty", Duty(5, 0.5))
    bus.brown_out(0x40)
    for action in (device.read(), device.act("duty", Duty(5, 0.5)), device.act("off", Off())):
        with pytest.raises(DataError, match="lost its settings: its supply dipped"):
            await action
    assert not sim.duty(5)
    await device.safe()
    assert sim.duty(3) == 1.0


async def test_writes_go_through_any_adapter(clock):
    """SMBus adapters carry 32 bytes."""
    longest = []

    class Listening(pca9685.Sim):
        def write(self, data):
            longest.append(len(data))
            super().write(data)

        def read(self, length):
            longest.append(length)
            return super().read(length)

    bus = SimI2c("i2c-1", {0x40: Listening(clock)})
    device = await pca9685.probe(Config(), bus, clock.sleep)
    await device.safe()
    await device.read()
    assert max(longest) == 32


class Deaf:
    """A chip that keeps nothing."""

    def write(self, data):
        pass

    def read(self, length):
        return b"\x11" * length


async def test_another_chip_is_refused(clock):
    with pytest.raises(DataError, match="does not keep its settings: another chip\\?"):
        await pca9685.probe(Config(), SimI2c("i2c-1", {0x40: Deaf()}), clock.sleep)


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        ("nack", NoDeviceError, "nothing answered"),
        ("timeout", BusError, "stuck"),
        ("all_ones", NoDeviceError, "does not answer \\(all ones\\)"),
        ("all_zeros", DataError, "its settings"),
    ],
)
async def test_a_fault_on_the_bus_is_an_error_and_frees_it(kind, error, words, start, bus, sim):
    """Issue 3, part 1: a failed caller never blocks the next."""
    device = await start()
    bus.fail(0x40, kind)
    for action in (device.read, device.safe, lambda: device.act("off", Off(1)), start):
        with pytest.raises(error, match=words):
            await action()
    bus.fail(0x40, kind, times=0)
    await device.safe()
    await device.act("angle", Angle(0, 0))
    assert sim.width_us(0) == pytest.approx(1498, abs=1)


def test_the_model_needs_its_oscillator_and_a_restart(sim, clock):
    """7.3.1.1: asleep the outputs stop; after 500 us a 1 in bit 7 starts them again."""
    sim.write(bytes.fromhex("0020"))
    sim.write(bytes.fromhex("0600000008"))
    assert sim.duty(0) == 0
    clock.advance(0.0005)
    assert sim.duty(0) == 0.5
    sim.write(bytes.fromhex("0030"))
    sim.write(b"\x00")
    assert sim.read(1) == b"\xb0"
    assert sim.duty(0) == 0
    sim.write(bytes.fromhex("0020"))
    clock.advance(0.0005)
    assert sim.duty(0) == 0
    sim.write(bytes.fromhex("00a0"))
    assert sim.duty(0) == 0.5
    sim.write(bytes.fromhex("fe03"))
    assert sim.frequency_hz == pytest.approx(196.9, abs=0.1)


def test_without_auto_increment_one_register_is_written_again(sim):
    """7.3.1, bit AI."""
    sim.write(bytes.fromhex("080102"))
    sim.write(b"\x08")
    assert sim.read(2) == b"\x02\x02"
