"""Units, readings and durations."""

import pytest

from edged.units import UNITS, Reading, amount, duration_s, size_bytes, text


def reading(**changes):
    facts = {
        "sensor": "greenhouse",
        "channel": "temperature",
        "value": 21.34,
        "unit": "Cel",
        "time": 1_700_000_000.0,
        "monotonic": 100.0,
        "identity": "BME280, id 0x60",
    }
    return Reading(**{**facts, **changes})


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "temperature 21.3 °C"),
        (
            {"channel": "pressure", "value": 100653.258, "unit": "Pa"},
            "pressure 1006.5 hPa",
        ),
        ({"channel": "humidity", "value": 55.0007, "unit": "%RH"}, "humidity 55.0 %"),
        ({"channel": "pulses", "value": 12.0, "unit": "count"}, "pulses 12"),
        ({"value": -0.04}, "temperature 0.0 °C"),
        ({"quality": "warming"}, "temperature 21.3 °C (warming)"),
        (
            {"value": None, "quality": "error", "note": "not measured"},
            "temperature no value (error: not measured)",
        ),
    ],
)
def test_a_reading_is_one_clear_line(changes, line):
    """People read degrees and hectopascal, the wire carries SenML."""
    assert text(reading(**changes)) == line


def test_an_old_reading_says_its_age():
    """Issue 3, part 5: never a stale number without its age."""
    assert text(reading(), age_s=12.4) == "temperature 21.3 °C (12 s ago)"
    assert text(reading(), age_s=0.9) == "temperature 21.3 °C"


def test_age_is_of_the_monotonic_clock_and_never_negative():
    """Architecture, laws, time: the wall clock may jump."""
    assert reading().age_s(107.5) == 7.5
    assert reading().age_s(99.0) == 0.0


def test_units_are_senml_names():
    """RFC 8428, section 12.1; the contract names these."""
    assert {"Cel", "%RH", "Pa", "lx", "V"} <= set(UNITS)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("20ms", 0.02), ("10s", 10), ("1.5s", 1.5), ("5m", 300), ("1h", 3600), ("2d", 172_800)],
)
def test_durations_read_as_written(written, seconds):
    """Contract, section 11: `every: 10s`, `debounce: 20ms`, `misfire_grace: 1h`."""
    assert duration_s(written) == seconds


@pytest.mark.parametrize("written", ["", "10", "s", "-1s", "10 s", "1h30m", "10S", "١s", "1.s"])
def test_what_is_no_duration_is_refused_with_what_to_write(written):
    with pytest.raises(ValueError, match="write 20ms"):
        duration_s(written)


@pytest.mark.parametrize(("written", "seconds"), [(60, 60.0), (0, 0.0), (1.5, 1.5)])
def test_a_bare_number_is_seconds(written, seconds):
    """Contract, section 10: `timeout: 60`."""
    assert duration_s(written) == seconds


@pytest.mark.parametrize("written", [-1, -0.5, float("nan"), float("inf")])
def test_time_is_neither_negative_nor_endless(written):
    with pytest.raises(ValueError, match="write 20ms"):
        duration_s(written)


@pytest.mark.parametrize(
    ("written", "size"),
    [
        (4096, 4096),
        ("4096", 4096),
        ("0", 0),
        ("64K", 65_536),
        ("64k", 65_536),
        ("64 KiB", 65_536),
        ("1.5M", 1_572_864),
        ("1G", 1_073_741_824),
        ("10B", 10),
    ],
)
def test_sizes_read_as_written(written, size):
    """Contract, sections 10 and 11: `memory: 256M`, `max_read_size: 64K`; powers of 1024."""
    assert size_bytes(written) == size


@pytest.mark.parametrize("written", ["", "K", "1T", "-1", -1, "1.M", "١K", "1iB", "9" * 40, True])
def test_what_is_no_size_is_refused_with_what_to_write(written):
    with pytest.raises(ValueError, match="write 64K"):
        size_bytes(written)


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [(21.345, "Cel", "21.3 °C"), (-0.01, "Cel", "0.0 °C"), (101_325, "Pa", "1013.2 hPa")],
)
def test_an_amount_is_told_in_the_unit_that_people_know(value, unit, shown):
    """Weather reports give hPa; RFC 8428 has Pa."""
    assert amount(value, unit) == shown
