"""A maker's hour on the emulated board, as the README's "Wire a sensor" tells it.

Issue 3, "What it shows": scan, paste, read, history, alarm. The terminal is the board's own
shell; what the chip measures is said from outside.
"""

import re

import pytest

from hil.daemon import CONFIG

pytestmark = pytest.mark.timeout(2700)  # the first run fetches the board's system

SCAN_S = 120
CHIP = "tmp105"
"""On i2c-0 at 0x48; its name in the emulator."""


@pytest.fixture
def terminal(board, daemon):
    """A shell of the board before anything is configured; all is put back afterwards."""
    daemon.stop()
    before = board.agent.get(CONFIG)
    board.agent.run(f"rm {CONFIG}")
    yield board.agent
    daemon.stop()
    board.agent.put(CONFIG, before)


def edged(terminal, words, timeout=60):
    """What a command prints there to both of its outputs; it must succeed."""
    return terminal.run(f"{{ python3 -m edged {words}; }} 2>&1", timeout=timeout)


def pasted(terminal):
    """The lines that the scan prints for edged.yaml, as they are."""
    printed = edged(terminal, "scan", SCAN_S)
    return printed[printed.index("\nboard:") + 1 :]


def test_a_maker_scans_pastes_reads_and_is_warned(board, daemon, terminal):
    assert "see what is wired: edged scan" in edged(terminal, "doctor")
    lines = pasted(terminal)
    (name,) = re.findall(r"^    (\w+): \{.*bus: i2c-0, address: 0x48,", lines, re.MULTILINE)
    terminal.put(CONFIG, lines)
    assert f"# configuration: {CONFIG}" in edged(terminal, "config")
    assert "have their buses" in edged(terminal, "doctor")

    daemon.start()
    board.chips.set(CHIP, "temperature", 21_500)
    assert edged(terminal, f"call sensor sensor={name}") == f"{name}: temperature 21.5 °C\n"
    shown = edged(terminal, "sensors")
    assert re.search(rf"^{name} +temperature +21\.5 °C .* ready$", shown, re.MULTILINE), shown
    board.chips.set(CHIP, "temperature", -10_000)
    assert edged(terminal, f"call sensor sensor={name}") == f"{name}: temperature -10.0 °C\n"
    history = f"call sensor sensor={name} channel=temperature action=history since=1h"
    kept = re.findall(r"Z (\S+)$", edged(terminal, history), re.MULTILINE)
    assert "21.5" in kept[:-1]
    assert kept[-1] == "-10.0"
    # Who scans again is given nothing to paste twice.
    again = edged(terminal, "scan --bus 0", SCAN_S)
    assert f"0x48  in use by the sensor {name}\n" in again
    assert "address: 0x48" not in again

    daemon.stop()
    warned = "every: 1s, channels: {temperature: {alarm: {above: 30, hysteresis: 1}}}"
    terminal.put(CONFIG, lines.replace("every: 10s", warned, 1))
    edged(terminal, "config")
    daemon.start()
    with daemon.events() as events:
        for milli, state in ((31_000, "above"), (29_500, None), (28_500, "ok")):
            board.chips.set(CHIP, "temperature", milli)
            if state is None:
                # Within the hysteresis it goes on.
                events.next("sensor.reading", values={"temperature": milli / 1000})
                assert f"alarm: {name} temperature is above" in edged(terminal, "status")
            else:
                alarm = events.next("sensor.alarm", sensor=name, state=state)
                assert (alarm["value"], alarm["limit"]) == (milli / 1000, 30.0)
    alarms = [line for line in daemon.log.splitlines() if "alarm" in line]
    assert alarms == [
        f"edged: warning: alarm: {name} temperature 31.0 °C is above 30.0 °C",
        f"edged: alarm over: {name} temperature 28.5 °C",
    ]


def test_what_is_not_wired_is_told_and_keeps_nothing_else_from_working(board, daemon, terminal):
    """A wrong address, and a bus that is not there."""
    terminal.put(
        CONFIG,
        "board:\n"
        "  sensors:\n"
        "    room: {driver: lm75, bus: i2c-0, address: 0x48, every: 1s}\n"
        "    loose: {driver: lm75, bus: i2c-0, address: 0x4a, every: 1s}\n"
        "    nowhere: {driver: lm75, bus: i2c-7, address: 0x48, every: 1s}\n",
    )
    assert "nowhere: /dev/i2c-7 is not there" in " ".join(
        edged(terminal, "doctor || true").split()
    )
    daemon.start()
    board.chips.set(CHIP, "temperature", 21_500)
    assert edged(terminal, "call sensor sensor=room") == "room: temperature 21.5 °C\n"
    shown = edged(terminal, "sensors")
    assert re.search(r"^room +temperature +21\.5 °C .* ready$", shown, re.MULTILINE), shown
    reasons = {
        "loose": "nothing answered in time at address 0x4a on i2c-0",
        "nowhere": "/dev/i2c-7 is not there",
    }
    for name, reason in reasons.items():
        assert re.search(rf"^{name} +absent: {reason}", shown, re.MULTILINE), shown
        assert reason in edged(terminal, f"call sensor sensor={name} || true")
    assert "(there is i2c-0, i2c-1, i2c-2)" in shown
