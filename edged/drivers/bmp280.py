"""Bosch BMP280: temperature and pressure over I2C.

Source: Bosch BST-BMP280-DS001-26, revision 1.26. A BME280 in its place is
served too, without its humidity.
"""

from __future__ import annotations

from edged.bus import I2c, Sleep
from edged.drivers import Identity, Info, _bosch
from edged.drivers._bosch_model import Model

INFO = Info(
    title="BMP280 temperature and pressure",
    compatible=("bosch,bmp280",),
    bus="i2c",
    addresses=(0x76, 0x77),
    identity=Identity(register=_bosch.ID, values=_bosch.BMP280_IDS),
    channels=(_bosch.TEMPERATURE, _bosch.PRESSURE),
    datasheet="BST-BMP280-DS001-26, revision 1.26 (October 2021)",
)


class Config(_bosch.Settings, frozen=True):
    """Settings of one BMP280."""


async def probe(config: Config, bus: I2c, sleep: Sleep) -> _bosch.Bosch280:
    """Finds the chip, resets it and reads its calibration; see `Driver.probe`."""
    return await _bosch.probe("BMP280", config, bus, sleep)


class Sim(Model):
    """Register model of a BMP280."""

    chip_id = _bosch.BMP280_IDS[0]
