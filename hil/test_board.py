"""edged on an emulated i.MX6 board, with chips and kernel drivers that no one here wrote.

Issue 3, part 9 (a). The daemon runs inside and is called from this machine; what the chips
measure and what drives the lines is said through the emulator, which also tells the levels
of the outputs.
"""

import json
import time
from datetime import UTC, datetime, timedelta

import pytest

pytestmark = pytest.mark.timeout(2700)  # the first run fetches the board's system

DOOR, RELAY, PUMP, FAN, LOOSE = 5, 6, 7, 8, 9
"""Pins of GPIO1: those of edged.yaml, and one that it does not name."""


def uptime(board):
    """Seconds of the kernel's clock inside, cut to hundredths."""
    return float(board.agent.run("cut -d ' ' -f 1 /proc/uptime"))


@pytest.fixture
def door(board):
    """The line as something outside drives it; low before and after."""
    board.pins.drive(DOOR, False)
    yield lambda level: board.pins.drive(DOOR, level)
    board.pins.drive(DOOR, False)


@pytest.fixture
def serial_port(edged, board):
    """`ttymxc2`, kept open by the tool; the other end is `board.uart`."""
    name = "ttymxc2"
    edged.call("serial", action="open", port=name, baudrate=115_200)
    yield name
    edged.call("serial", action="close", port=name)


@pytest.fixture
def owned(board):
    """A second TMP105, at 0x49, that the kernel's driver lm75 is bound to."""
    bus = "/sys/bus/i2c/devices/i2c-0"
    board.agent.run(f"echo tmp105 0x49 >{bus}/new_device")
    yield
    board.agent.run(f"echo 0x49 >{bus}/delete_device")


# Installed ----------------------------------------------------------------------------


def test_doctor_finds_no_fault(board, edged):
    """Part 7: a fresh board with Debian's packages needs nothing more."""
    assert "fault " not in board.agent.run("python3 -m edged doctor")


@pytest.mark.parametrize("tool", ["hello", "hello_bash"])
def test_a_tool_runs_in_its_sandbox(edged, tool):
    """On this architecture too, with the system's own Python and bash."""
    done = edged.cli("call", tool, "name=Ada")
    assert (done.returncode, done.stdout) == (0, "Hello, Ada!\n")


# I2C ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("milli", "celsius"),
    [
        (21_500, 21.5),
        (-10_000, -10.0),
        (0, 0.0),
        (125_000, 125.0),
        (-55_000, -55.0),
        (21_063, 21.0625),
    ],
)
def test_the_next_sample_says_what_the_chip_was_set_to(board, edged, milli, celsius):
    """Shows: the emulated TMP105 is set while edged polls it. 21.063 needs its 12 bits."""
    with edged.events() as events:
        board.chips.set("tmp105", "temperature", milli)
        # One measurement may have been under way.
        events.next("sensor.reading", sensor="room")
        assert events.next("sensor.reading", sensor="room")["values"] == {"temperature": celsius}
    # Polled, and not measured for this call.
    (reading,) = edged.call("sensor", sensor="room", max_age=60)["readings"]
    assert (reading["value"], reading["unit"], reading["quality"]) == (celsius, "Cel", "ok")


@pytest.mark.parametrize(("milli", "register"), [(21_500, "1580"), (-10_000, "f600")])
def test_a_register_is_read_by_the_tool(board, edged, milli, register):
    """SLLS648D, table 5: 0.0625 °C a step, in the upper 12 bits."""
    board.chips.set("tmp105", "temperature", milli)
    # Both resolutions have these.
    found = edged.call("i2c", bus=0, address="0x48", register=0, length=2)
    assert found["hex"] == register


@pytest.mark.parametrize(
    ("bus", "address", "register", "content"),
    [
        (0, 0x4C, 0xFD, "21"),
        (0, 0x4C, 0xFE, "5d"),
        (1, 0x4D, 0xFE, "55"),
        (1, 0x4D, 0xFF, "21"),
    ],
)
def test_chips_tell_who_they_are(edged, bus, address, register, content):
    """EMC1413: product 0x21, manufacturer 0x5D; TMP421: manufacturer 0x55, device 0x21."""
    assert edged.call("i2c", bus=bus, address=address, register=register)["hex"] == content


@pytest.mark.parametrize("celsius", [42, -17])
def test_a_chip_without_a_driver_is_a_sensor_by_its_registers(board, edged, celsius):
    """EMC1413, register 0x00: internal diode, whole degrees; `cabinet` of edged.yaml."""
    board.chips.set("emc1413", "temperature0", celsius * 1000)
    (reading,) = edged.call("sensor", sensor="cabinet")["readings"]
    assert (reading["value"], reading["unit"]) == (celsius, "Cel")


def test_a_clock_chip_tells_the_time(edged):
    """DS1338, registers 0 to 6 in BCD; the emulator gives it this machine's time."""
    before = datetime.now(UTC).replace(microsecond=0)
    registers = edged.call("i2c", bus=2, address=0x68, register=0, length=7)["hex"]
    second, minute, hour, _, day, month, year = (
        int(registers[i : i + 2]) for i in range(0, len(registers), 2)
    )
    told = datetime(2000 + year, month, day, hour, minute, second, tzinfo=UTC)
    assert before - timedelta(seconds=2) <= told <= datetime.now(UTC) + timedelta(seconds=2)


def test_an_eeprom_keeps_what_was_written_and_nothing_unconfirmed(edged):
    """AT24C32: two bytes of address. Contract, section 8: a write needs a confirmation."""
    place = {"bus": "/dev/i2c-2", "address": "0x50", "register": 0x0123, "register_size": 2}
    # Two bytes are data to a chip with registers of one: that needs a word too.
    assert "confirm: true" in edged.refuse("i2c", **place, length=4)
    read = {**place, "length": 4, "confirm": True}
    before = edged.call("i2c", **read)["hex"]
    assert "confirm: true" in edged.refuse("i2c", **place, data="0xdecade01")
    assert edged.call("i2c", **read)["hex"] == before
    assert edged.call("i2c", **place, data="0xdecade01", confirm=True)["written"] == 4
    assert edged.call("i2c", **read)["hex"] == "decade01"


def test_a_write_is_seen_outside(board, edged):
    """PCA9552, LS0 (0x16): two bits an LED, 00 is on and 01 is off."""
    for bits, levels in ((0x54, ("on", "off")), (0x51, ("off", "on"))):
        edged.call("i2c", bus=1, address=0x60, register=0x16, data=[bits], confirm=True)
        assert (board.chips.get("pca9552", "led0"), board.chips.get("pca9552", "led1")) == levels


def test_what_a_driver_of_the_kernel_owns_is_refused_with_its_name_and_value(board, edged, owned):
    """Part 3; the value that the refusal points to is that of the chip."""
    board.chips.set("owned", "temperature", 33_500)
    said = edged.refuse("i2c", bus=0, address=0x49, register=0, length=2)
    assert "the kernel's driver lm75 owns it" in said
    directory = said.partition("read it at ")[2].partition(",")[0]
    assert board.agent.run(f"cat {directory}/temp1_input") == "33500\n"
    (reading,) = edged.call("sensor", sensor="kernels")["readings"]
    assert (reading["value"], reading["unit"]) == (33.5, "Cel")


def test_an_absent_chip_costs_no_other_its_answer(edged):
    """This adapter says a time-out of an address that nobody has, as of a stuck bus."""
    for _ in range(3):
        assert "0x33" in edged.refuse("i2c", bus=2, address=0x33)
        assert len(edged.call("i2c", bus=2, address=0x68, register=0, length=7)["data"]) == 7


def test_a_scan_ends_invents_nothing_and_leaves_the_buses_usable(board, edged):
    """Part 6: a budget of time. An address that nobody has costs half a second or more here."""
    began = time.monotonic()
    scan = json.loads(board.agent.run("python3 -m edged scan --json", timeout=120))
    assert time.monotonic() - began < 60
    there = {"i2c-0": {0x48, 0x49, 0x4C, 0x51}, "i2c-1": {0x4D, 0x60}, "i2c-2": {0x50, 0x68}}
    assert [bus["name"] for bus in scan["i2c"]] == sorted(there)
    for bus in scan["i2c"]:
        found = {one["address"] for one in bus["found"]}
        assert found <= there[bus["name"]]
        assert found == there[bus["name"]] or bus["problem"]
    assert scan["spi"] == ["spi0.0"]
    assert "ttymxc2" in {port["name"] for port in scan["serial"]}
    assert len(edged.call("i2c", bus=2, address=0x68, register=0, length=7)["data"]) == 7


# Readings -----------------------------------------------------------------------------


def test_an_alarm_comes_and_goes_and_the_history_has_both(board, edged):
    """Part 5; `room` has an alarm above 30 °C, with a hysteresis of 1."""
    with edged.events() as events:
        for milli, state in ((20_000, None), (31_000, "above"), (29_500, None), (28_000, "ok")):
            board.chips.set("tmp105", "temperature", milli)
            if state is not None:
                alarm = events.next("sensor.alarm", sensor="room", state=state)
                assert (alarm["value"], alarm["limit"]) == (milli / 1000, 30.0)
    (series,) = edged.call("sensor", action="history", sensor="room", since="1m")["series"]
    assert {31.0, 28.0} <= {row["mean"] for row in series["rows"]}


# GPIO ---------------------------------------------------------------------------------


def test_each_edge_of_an_input_is_an_event(edged, door):
    """gpio-mxc turns its trigger round after each edge: the next one waits for that."""
    with edged.events() as events:
        told = []
        for level in (True, False, True, False):
            door(level)
            told.append(events.next("gpio.edge", line="door", value=level))
            assert edged.call("gpio", line="door")["value"] is level
    first = told[0]["sequence"]
    assert [edge["sequence"] for edge in told] == [first, first + 1, first + 2, first + 3]
    assert not any("lost" in edge for edge in told)


def test_an_edge_has_the_kernels_time_and_not_that_of_its_reading(board, edged, door):
    """While edged stands still the kernel alone can know when it was."""
    with edged.events() as events:
        edged.kill("STOP")
        try:
            before = uptime(board)
            door(True)
            after = uptime(board) + 0.01
            time.sleep(1.0)
            later = uptime(board)
        finally:
            edged.kill("CONT")
        edge = events.next("gpio.edge", line="door", value=True)
    assert before <= edge["monotonic"] <= after < later
    # The wall clock of the board was set from that of this machine.
    assert abs(edge["time"] - (time.time() - (uptime(board) - edge["monotonic"]))) < 5


def test_an_output_is_seen_outside(board, edged):
    """`pump` is active low: on is the low level."""
    for line, pin, active in (("relay", RELAY, True), ("pump", PUMP, False)):
        for value in ("on", "off"):
            assert edged.call("gpio", line=line, value=value)["value"] is (value == "on")
            assert board.pins.wait(pin, active is (value == "on"))


def test_a_line_that_nobody_configured_needs_a_confirmation(board, edged):
    """Contract, section 8."""
    line = f"209c000.gpio/{LOOSE}"
    assert "confirm: true" in edged.refuse("gpio", line=line, value="on")
    assert not board.pins.level(LOOSE)
    edged.call("gpio", line=line, value="on", confirm=True)
    assert board.pins.wait(LOOSE, True)


def test_a_line_of_another_program_is_refused_with_its_name(board, edged):
    """Part 3."""
    board.agent.run("setsid gpioset -c gpiochip0 -C heating 10=0 >/dev/null 2>&1 </dev/null &")
    try:
        said = edged.refuse("gpio", line="209c000.gpio/10", value="on", confirm=True)
    finally:
        board.agent.run("kill $(ps | grep '[g]pioset' | awk '{print $1}')")
    assert "'heating'" in said


def test_nobody_at_the_handle_is_the_safe_level(board, edged):
    """Part 3: a deadline; `fan` has 2 s."""
    with edged.events() as events:
        edged.call("gpio", line="fan", value="on")
        assert board.pins.wait(FAN, True)
        events.next("gpio.deadline", line="fan")
    assert board.pins.wait(FAN, False)


@pytest.mark.parametrize("signal", ["KILL", "TERM", "SEGV"])
def test_outputs_are_safe_when_the_daemon_ends(board, edged, signal):
    """Shows: kill -9, SIGTERM and a crash, with a relay on."""
    for line, pin, level in (("relay", RELAY, True), ("pump", PUMP, False)):
        edged.call("gpio", line=line, value="on")
        assert board.pins.wait(pin, level)
    edged.end(signal)
    assert board.pins.wait(RELAY, False)
    assert board.pins.wait(PUMP, True)


# Serial, SPI --------------------------------------------------------------------------


def test_bytes_go_both_ways(board, edged, serial_port):
    """All 256 of them, and a line of text."""
    board.uart.sendall(b"21.5\n")
    assert edged.call("serial", action="read_until", port=serial_port)["text"] == "21.5\n"
    board.uart.sendall(bytes(range(256)))
    found = edged.call("serial", action="read", port=serial_port, length=256, timeout=20)
    assert found["hex"] == bytes(range(256)).hex()
    edged.call("serial", action="write", port=serial_port, data=list(range(256)), confirm=True)
    received = b""
    while len(received) < 256:
        received += board.uart.recv(256)
    assert received == bytes(range(256))


def test_a_flash_tells_who_it_is_and_keeps_what_is_programmed(edged):
    """SST25VF016B, S71271, table 5: JEDEC-ID BF 25 41; byte-program needs WREN and no lock."""

    def transfer(*data):
        return edged.call("spi", device="/dev/spidev0.0", data=list(data), confirm=True)["data"]

    assert transfer(0x9F, 0, 0, 0)[1:] == [0xBF, 0x25, 0x41]
    write_enable, write_status, program, read = 0x06, 0x01, 0x02, 0x03
    transfer(write_enable)
    transfer(write_status, 0)
    for byte in (0x42, 0x40):
        # Programming clears bits and sets none.
        transfer(write_enable)
        transfer(program, 0, 0, 5, byte)
        assert transfer(read, 0, 0, 5, 0)[4] == byte
