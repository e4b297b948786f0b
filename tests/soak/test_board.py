"""Sixteen callers on two chips, and ports pulled fifty times; `EDGED_SEED` repeats a run."""

from __future__ import annotations

import os
import time

from tests.soak.hardware import pull_ports, share_chips


def seed() -> int:
    return int(os.environ.get("EDGED_SEED") or time.time())


async def test_sixteen_callers_get_every_answer_from_the_right_channel(capsys):
    """Issue 3, Shows: a minute on one ADS1115 and one MPU6050."""
    with capsys.disabled():
        await share_chips(seed(), 60.0)


async def test_fifty_pulls_are_fifty_losses_and_cost_nothing(capsys):
    """Issue 3, Shows: one lost event each, under 1 % CPU, no byte lost or doubled between."""
    with capsys.disabled():
        assert await pull_ports(seed(), 50, 0.3) < 0.01
