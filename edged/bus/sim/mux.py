"""A simulated TCA9548A: chips that are on the bus only while their channel is on.

Source: TI SCPS207H (TCA9548A), 8.5.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edged.bus.sim.i2c import Target, on_bus


class SimMux:
    """A multiplexer as a `Target`; `SimI2c` finds what is behind it through `behind`.

    Args:
        channels: register models by channel and 7-bit address; may change while in
            use. Another `SimMux` may be among them.
    """

    def __init__(self, channels: Mapping[int, Mapping[int, Target]]) -> None:
        self.channels = channels
        self.control = 0
        """The control register: one bit a channel, on after power-on is none."""

    def write(self, data: bytes) -> None:
        """The last byte counts."""
        self.control = data[-1]

    def read(self, length: int) -> bytes:
        """The control register, as often as it is asked for."""
        return bytes([self.control]) * length

    def reset(self) -> None:
        """All channels are off."""
        self.control = 0

    def behind(self, address: int) -> Sequence[Target]:
        """The chips of that address that are on the bus now."""
        on = (chips for channel, chips in self.channels.items() if self.control >> channel & 1)
        return [target for chips in on for target in on_bus(chips, address)]
