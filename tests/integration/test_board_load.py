"""Chips that callers share and ports that are pulled: a slice of `make soak`."""

from __future__ import annotations

from tests.soak.hardware import pull_ports, share_chips

SEED = 20_260_101


async def test_sixteen_callers_get_every_answer_from_the_right_channel():
    """Issue 3, Shows."""
    await share_chips(SEED, 2.0)


async def test_each_pulled_port_is_lost_once_and_its_bytes_are_whole():
    """Issue 3, Shows."""
    await pull_ports(SEED, 5, 0.0)
