"""Structs and ioctls of the GPIO character device, byte by byte.

Values come from a C program over linux/gpio.h of Debian 12 (sizeof, the macros, and
the bytes of structs whose fields it set).
"""

import os

import pytest

from edged.bus import Edge, LineSettings, LineState
from edged.bus import _cdev as cdev

ADA = "Ada's greenhouse: pump für den Brunnen"


def sparse(data):
    """The bytes that are not zero, by offset."""
    return {offset: byte for offset, byte in enumerate(data) if byte}


def test_structs_have_the_kernels_sizes():
    assert {
        "gpiochip_info": cdev.CHIP_INFO.size,
        "gpio_v2_line_info": cdev.LINE_INFO.size,
        "gpio_v2_line_config_attribute": cdev.DEBOUNCE.size,
        "gpio_v2_line_config": cdev.CONFIG.size,
        "gpio_v2_line_request": cdev.REQUEST.size,
        "gpio_v2_line_values": cdev.VALUES.size,
        "gpio_v2_line_event": cdev.EVENT.size,
    } == {
        "gpiochip_info": 68,
        "gpio_v2_line_info": 256,
        "gpio_v2_line_config_attribute": 24,
        "gpio_v2_line_config": 272,
        "gpio_v2_line_request": 592,
        "gpio_v2_line_values": 16,
        "gpio_v2_line_event": 48,
    }
    assert cdev.OUTPUT_VALUES.size == cdev.DEBOUNCE.size


def test_ioctls_have_the_kernels_numbers():
    assert cdev.GET_CHIPINFO == 0x8044B401
    assert cdev.GET_LINEINFO == 0xC100B405
    assert cdev.GET_LINE == 0xC250B407
    assert cdev.SET_CONFIG == 0xC110B40D
    assert cdev.GET_VALUES == 0xC010B40E
    assert cdev.SET_VALUES == 0xC010B40F


def test_an_inputs_request_is_what_c_makes_of_it():
    settings = LineSettings(
        "input", active_low=True, edge="both", bias="pull-up", debounce_s=0.02
    )  # fmt: skip
    assert sparse(cdev.line_request(17, settings, "edged")) == {
        0: 0x11, 256: 0x65, 257: 0x64, 258: 0x67, 259: 0x65, 260: 0x64, 288: 0x36, 289: 0x01,
        296: 0x01, 320: 0x03, 328: 0x20, 329: 0x4E, 336: 0x01, 560: 0x01, 565: 0x04, 588: 0xFF,
        589: 0xFF, 590: 0xFF, 591: 0xFF,
    }  # fmt: skip


def test_an_outputs_config_is_what_c_makes_of_it():
    settings = LineSettings("output", drive="open-drain", bias="disabled", output_value=True)
    assert sparse(cdev.config(settings)) == {
        0: 0x48, 1: 0x04, 8: 0x01, 32: 0x02, 40: 0x01, 48: 0x01,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "flags"),
    [
        ({"direction": "as-is"}, 0x0),
        ({"direction": "as-is", "active_low": True}, 0x2),
        ({"direction": "input"}, 0x4),
        ({"direction": "input", "bias": "pull-down", "edge": "rising"}, 0x214),
        ({"direction": "input", "edge": "falling"}, 0x24),
        ({"direction": "output", "drive": "open-source"}, 0x88),
    ],
)
def test_every_flag_has_its_bit(settings, flags):
    """linux/gpio.h, enum gpio_v2_line_flag."""
    assert cdev.CONFIG.unpack(cdev.config(LineSettings(**settings)))[0] == flags


@pytest.mark.parametrize(
    ("consumer", "kept"),
    [
        ("x" * 40, b"x" * 31),
        (ADA, "Ada's greenhouse: pump für den".encode()),
        ("x" * 30 + "ü", b"x" * 30),
    ],
)
def test_a_long_consumer_is_cut_between_characters(consumer, kept):
    """31 bytes and a zero, GPIO_MAX_NAME_SIZE."""
    name = cdev.REQUEST.unpack(cdev.line_request(0, LineSettings("input"), consumer))[1]
    assert name == kept.ljust(32, b"\0")


def test_a_lines_info_is_read_as_c_wrote_it():
    info = bytearray(256)
    for offset, byte in {
        0: 0x47, 1: 0x50, 2: 0x49, 3: 0x4F, 4: 0x31, 5: 0x37, 32: 0x72, 33: 0x65, 34: 0x6C,
        35: 0x61, 36: 0x79, 64: 0x11, 72: 0x09,
    }.items():  # fmt: skip
        info[offset] = byte
    assert cdev.line_state(bytes(info), "chip") == LineState(
        "GPIO17", "chip", 17, "output", "relay", used=True
    )
    assert cdev.line_state(bytes(256), "chip") == LineState("", "chip", 0, "input")


def event(sequence, kind=1, timestamp_ns=1_500_000_000):
    return cdev.EVENT.pack(timestamp_ns, kind, 17, 99, sequence)


def test_edges_are_read_with_value_second_and_sequence():
    """Enum gpio_v2_line_event_id: rising is inactive to active."""
    events = event(1) + event(2, kind=2, timestamp_ns=2_000_000_001)
    assert cdev.edges(events, 0) == [Edge(True, 1.5, 1), Edge(False, 2.000000001, 2)]


@pytest.mark.parametrize(
    ("last", "sequences", "lost"),
    [
        (0, [38, 39], [37, 0]),
        (5, [6, 9], [0, 2]),
        (0xFFFFFFFE, [0xFFFFFFFF, 0, 2], [0, 0, 1]),
    ],
)
def test_gaps_of_the_lines_sequence_are_lost_edges(last, sequences, lost):
    """The kernel counts in 32 bits, and drops the oldest."""
    found = cdev.edges(b"".join(event(sequence) for sequence in sequences), last)
    assert [edge.lost for edge in found] == lost


def test_a_chip_that_is_none_is_the_kernels_error(tmp_path):
    path = tmp_path / "gpiochip0"
    path.write_bytes(b"")
    before = os.listdir("/proc/self/fd")
    for use in (
        lambda: cdev.read_chip(str(path)),
        lambda: cdev.request(str(path), 0, LineSettings("input"), "test"),
    ):
        with pytest.raises(OSError, match="Inappropriate ioctl"):
            use()
    assert len(os.listdir("/proc/self/fd")) == len(before)
