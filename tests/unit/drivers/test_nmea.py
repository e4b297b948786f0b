"""The driver of satellite receivers: sentences of NMEA 0183, and its model.

The worked sentences are the usual ones of the standard's descriptions, with
checksums 47 and 6A; the values follow from them by hand.
"""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.bus import SerialSettings
from edged.bus.sim import SimSerial
from edged.drivers import nmea
from edged.drivers.nmea import Epoch, parse, sentence
from edged.errors import DataError, NoDeviceError
from edged.testing import FakeClock

GGA = b"$GPGGA,123519,4807.038,N,01131.000,E,1,08,0.9,545.4,M,46.9,M,,*47\r\n"
RMC = b"$GPRMC,123519,A,4807.038,N,01131.000,E,022.4,084.4,230394,003.1,W*6A\r\n"


def values(*lines):
    epoch = Epoch()
    for line in lines:
        epoch.feed(line)
    return {sample.channel: sample.value for sample in epoch.samples()}


def samples(*bodies):
    epoch = Epoch()
    for body in bodies:
        epoch.feed(sentence(body))
    return {sample.channel: sample for sample in epoch.samples()}


@pytest.fixture
def sim():
    return nmea.Sim(FakeClock(), interval_s=0)


@pytest.fixture
async def port(sim):
    return await SimSerial({"ttyS0": sim}).open("ttyS0", nmea.INFO.serial, "test")


async def heard(sim, reading):
    """What a reading gives while the receiver sends."""
    task = asyncio.ensure_future(reading)
    while not task.done():
        await asyncio.sleep(0)
        sim.emit()
    return task.result()


def test_the_worked_sentences():
    """48 deg 7.038 min is 48.1173, 11 deg 31 min is 11.516667; 22.4 kn is 11.524 m/s."""
    assert parse(GGA).kind == "GGA"
    assert values(RMC, GGA) == {
        "lat": 48.1173,
        "lon": 11.5166667,
        "altitude": 545.4,
        "speed": 11.524,
        "course": 84.4,
        "satellites": 8.0,
        "fix": 1.0,
    }
    assert sentence(RMC[1:-5].decode()) == RMC


def test_south_and_west_are_negative():
    """33 deg 52.5 min S, 151 deg 12.6 min: -33.875; 0 deg 7.5 min W: -0.125."""
    found = samples("GNGGA,1,3352.5,S,00007.5,W,1,08,0.9,-12.5,M,,M,,")
    assert (found["lat"].value, found["lon"].value) == (-33.875, -0.125)
    assert found["altitude"].value == -12.5


@pytest.mark.parametrize("talker", ["GP", "GN", "GL", "GA", "BD"])
def test_any_talker_is_heard(talker):
    found = parse(sentence(f"{talker}RMC,1,V"))
    assert (found.talker, found.kind) == (talker, "RMC")


@given(st.integers(1, len(GGA) - 3), st.integers(1, 255))
def test_a_spoiled_sentence_is_dropped_and_counted(at, flip):
    """Hardware faults, 9: the checksum comes before parsing; one flipped byte never passes."""
    spoiled = bytearray(GGA)
    spoiled[at] ^= flip
    epoch = Epoch()
    epoch.feed(bytes(spoiled))
    same = bytes(spoiled).upper() == GGA
    assert (epoch.dropped, epoch.sentences == {}) == ((0, False) if same else (1, True))


@given(st.binary(max_size=130))
def test_any_bytes_are_a_line(data):
    """Hardware faults, 8: nothing on the wire ends the reader."""
    epoch = Epoch()
    epoch.feed(data + b"\n")
    epoch.feed(b"$" + data + b"*%02X\r\n" % nmea.checksum(data))
    epoch.samples()


def test_the_bytes_of_a_right_sentence_may_be_no_ascii():
    """Hardware faults, 8: decoded with replacement."""
    body = b"GPRMC,\xff\xfe,V"
    found = parse(b"$" + body + b"*%02X\r\n" % nmea.checksum(body))
    assert found.fields == ("\ufffd\ufffd", "V")


def test_a_line_without_its_end_does_not_take_the_next_one_with_it():
    assert parse(GGA[:20] + RMC) == parse(RMC)


@pytest.mark.parametrize(
    "line",
    [b"", b"\r\n", b"$", b"*", b"$*00", b"GPRMC,1,A*00", b"$GPRMC,1,A\r\n", b"$PUBX,00*33\r\n"],
)
def test_what_is_no_sentence_is_none(line):
    assert parse(line) is None


def test_empty_fields_are_no_values():
    """Hardware faults, 9."""
    found = samples("GPRMC,1,A,,,,,,,,,,A", "GPGGA,1,,,,,1,,,,M,,M,,")
    for channel in ("lat", "lon", "altitude", "speed", "course", "satellites"):
        assert found[channel].value is None
        assert (found[channel].quality, found[channel].note) == (
            "error",
            "the receiver leaves it out",
        )
    assert found["fix"].value == 1.0


def test_short_sentences_have_no_values():
    found = samples("GPRMC,1,A", "GPGGA,1")
    assert {name: one.value for name, one in found.items() if one.value is not None} == {
        "fix": 0.0
    }


@pytest.mark.parametrize(
    "bodies",
    [
        ("GPRMC,123519,V,4807.038,N,01131.000,E,022.4,084.4,230394,,,N",),
        ("GPGGA,123519,4807.038,N,01131.000,E,0,03,,,M,,M,,",),
        ("GPRMC,1,A,4807.038,N,01131.000,E,022.4,084.4,2,,,A", "GPGGA,1,,,,,0,03,,,M,,M,,"),
        (),
    ],
)
def test_without_a_fix_there_is_no_position(bodies):
    """Status V, quality 0: what stands in the other fields is old, or nothing."""
    found = samples(*bodies)
    for channel in ("lat", "lon", "altitude", "speed", "course"):
        assert (found[channel].value, found[channel].quality) == (None, "error")
        assert found[channel].note.startswith("no fix")
    assert (found["fix"].value, found["fix"].quality) == (0.0, "ok")


@pytest.mark.parametrize(
    ("field", "what"),
    [("6", "dead reckoning"), ("7", "typed in by hand"), ("8", "a simulation")],
)
def test_a_position_that_was_not_measured_is_said(field, what):
    """Quality of GGA."""
    found = samples(f"GPGGA,1,4807.038,N,01131.000,E,{field},08,0.9,545.4,M,46.9,M,,")
    assert (found["lat"].quality, found["lat"].note) == ("suspect", f"not measured: {what}")
    assert found["satellites"].quality == "ok"


def test_speed_and_course_come_from_vtg_where_rmc_has_none():
    """VTG: course true, magnetic, knots, km/h."""
    found = samples("GPVTG,054.7,T,034.4,M,005.5,N,010.2,K", "GPGGA,1,0000.0,N,00000.0,E,1,04")
    assert (found["course"].value, found["speed"].value) == (54.7, 2.829)
    assert (found["lat"].value, found["lon"].value) == (0.0, 0.0)


@pytest.mark.parametrize("lat", ["4861.0", "abc", "48-7.0", "nan", "1e3", "٤٨", ""])
def test_a_number_that_is_none_is_no_value(lat):
    """61 minutes, words, other digits: nothing of it is guessed."""
    assert values(sentence("GPGGA,1,4807.0,X,01131.0,E,1,08"))["lat"] is None
    epoch = Epoch()
    epoch.feed(
        b"$"
        + (body := f"GPGGA,1,{lat},N,01131.0,E,1,08".encode())
        + b"*%02X" % nmea.checksum(body)
    )
    assert {s.channel: s.value for s in epoch.samples()}["lat"] is None


def test_a_number_that_cannot_be_is_no_value():
    found = samples("GPGGA,1,9507.0,N,01131.0,E,1,08", "GPRMC,1,A,,,,,5,361.0,,,,A")
    assert (found["lat"].value, found["lat"].note) == (None, "95.1167 cannot be")
    assert found["course"].value is None


def test_an_epoch_is_whole_with_both_sentences_of_one_moment():
    """A reading never mixes two moments when the receiver sends both."""
    epoch = Epoch()
    for body, whole in (
        ("GPGGA,1", False),
        ("GPGSV,1,1,00", False),
        ("GPRMC,2,V", False),
        ("GPGGA,2", True),
    ):
        epoch.feed(sentence(body))
        assert epoch.whole is whole


def test_who_sends_only_one_kind_is_not_waited_for():
    epoch = Epoch()
    for body in ("GPRMC,1,V", "GPRMC,2,V", "GPRMC,3,V"):
        assert not epoch.whole
        epoch.feed(sentence(body))
    assert epoch.whole


async def test_it_reads_what_is_true(sim, port):
    device = await heard(sim, nmea.probe(nmea.Config(), port, FakeClock().sleep))
    assert device.identity == "NMEA receiver, talker GP"
    sim.lat, sim.lon = -33.875, 151.21
    found = {s.channel: s.value for s in await heard(sim, device.read())}
    assert found == {
        "lat": -33.875,
        "lon": 151.21,
        "altitude": 545.4,
        "speed": 11.524,
        "course": 84.4,
        "satellites": 8.0,
        "fix": 1.0,
    }


async def test_what_came_before_the_question_is_no_reading(sim, port):
    """Issue 3, part 5: never a stale number; a port keeps what came while nobody read."""
    device = await heard(sim, nmea.probe(nmea.Config(), port, FakeClock().sleep))
    for _ in range(20):
        sim.emit()
    sim.lat = 10.0
    assert {s.channel: s.value for s in await heard(sim, device.read())}["lat"] == 10.0


async def test_losing_the_fix_loses_the_position(sim, port):
    device = await heard(sim, nmea.probe(nmea.Config(), port, FakeClock().sleep))
    sim.fix = False
    found = {s.channel: s.value for s in await heard(sim, device.read())}
    assert found["lat"] is None
    assert (found["satellites"], found["fix"]) == (8.0, 0.0)


async def test_the_model_sends_by_itself():
    """A receiver streams; its bursts come on the event loop's time."""
    sim = nmea.Sim(FakeClock(), interval_s=0.001)
    port = await SimSerial({"ttyS0": sim}).open("ttyS0", nmea.INFO.serial, "test")
    device = await nmea.probe(nmea.Config(), port, FakeClock().sleep)
    assert {s.channel: s.value for s in await device.read()}["fix"] == 1.0
    await port.close()
    sim.emit()


async def test_dropped_sentences_are_counted(sim, port):
    """Hardware faults, 9."""
    device = await heard(sim, nmea.probe(nmea.Config(), port, FakeClock().sleep))
    assert device.dropped == 0
    sim.burst = lambda: RMC + GGA.replace(b"4807", b"4907") + RMC + GGA
    found = {s.channel: s.value for s in await heard(sim, device.read())}
    assert (found["lat"], device.dropped) == (48.1173, 1)


async def test_a_silent_line_is_no_device(sim, port, monkeypatch):
    monkeypatch.setattr(nmea, "SILENCE_S", 0.01)
    with pytest.raises(NoDeviceError, match="no receiver is heard on ttyS0"):
        await nmea.probe(nmea.Config(), port, FakeClock().sleep)


async def test_a_wrong_speed_is_said_as_one(sim, monkeypatch):
    """Hardware faults, 8: bytes beyond text are no crash but a wrong baud rate, and said so."""
    monkeypatch.setattr(nmea, "SILENCE_S", 0.01)
    sim.burst = lambda: bytes(byte ^ 0xE0 for byte in GGA)
    port = await SimSerial({"ttyS0": sim}).open("ttyS0", SerialSettings(baudrate=4800), "test")
    sim.emit()
    task = asyncio.ensure_future(nmea.probe(nmea.Config(), port, FakeClock().sleep))
    await asyncio.sleep(0)
    sim.emit()
    with pytest.raises(DataError, match=r"no text \(100% of .* 4800 Bd is the wrong speed"):
        await task


async def test_text_that_is_no_nmea_is_said(sim, port, monkeypatch):
    monkeypatch.setattr(nmea, "LISTEN_S", 0.05)
    sim.burst = lambda: b"hello\r\n"
    with pytest.raises(DataError, match="receives text, but no RMC, GGA or VTG"):
        await heard(sim, nmea.probe(nmea.Config(), port, FakeClock().sleep))


async def test_a_receiver_with_one_sentence_is_read(sim, port, monkeypatch):
    monkeypatch.setattr(nmea, "LISTEN_S", 0.05)
    sim.burst = lambda: sentence("GPVTG,054.7,T,034.4,M,005.5,N,010.2,K")
    device = await heard(sim, nmea.probe(nmea.Config(), port, FakeClock().sleep))
    assert {s.channel: s.value for s in await heard(sim, device.read())}["fix"] == 0.0
