"""Register models of Bosch's BME280 and BMP280, which differ in their id and in humidity.

Source: as `edged.drivers._bosch`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable

from edged.clock import Clock
from edged.drivers._bosch import (
    BME280_ID,
    CALIB_HIGH,
    CALIB_LOW,
    CTRL_HUM,
    CTRL_MEAS,
    DATA,
    ID,
    NORMAL_MODE,
    NOTHING,
    RESET,
    RESET_WORD,
    SKIPPED_16,
    SKIPPED_20,
    SLEEP_MODE,
    START_UP_S,
    STATUS,
    Calibration,
    Raw,
    encode_calibration,
    encode_data,
    fine_temperature,
    humidity_rh,
    measurement_s,
    pressure_pa,
    temperature_cel,
)
from edged.register import Register

CALIBRATION = Calibration(
    *(27504, 26435, -1000),
    *(36477, -10685, 3024, 2855, 140, -7, 15500, -14600, 6000),
    *(75, 362, 0, 313, 50, 30),
)
"""Of the modelled chips; T and P are those of Bosch's worked example (BMP280, 3.12)."""


class Model:
    """Register model of a BME280, or by its `chip_id` a BMP280, in true surroundings.

    Set `temperature_cel`, `pressure_pa` and `humidity_rh` to what is true; a
    measurement puts the raw values into the data registers that the formulas
    turn back into it, as fine as the converter is.

    Args:
        clock: what measuring times and the drift follow.
        temperature_cel: true temperature.
        pressure_pa: true pressure.
        humidity_rh: true relative humidity.
        drift_cel: the temperature swings by this much, once in `DRIFT_PERIOD_S`.
    """

    DRIFT_PERIOD_S = 600.0
    chip_id = BME280_ID

    def __init__(
        self,
        clock: Clock,
        *,
        temperature_cel: float = 21.5,
        pressure_pa: float = 101_325.0,
        humidity_rh: float = 45.0,
        drift_cel: float = 0.0,
    ) -> None:
        self.temperature_cel = temperature_cel
        self.pressure_pa = pressure_pa
        self.humidity_rh = humidity_rh
        self.drift_cel = drift_cel
        self._clock = clock
        self._pointer = 0
        self._ready_at = 0.0
        self._osrs_h = 0
        self._memory = bytearray(256)
        self.reset()

    def write(self, data: bytes) -> None:
        """A register address, then a value, then further pairs of both (6.2.1)."""
        self._settle()
        self._pointer = data[0]
        for register, value in zip(data[0::2], data[1::2], strict=False):
            self._set(register, value)

    def read(self, length: int) -> bytes:
        """Bytes from the register that was addressed last, counting up (6.2.2)."""
        self._settle()
        start = self._pointer
        return bytes(self._memory[(start + i) & 0xFF] for i in range(length))

    def reset(self) -> None:
        """Comes up anew: by command, and after a brown-out."""
        low, high = encode_calibration(CALIBRATION)
        memory = self._memory
        memory[:] = bytes(256)
        memory[ID] = self.chip_id
        memory[CALIB_LOW : CALIB_LOW + len(low)] = low
        if self._has_humidity:
            memory[CALIB_HIGH : CALIB_HIGH + len(high)] = high
        self._store(NOTHING)
        self._osrs_h = 0
        self._set_status(im_update=1)
        self._ready_at = self._clock.monotonic() + START_UP_S

    @property
    def _has_humidity(self) -> bool:
        return self.chip_id == BME280_ID

    def _store(self, raw: Raw) -> None:
        data = encode_data(raw)
        used = data if self._has_humidity else data[:6]
        self._memory[DATA : DATA + len(used)] = used

    def _set(self, register: int, value: int) -> None:
        if register == RESET and value == RESET_WORD:
            self.reset()
        elif register == CTRL_HUM.address and self._has_humidity:
            self._memory[register] = value & 7
        elif register == CTRL_MEAS.address:
            self._memory[register] = value
            self._osrs_h = self._memory[CTRL_HUM.address]
            if value & 3 != SLEEP_MODE:
                self._start()

    def _start(self) -> None:
        fields = self._fields(CTRL_MEAS)
        longest = max(_times(code) for code in (fields["osrs_t"], fields["osrs_p"], self._osrs_h))
        self._set_status(measuring=1)
        lasts = measurement_s(longest, humidity=self._has_humidity)
        self._ready_at = self._clock.monotonic() + lasts

    def _settle(self) -> None:
        """Brings the registers to the present time."""
        if self._clock.monotonic() < self._ready_at:
            return
        control = self._memory[CTRL_MEAS.address]
        if self._fields(STATUS)["measuring"] or control & 3 == NORMAL_MODE:
            self._store(self._convert())
        if control & 3 != NORMAL_MODE:
            self._memory[CTRL_MEAS.address] = control & ~3
        self._set_status()

    def _fields(self, register: Register) -> dict[str, int]:
        return register.decode(bytes(self._memory[register.address : register.address + 1]))

    def _set_status(self, **bits: int) -> None:
        self._memory[STATUS.address : STATUS.address + 1] = STATUS.encode(bits)

    def _convert(self) -> Raw:
        fields = self._fields(CTRL_MEAS)
        cal = CALIBRATION
        swing = math.sin(2 * math.pi * self._clock.monotonic() / self.DRIFT_PERIOD_S)
        true_cel = self.temperature_cel + self.drift_cel * swing
        exact_t = _inverse(1 << 20, lambda adc: temperature_cel(adc, cal) - true_cel)
        raw_t = _coarse(exact_t, fields["osrs_t"])
        t_fine = int(fine_temperature(raw_t if fields["osrs_t"] else exact_t, cal))
        # Pressure falls while its raw value rises.
        exact_p = _inverse(1 << 20, lambda adc: self.pressure_pa - pressure_pa(adc, t_fine, cal))
        exact_h = _inverse(1 << 16, lambda adc: humidity_rh(adc, t_fine, cal) - self.humidity_rh)
        return Raw(
            raw_t,
            _coarse(exact_p, fields["osrs_p"]),
            exact_h if self._osrs_h else SKIPPED_16,
        )


def _inverse(size: int, error: Callable[[int], float]) -> int:
    """The raw value below `size` where a rising error is nearest to zero."""
    above = min(bisect_left(range(size), 0.0, key=error), size - 1)
    below = max(above - 1, 0)
    return min(above, below, key=lambda adc: abs(error(adc)))


def _times(code: int) -> int:
    """Samples of an oversampling code: 0 skips, 5 and more is 16 (5.4.5)."""
    return 1 << min(code, 5) - 1 if code else 0


def _coarse(adc: int, code: int) -> int:
    """A 20-bit value as fine as the converter is: 16 bits, one more a doubling (3.4.2, 3.4.3)."""
    if not code:
        return SKIPPED_20
    step = 16 // _times(code)
    return min((adc + step // 2) // step * step, (1 << 20) - step)
