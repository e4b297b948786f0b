"""The world of the simulated board: a greenhouse, its tank and its weather.

What acts changes what is measured, and the hour does: all else is arithmetic.
It is brought to the present whenever someone looks or acts, in steps, and does
nothing in between. Knows no chip and no bus.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, cos, exp, inf, pi, sin
from typing import Self

from edged.bus.sim import Level, StoryButton
from edged.clock import Clock

DAY_S = 86_400.0
STEP_S, STEPS = 60.0, 200
"""Steps are that long, or longer where there would be more of them."""

SUNRISE_H, SUNSET_H = 6.0, 20.0
"""Of the wall clock, in UTC."""

TANK_L = 500.0
"""It is 1 m high, and its sensor hangs 0.2 m above."""
PUMP_L_S = 0.1
TIP_L = 2.8
"""What a tip of the rain gauge brings from the roof: 0.2794 mm on 10 m²."""

SOAKED, PARCHED = 85.0, 12.0
"""% of water that the soil holds at most and at least."""
SOAKING_S = (300.0, 360.0, 450.0, 600.0)
"""Of each bed, the nearest to the pump first."""
DRYING_S = 12 * 3600.0
WARMING_S, BREATHING_S = 240.0, 420.0
FRESH_PPM = 420.0


class Door(StoryButton):
    """The contact of a door, closed while the door is: it is open around each full hour."""

    PRESS_S, RELEASE_S, PERIOD_S = 240.0, 3540.0, 3600.0

    def is_open(self, at: float) -> bool:
        """Whether the door stands open at that second."""
        return not self.PRESS_S <= at % self.PERIOD_S < self.RELEASE_S


class RainGauge:
    """A bucket that tips in a shower, twice a minute, and closes a contact to ground then.

    It rains in the first quarter of an hour of every third hour; a `Part` of `edged.bus.sim`.
    """

    PERIOD_S, EACH_S, CLOSED_S = 10_800.0, 30.0, 0.1
    TIPS = 30
    """Of each shower."""

    def tips(self, at: float) -> int:
        """How often it has tipped up to that second, since 1970."""
        showers, within = divmod(at, self.PERIOD_S)
        return int(showers) * self.TIPS + min(int(within / self.EACH_S) + 1, self.TIPS)

    def levels(self, at: float) -> Sequence[Level]:
        """Low for a moment at each tip, else not driven; the last two tips are told."""
        tips = self.tips(at)
        found: list[Level] = [(-inf, None)]
        for tip in (tips - 1, tips):
            start = self._time(tip)
            found += [(start, False), (start + self.CLOSED_S, None)]
        return [level for level in found if level[0] <= at]

    def next_change(self, at: float) -> float:
        """The end of this tip, or the next one."""
        tips = self.tips(at)
        opened = self._time(tips) + self.CLOSED_S
        return opened if opened > at else self._time(tips + 1)

    def _time(self, tip: int) -> float:
        showers, within = divmod(tip - 1, self.TIPS)
        return showers * self.PERIOD_S + within * self.EACH_S


def sun(at: float) -> float:
    """How much sun there is at that second: 0 at night, 1 at its highest."""
    hour = at % DAY_S / 3600
    return max(0.0, sin(pi * (hour - SUNRISE_H) / (SUNSET_H - SUNRISE_H)))


def outside_cel(at: float) -> float:
    """Temperature outside: 8 Cel at 3 o'clock, 20 Cel at 15."""
    return 14.0 - 6.0 * cos(2 * pi * (at - 3 * 3600) / DAY_S)


class Greenhouse:
    """All that is true now; call `look` before reading what changes by itself.

    Attributes:
        pump: whether it is switched on.
        lamp: likewise.
        opening: of the window, 0 to 1.
        temperature_cel: of the air inside.
        co2_ppm: of the air inside.
        soil: % of water in each bed.
        tank_l: water in the tank.
    """

    def __init__(self, clock: Clock) -> None:
        self.door, self.rain = Door(), RainGauge()
        self.pump = self.lamp = False
        self.opening = 0.0
        self.co2_ppm = 650.0
        self.soil = [46.0, 41.0, 35.0, 27.0]
        self.tank_l = 300.0
        self._clock = clock
        self._looked = clock.monotonic()
        self.temperature_cel = self._warmth(clock.now())

    def look(self) -> Self:
        """Bring everything to the present."""
        now, monotonic = self._clock.now(), self._clock.monotonic()
        # What was more than a day ago no longer matters.
        passed = min(monotonic - self._looked, DAY_S)
        self._looked = monotonic
        steps = min(ceil(passed / STEP_S), STEPS)
        for step in range(1, steps + 1):
            self._step(now - passed + passed * step / steps, passed / steps)
        return self

    def switch(self, *, pump: bool, lamp: bool) -> None:
        """The relays are switched, from now on."""
        self.look()
        self.pump, self.lamp = pump, lamp

    def turn_window(self, opening: float) -> None:
        """The window is turned, from now on: 0 is closed, 1 is open."""
        self.look()
        self.opening = min(max(opening, 0.0), 1.0)

    # What follows from it -----------------------------------------------------------------

    @property
    def illuminance_lx(self) -> float:
        """Sun through drifting clouds, or the lamp; a lantern outside never goes out."""
        now = self._clock.now()
        clouds = 0.85 + 0.15 * sin(now / 97)
        return 26_000 * sun(now) * clouds + 1_800 * self.lamp + 1.5

    @property
    def solar_v(self) -> float:
        """Of a solar cell in the window."""
        return 3.0 * sun(self._clock.now())

    @property
    def humidity_rh(self) -> float:
        """Relative humidity: warm air takes more water."""
        return min(max(88.0 - 1.8 * (self.temperature_cel - 12.0), 30.0), 95.0)

    @property
    def pressure_pa(self) -> float:
        """Weather comes and goes in three days."""
        return 101_325 + 700 * sin(2 * pi * self._clock.now() / (3 * DAY_S))

    @property
    def water_cel(self) -> float:
        """Temperature of the water, which follows the day slowly."""
        return 13.0 - 3.0 * cos(2 * pi * (self._clock.now() - 6 * 3600) / DAY_S)

    @property
    def tank_distance_m(self) -> float:
        """From the sensor down to the water."""
        return 0.2 + (TANK_L - self.tank_l) / TANK_L

    @property
    def current_a(self) -> float:
        """Of the 12 V supply: the board, the lamp, and the pump, which is easy to turn dry."""
        pump = 1.9 if self.tank_l > 0 else 0.7
        return 0.12 + 0.9 * self.lamp + pump * self.pump

    @property
    def voltage_v(self) -> float:
        """Of the 12 V supply, which gives way a little."""
        return 12.6 - 0.25 * self.current_a

    @property
    def dust_ug_m3(self) -> float:
        """Particles of up to 2.5 um: what comes in from outside."""
        return 6 + 12 * self._draught(self._clock.now())

    # One step -----------------------------------------------------------------------------

    def _draught(self, at: float) -> float:
        """How much of the air is that of outside, 0 to 0.8."""
        return 0.8 * max(self.opening, 0.6 * self.door.is_open(at))

    def _warmth(self, at: float) -> float:
        """The temperature that it comes to, as things are."""
        gained = 3.0 + 14.0 * sun(at) + 1.5 * self.lamp
        return outside_cel(at) + gained * (1 - self._draught(at))

    def _step(self, at: float, seconds: float) -> None:
        """Let time pass, up to that second of the wall clock."""
        closed = 1 - self._draught(at)
        self.temperature_cel = _towards(
            self.temperature_cel, self._warmth(at), seconds / WARMING_S
        )
        # By day the plants take up what soil and people give.
        stale_ppm = FRESH_PPM + (1000 - 600 * sun(at)) * closed**2
        self.co2_ppm = _towards(self.co2_ppm, stale_ppm, seconds / BREATHING_S)
        rained = self.rain.tips(at) - self.rain.tips(at - seconds)
        self.tank_l = min(self.tank_l + rained * TIP_L, TANK_L)
        pumped_s = min(seconds, self.tank_l / PUMP_L_S) if self.pump else 0.0
        self.tank_l -= pumped_s * PUMP_L_S
        dried_s = (seconds - pumped_s) * (0.4 + sun(at))
        for bed, soaking_s in enumerate(SOAKING_S):
            wet = _towards(self.soil[bed], SOAKED, pumped_s / soaking_s)
            self.soil[bed] = _towards(wet, PARCHED, dried_s / DRYING_S)


def _towards(value: float, target: float, time: float) -> float:
    """Where a value comes to in that many time constants."""
    return target + (value - target) * exp(-time)
