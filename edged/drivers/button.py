"""A push button, reed contact, motion sensor or any other input that is on or off.

Source: linux/gpio.h, GPIO v2 line events: the kernel debounces and counts, so
that no press between two readings is missed.
"""

from __future__ import annotations

from edged.bus import Gpio, Line, Sleep
from edged.clock import Clock
from edged.drivers import Channel, Info, Sample
from edged.drivers._line import Duration, LineConfig, Tally

INFO = Info(
    title="Button, reed contact, motion sensor (PIR)",
    compatible=(),
    bus="gpio",
    channels=(
        Channel("pressed", "/", 0.0, 1.0),
        Channel("presses", "count", 0.0, 1e15),
    ),
    datasheet="linux/gpio.h, GPIO v2 line events",
)


class Config(LineConfig, frozen=True):
    """Settings of one input, by default a contact to ground.

    A motion sensor drives its line high: `{active_low: false, bias: as-is}`.
    """

    debounce: Duration = "20ms"


class Button:
    """An input that was taken; call from the event loop's thread."""

    def __init__(self, name: str, line: Line, presses: Tally) -> None:
        self.identity = f"input {name}"
        self._line, self._presses = line, presses

    async def read(self) -> tuple[Sample, ...]:
        """Whether it is pressed, and how often it was since it was set up."""
        pressed = await self._line.get()
        return (Sample("pressed", float(pressed)), self._presses.sample("presses"))

    async def close(self) -> None:
        """Gives the line back."""
        await self._line.release()


async def probe(config: Config, bus: Gpio, sleep: Sleep) -> Button:  # noqa: ARG001  nothing is waited for
    """Takes the line; see `Driver.probe`."""
    presses = Tally()
    line = await bus.request(config.line, config.settings(), "edged button", presses)
    return Button(config.line, line, presses)


SIM_CONFIG = {"line": "GPIO27"}


class Sim:
    """Model of a push button to ground, which bounces.

    Args:
        clock: when it is pressed.
    """

    def __init__(self, clock: Clock) -> None:
        # The simulator is loaded only where it is asked for.
        from edged.bus import sim  # noqa: PLC0415

        self.button = sim.Button(clock.now)
        self.lines = {SIM_CONFIG["line"]: self.button}
