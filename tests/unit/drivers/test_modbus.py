"""The Modbus driver: frames of the specification, and its model on a simulated line.

A is the MODBUS application protocol, version 1.1b3, whose examples are used.
"""

import asyncio

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.bus import SerialSettings
from edged.bus.sim import SimSerial
from edged.drivers import modbus
from edged.drivers._modbus import (
    Batch,
    RegisterConfig,
    batches,
    crc16,
    decode,
    encode,
    frame,
    quiet_s,
)
from edged.drivers.modbus import Config, Write
from edged.errors import DataError, InvalidArgumentsError, NoDeviceError
from edged.testing import FakeClock

CONFIG = Config(**modbus.SIM_CONFIG, timeout_s=0.01)


@pytest.fixture
def sim():
    return modbus.Sim(FakeClock())


@pytest.fixture
async def port(sim):
    return await SimSerial({"ttyS0": sim}).open("ttyS0", modbus.INFO.serial, "test")


async def found(port, **changes):
    config = msgspec.structs.replace(CONFIG, **changes)
    return await modbus.probe(config, port, FakeClock().sleep)


async def values(device):
    return {sample.channel: sample.value for sample in await device.read()}


@pytest.mark.parametrize(
    ("body", "crc"),
    [("010300000002", "c40b"), ("0104000c0002", "b1c8"), ("01040443c9aa46", "c16c")],
)
def test_the_checksum_of_known_frames(body, crc):
    """CRC A001, low byte first; a whole frame has the checksum 0."""
    data = bytes.fromhex(body)
    assert frame(data[0], data[1:]).hex() == body + crc
    assert crc16(bytes.fromhex(body + crc)) == 0


def test_neighbours_are_read_together_and_nothing_between():
    registers = {
        "d": RegisterConfig(7),
        "a": RegisterConfig(3, type="u32"),
        "b": RegisterConfig(5, type="f32"),
        "c": RegisterConfig(5),
        "e": RegisterConfig(9),
        "x": RegisterConfig(10, "input"),
        "y": RegisterConfig(0, "coil"),
        "z": RegisterConfig(1, "coil"),
    }
    assert batches(registers) == (
        Batch("coil", 0, 2, ("y", "z")),
        Batch("holding", 3, 5, ("a", "b", "c", "d")),
        Batch("holding", 9, 1, ("e",)),
        Batch("input", 10, 1, ("x",)),
    )


def test_a_request_never_reads_more_than_allowed():
    """A 6.1 and 6.3: 2000 bits, 125 words."""
    words = batches({str(at): RegisterConfig(at) for at in range(126)})
    assert [(one.start, one.size) for one in words] == [(0, 125), (125, 1)]
    bits = batches({str(at): RegisterConfig(at, "coil") for at in range(2001)})
    assert [(one.start, one.size) for one in bits] == [(0, 2000), (2000, 1)]


def test_the_example_of_reading_words():
    """A 6.3: registers 108 to 110 are 022B 0000 0064; requests count from 0."""
    batch = Batch("holding", 107, 3, ())
    assert batch.pdu.hex() == "03006b0003"
    data = bytes.fromhex("022b00000064")
    assert [decode(RegisterConfig(at), batch, data) for at in (107, 108, 109)] == [555, 0, 100]


def test_the_example_of_reading_bits():
    """A 6.1: coils 20 to 38 are CD 6B 05, the lowest bit first."""
    batch = Batch("coil", 19, 19, ())
    assert batch.pdu.hex() == "0100130013"
    assert batch.data_size == 3
    data = bytes.fromhex("cd6b05")
    bits = [int(decode(RegisterConfig(19 + at, "coil"), batch, data)) for at in range(19)]
    assert bits == [1, 0, 1, 1, 0, 0, 1, 1, 1, 1, 0, 1, 0, 1, 1, 0, 1, 0, 1]


@pytest.mark.parametrize(
    ("settings", "data", "value"),
    [
        ({"type": "u16"}, "ffff", 65535),
        ({"type": "i16"}, "ffff", -1),
        ({"type": "i16"}, "8000", -32768),
        ({"type": "i16", "scale": 0.1}, "fff5", -1.1),
        ({"type": "u16", "scale": 0.1, "offset": -40}, "0000", -40),
        ({"type": "u16", "scale": 0.1}, "08fd", 230.1),
        ({"type": "u32"}, "00010002", 65538),
        ({"type": "u32", "order": "little"}, "00010002", 131073),
        ({"type": "i32"}, "fffffb2e", -1234),
        ({"type": "i32", "order": "little"}, "fb2effff", -1234),
        ({"type": "f32"}, "43c9aa46", 403.3303),
        ({"type": "f32", "order": "little"}, "aa4643c9", 403.3303),
    ],
)
def test_types_words_and_scales(settings, data, value):
    """Hardware sheet: 43C9AA46 is 403.330; FFFF is -1 and never 65535 of a signed one."""
    one = RegisterConfig(4, **settings)
    assert decode(one, Batch("holding", 4, 2, ()), bytes.fromhex(data)) == value


@given(
    st.sampled_from(["u16", "i16", "u32", "i32"]), st.sampled_from(["big", "little"]), st.data()
)
def test_what_is_written_is_what_is_read(kind, order, data):
    one = RegisterConfig(4, type=kind, order=order, scale=0.5, offset=3)
    low, high = one.range()
    value = data.draw(st.integers(int(low), int(high)))
    words = encode(one, value)[-2 * one.size :]
    assert decode(one, Batch("holding", 4, one.size, ()), words) == value


@pytest.mark.parametrize(
    ("one", "value", "pdu"),
    [
        (RegisterConfig(172, "coil"), 1, "0500acff00"),
        (RegisterConfig(172, "coil"), 0, "0500ac0000"),
        (RegisterConfig(1), 3, "0600010003"),
        (RegisterConfig(1, type="i16", scale=0.1), -0.1, "060001ffff"),
        (RegisterConfig(1, type="u32"), 0x000A0102, "1000010002" + "04000a0102"),
        (RegisterConfig(1, type="f32", order="little"), 403.33, "1000010002" + "04aa3d43c9"),
    ],
)
def test_the_examples_of_writing(one, value, pdu):
    """A 6.5, 6.6 and 6.12."""
    assert encode(one, value).hex() == pdu


def test_the_silence_between_frames():
    """S 2.5.1.1: 3.5 characters of 11 bits at 9600 Bd, 1.75 ms above 19200 Bd."""
    assert quiet_s(SerialSettings(baudrate=9600, parity="even")) == pytest.approx(
        0.00401, abs=1e-5
    )
    assert quiet_s(SerialSettings(baudrate=115_200)) == 0.00175


@pytest.mark.parametrize(
    ("register", "fault"),
    [
        ({"address": 0, "unit": "bananas"}, "unit 'bananas' is not one of Cel"),
        ({"address": 70000}, "registers"),
        ({"address": 0, "scale": 0}, "scale: must not be 0"),
        ({"address": 0, "writable": True}, "min and max: a writable register needs both"),
        ({"address": 0, "writable": True, "min": 2, "max": 1}, "min: must be less than max"),
        ({"address": 0, "writable": True, "min": 0, "max": 70000}, "u16 holds from 0 to 65535"),
        ({"address": 0, "writable": True, "min": -1, "max": 7}, "u16 holds from 0 to 65535"),
        ({"address": 0, "writable": True, "min": 0, "max": 9, "safe": 10}, "safe: must be from"),
        ({"address": 0, "kind": "input", "writable": True}, "input registers can only be read"),
        ({"address": 0, "safe": 0}, "safe: only a writable register has one"),
    ],
)
def test_a_map_with_a_fault_is_refused(register, fault):
    with pytest.raises(msgspec.ValidationError, match=fault):
        msgspec.convert({"registers": {"a": register}}, Config)


def test_a_map_without_registers_is_refused():
    with pytest.raises(msgspec.ValidationError, match="there are none: describe one at least"):
        msgspec.convert({"registers": {}}, Config)


def test_channels_are_those_of_the_map():
    """`Driver`: where settings decide what is measured."""
    found = {one.name: one for one in modbus.channels(CONFIG)}
    assert list(found) == ["voltage", "current", "energy", "limit", "relay", "alarm"]
    assert (found["voltage"].low, found["voltage"].high) == (0.0, pytest.approx(6553.5))
    assert (found["relay"].low, found["relay"].high, found["relay"].unit) == (0.0, 1.0, "/")
    (turned,) = modbus.channels(Config({"t": RegisterConfig(0, scale=-0.1, unit="Cel")}))
    assert (turned.low, turned.high) == (pytest.approx(-6553.5), 0.0)


async def test_it_reads_what_is_true(port):
    device = await found(port)
    assert device.identity == "Modbus unit 1"
    assert await values(device) == {
        "voltage": 230.1,
        "current": -1.234,
        "energy": 403.3303,
        "limit": 16.0,
        "relay": 0.0,
        "alarm": 1.0,
    }


async def test_a_reading_asks_once_for_neighbours(sim, port):
    device = await found(port)
    sim.requests.clear()
    await device.read()
    assert [one[:6].hex() for one in sim.requests] == [
        "010100000001",
        "010200030001",
        "010300020001",
        "010400000003",
        "0104000c0002",
    ]


@pytest.mark.parametrize("echoes", [False, True])
async def test_writing_reaches_the_device(sim, port, echoes):
    """Hardware faults, 11: what the adapter hears of the request is no answer."""
    sim.echoes = echoes
    device = await found(port)
    assert await device.act("write", Write("limit", 32)) == "limit is 32 A"
    assert await device.act("write", Write("relay", 1)) == "relay is 1"
    assert sim.tables["holding"][2] == 32
    assert (await values(device))["relay"] == 1.0
    await device.safe()
    assert sim.tables["coil"][0] == 0


async def test_an_echo_alone_is_no_answer_to_a_write(sim, port):
    """The confirmation of a write looks like its request: a dead device must not pass for one."""
    sim.echoes = True
    device = await found(port, retries=0)
    sim.unit_id = 2
    with pytest.raises(NoDeviceError, match="Modbus unit 1 on ttyS0 does not answer"):
        await device.act("write", Write("limit", 32))


async def test_a_value_of_two_words_is_written_whole(sim, port):
    sim.tables["holding"] |= {8: 0, 9: 0}
    both = RegisterConfig(8, type="i32", writable=True, min=-100_000, max=0, unit="Cel")
    device = await found(port, registers={"both": both})
    assert await device.act("write", Write("both", -70_000)) == "both is -70000 °C"
    assert await values(device) == {"both": -70_000.0}


@pytest.mark.parametrize(
    ("register", "value", "fault"),
    [
        ("limit", 101, "value: must be from 0 to 100"),
        ("limit", -1, "value: must be from 0 to 100"),
        ("limit", float("nan"), "value: must be from 0 to 100"),
        ("relay", 0.5, "value: must be 0 or 1"),
        ("voltage", 1, "'voltage' is not writable: limit, relay is"),
        ("nothing", 1, "'nothing' is not writable"),
    ],
)
async def test_what_the_map_does_not_allow_is_not_written(sim, port, register, value, fault):
    device = await found(port)
    sim.requests.clear()
    with pytest.raises(InvalidArgumentsError, match=fault):
        await device.act("write", Write(register, value))
    assert sim.requests == []


async def test_a_map_that_writes_nothing_says_so(port):
    device = await found(port, registers={"voltage": RegisterConfig(0, "input")})
    with pytest.raises(InvalidArgumentsError, match="no register is"):
        await device.act("write", Write("voltage", 1))
    await device.safe()


async def test_an_exception_is_said_in_words_and_leaves_the_others(sim, port):
    """A, section 7."""
    del sim.tables["input"][12]
    device = await found(port)
    samples = {sample.channel: sample for sample in await device.read()}
    assert (samples["energy"].value, samples["energy"].quality) == (None, "error")
    assert "exception 2: it has no such register (illegal data address)" in samples["energy"].note
    assert samples["voltage"].value == 230.1


async def test_a_device_that_knows_nothing_of_the_map_is_not_found(sim, port):
    sim.answer = lambda pdu: bytes([pdu[0] | 0x80, 1])
    with pytest.raises(DataError, match="exception 1: it does not know this function"):
        await found(port)


async def test_a_refused_write_is_an_error(sim, port):
    device = await found(port)
    sim.answer = lambda pdu: bytes([pdu[0] | 0x80, 0x63])
    with pytest.raises(DataError, match="unit 1 on ttyS0: exception 99: one of its maker"):
        await device.act("write", Write("limit", 32))
    del sim.answer
    for table in sim.tables.values():
        table.clear()
    for register in (
        RegisterConfig(0, writable=True, min=0, max=9, safe=0),
        RegisterConfig(0, writable=True, min=0, max=9, safe=0, type="u32"),
    ):
        device = modbus.Modbus(Config({"gone": register}), port, FakeClock().sleep)
        with pytest.raises(DataError, match="exception 2"):
            await device.safe()


async def test_a_busy_device_is_asked_again_and_it_is_counted(sim, port):
    """A, section 7, code 6; hardware faults, 11: retry count in the result."""
    device = await found(port)
    sim.busy = 2
    samples = {sample.channel: sample for sample in await device.read()}
    assert samples["voltage"].value == 230.1
    assert samples["voltage"].note == "after 2 failed attempts"
    assert device.retries == 2
    sim.busy = 3
    with pytest.raises(DataError, match="exception 6: it is busy"):
        await device.read()


async def test_silence_is_no_device_after_bounded_attempts(sim, port):
    sim.unit_id = 9
    with pytest.raises(NoDeviceError, match="check its unit id, the speed and parity"):
        await found(port)
    assert len(sim.requests) == 3


async def test_an_unplugged_port_is_no_device(sim):
    ports = SimSerial({"ttyS0": sim})
    device = await found(await ports.open("ttyS0", modbus.INFO.serial, "test"))
    ports.pull("ttyS0")
    with pytest.raises(NoDeviceError, match="unplugged"):
        await device.read()


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "the checksum is wrong"),
        (lambda data: data[:3], "the checksum is wrong after 3 bytes"),
        (lambda data: data[:1], "the checksum is wrong after 1 bytes"),
        (lambda data: frame(2, data[1:-2]), "unit 2 answered, to function 4: a late answer"),
        (lambda data: frame(1, b"\x03" + data[2:-2]), "to function 3: a late answer"),
        (lambda data: frame(1, b"\x04\x06" + data[3:-2]), "6 bytes in place of 2"),
        (lambda data: b"\x00" * 300, "the checksum|unit 0 answered"),
    ],
)
async def test_an_answer_that_is_not_the_requests_is_an_error(sim, port, spoil, fault):
    """Hardware faults, 11: unit, function, length and checksum must match."""
    device = await found(port, registers={"voltage": RegisterConfig(0, "input")})
    sim.send = lambda data: port.arrive(spoil(data))
    with pytest.raises(DataError, match=fault):
        await device.read()


async def test_a_confirmation_of_another_register_is_an_error(sim, port):
    device = await found(port)
    sim.answer = lambda pdu: pdu[:2] + bytes([pdu[2] ^ 1]) + pdu[3:]
    with pytest.raises(DataError, match="another register was confirmed"):
        await device.act("write", Write("limit", 32))


async def test_a_late_answer_is_never_taken_for_the_next_one(sim, port):
    """Hardware faults, 11: after a time-out the line is drained before the next request."""
    voltage = RegisterConfig(0, "input", scale=0.1)
    device = await found(port, registers={"voltage": voltage}, timeout_s=0.2)
    late = []

    def send_later(data):
        # The first answer comes after its time-out, and would come right within the second's.
        delay_s = 0.15 if late else 0.3
        late.append(data)
        asyncio.get_running_loop().call_later(delay_s, port.arrive, data)
        sim.tables["input"][0] = 1000

    sim.send = send_later
    (sample,) = await device.read()
    assert (sample.value, sample.note) == (100.0, "after 1 failed attempts")
    assert len(late) == 2


async def test_what_came_unasked_is_no_answer(sim, port):
    """Hardware faults, 11: stale buffer."""
    device = await found(port, registers={"voltage": RegisterConfig(0, "input")})
    port.arrive(frame(1, b"\x04\x02\x00\x07"))
    assert await values(device) == {"voltage": 2301.0}


async def test_a_request_that_looks_like_the_start_of_its_answer_is_no_echo(sim, port):
    """Address 0x0400, two words that begin with zeros: five bytes are the same."""
    sim.tables["input"] |= {0x400: 0, 0x401: 2, 0x200: 0}
    device = await found(port, registers={"a": RegisterConfig(0x400, "input", "u32")})
    assert await values(device) == {"a": 2.0}
    device = await found(port, registers={"a": RegisterConfig(0x200, "input")})
    assert await values(device) == {"a": 0.0}


async def test_what_is_no_number_is_no_value(sim, port):
    """IEEE 754: 7FC00000 is NaN, 7F800000 infinite."""
    energy = {"energy": CONFIG.registers["energy"], "voltage": CONFIG.registers["voltage"]}
    device = await found(port, registers=energy)
    for high in (0x7FC0, 0x7F80):
        sim.tables["input"] |= {12: high, 13: 0}
        (sample, _) = await device.read()
        assert (sample.value, sample.quality) == (None, "error")
        assert sample.note == "the device gives no number"


async def test_noise_without_end_is_given_up(sim, port):
    """Every poll is bounded."""
    device = await found(port, registers={"voltage": RegisterConfig(0, "input")})
    sim.send = lambda data: port.arrive(b"\x55" * 60_000)
    with pytest.raises(DataError, match="the checksum is wrong|unit 85"):
        await device.read()


async def test_a_closed_port_leaves_the_model_without_a_listener(sim, port):
    await port.close()
    sim.send(b"x")
