"""What drivers say of values at and beyond a chip's limits, and of a silent line."""

import pytest

from edged.drivers import Channel, Sample
from edged.drivers._sample import limited, silent

CHANNEL = Channel("temperature", "Cel", -40.0, 85.0)


@pytest.mark.parametrize(
    ("value", "sample"),
    [
        (21.12349, Sample("temperature", 21.123)),
        (-40.0, Sample("temperature", -40.0)),
        (85.0, Sample("temperature", 85.0)),
        (
            85.001,
            Sample("temperature", 85.0, "clipped", "beyond the chip's range of -40 to 85 Cel"),
        ),
        (
            -60,
            Sample("temperature", -40.0, "clipped", "beyond the chip's range of -40 to 85 Cel"),
        ),
    ],
)
def test_beyond_the_limits_the_limit_is_given_and_marked(value, sample):
    """`edged.units.Reading`: `clipped` is the chip's limit in place of the value."""
    assert limited(CHANNEL, value) == sample
    assert limited(CHANNEL, value, b"\x19") == sample._replace(raw=b"\x19")


@pytest.mark.parametrize(("args", "level"), [((), "ones"), (("zeros",), "zeros")])
def test_a_silent_line_is_wiring(args, level):
    """Fault 23."""
    said = f"SHT3x at 0x44 on i2c-1 does not answer (all {level}): check its wiring"
    assert silent("SHT3x at 0x44 on i2c-1", *args) == said
