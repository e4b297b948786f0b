"""A bridge that is plugged in, and its bus."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from edged.bus.i2c import KernelI2c
from edged.testing import FakeClock
from hil.x86.inside.bridge import Bridge


@pytest.fixture(scope="module")
def bridge() -> Iterator[Bridge]:
    plugged = Bridge()
    yield plugged
    plugged.kill()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def bus(bridge: Bridge, clock: FakeClock) -> Iterator[KernelI2c]:
    made = KernelI2c(bridge.number, clock=clock)
    yield made
    made.close()
