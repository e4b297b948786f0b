"""Bosch BME280: temperature, pressure and humidity over I2C.

Source: Bosch BST-BME280-DS002-15, revision 1.6. Many modules sold as a BME280
carry a BMP280: its identity decides, and humidity is then left out.
"""

from __future__ import annotations

from edged.bus import I2c, Sleep
from edged.drivers import Identity, Info, _bosch
from edged.drivers._bosch_model import Model

INFO = Info(
    title="BME280 temperature, pressure and humidity",
    compatible=("bosch,bme280",),
    bus="i2c",
    addresses=(0x76, 0x77),
    identity=Identity(register=_bosch.ID, values=(_bosch.BME280_ID,)),
    channels=(_bosch.TEMPERATURE, _bosch.PRESSURE, _bosch.HUMIDITY),
    datasheet="BST-BME280-DS002-15, revision 1.6 (September 2018)",
)


class Config(_bosch.Settings, frozen=True):
    """Settings of one BME280."""


async def probe(config: Config, bus: I2c, sleep: Sleep) -> _bosch.Bosch280:
    """Finds the chip, resets it and reads its calibration; see `Driver.probe`."""
    return await _bosch.probe("BME280", config, bus, sleep)


class Sim(Model):
    """Register model of a BME280."""

    chip_id = _bosch.BME280_ID
