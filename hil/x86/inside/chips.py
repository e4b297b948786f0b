"""The kernel's own drivers and edged's, on the same bytes of the same models; run in the guest.

Source: Documentation/hwmon and Documentation/ABI/testing/sysfs-bus-iio of the kernel
(thousandths of a degree and of a percent; pressure in kPa).
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from edged import plugins
from edged.bus.i2c import OWNER_S
from edged.errors import BusyError

SETTLED_S = 0.3
"""By then a chip that measures by itself did so; the TMP105 takes longest."""

MILLI = 1e-3
GRAVITY = 9.80665 / 16384
"""Of one step of the accelerometer, whose range is 2 g."""


class Quantity(NamedTuple):
    """One channel as the kernel's driver shows it.

    Attributes:
        channel: of edged's driver.
        file: below the device's directory.
        scale: of the file's number, to the channel's unit.
        within: how far the two may differ: both round, each in its own way.
        offset: added to the file's number.
    """

    channel: str
    file: str
    scale: float
    within: float
    offset: float = 0.0


class Chip(NamedTuple):
    """A chip that the kernel has a driver for too.

    Attributes:
        driver: edged's.
        address: of the chip.
        module: the kernel's.
        kernel: its name for the chip, and that of its driver.
        quantities: what both measure.
        truths: what is true around the chip, one after the other.
        options: settings of edged's driver.
        arguments: of its model.
    """

    driver: str
    address: int
    module: str
    kernel: tuple[str, str]
    quantities: tuple[Quantity, ...]
    truths: tuple[dict[str, float], ...]
    options: dict[str, Any] = {}
    arguments: dict[str, Any] = {}


IIO, HWMON = "iio:device*", "hwmon/hwmon*"
AIR = (
    # Bosch's worked example (BMP280, 3.12).
    {"temperature_cel": 25.08, "pressure_pa": 100_653.27},
    {"temperature_cel": -10.0, "pressure_pa": 85_000.0},
    {"temperature_cel": 85.0, "pressure_pa": 110_000.0},
)
# The kernel's driver averages as many samples of the pressure.
FINE = {"oversampling": 16}
BOSCH = (
    Quantity("temperature", f"{IIO}/in_temp_input", MILLI, 0.01),
    Quantity("pressure", f"{IIO}/in_pressure_input", 1000, 0.5),
)
DEGREES = Quantity("temperature", f"{HWMON}/temp1_input", MILLI, 0.001)
DAMP = (
    Quantity("temperature", f"{HWMON}/temp1_input", MILLI, 0.002),
    Quantity("humidity", f"{HWMON}/humidity1_input", MILLI, 0.002),
)


def degrees(*values: float) -> tuple[dict[str, float], ...]:
    return tuple({"temperature_cel": value} for value in values)


CHIPS = (
    Chip("bmp280", 0x76, "bmp280-i2c", ("bmp280", "bmp280"), BOSCH, AIR, FINE),
    Chip(
        *("bme280", 0x77, "bmp280-i2c", ("bme280", "bmp280")),
        (*BOSCH, Quantity("humidity", f"{IIO}/in_humidityrelative_input", MILLI, 0.02)),
        tuple({**air, "humidity_rh": rh} for air, rh in zip(AIR, (55.0, 99.0, 3.0), strict=True)),
        FINE,
    ),
    Chip(
        *("lm75", 0x48, "lm75", ("lm75", "lm75"), (DEGREES,)),
        degrees(21.5, -0.5, -10.0, 125.0, -55.0),
    ),
    Chip(
        *("lm75", 0x4F, "lm75", ("tmp105", "lm75"), (DEGREES,)),
        degrees(21.5625, -0.0625, -10.0625),
        *({"chip": "tmp105"}, {"chip": "tmp105"}),
    ),
    Chip(
        *("sht4x", 0x44, "sht4x", ("sht4x", "sht4x"), DAMP),
        ({"temperature_cel": -10.0, "humidity_rh": 33.0},),
    ),
    Chip(
        *("mpu6050", 0x68, "inv-mpu6050-i2c", ("mpu6050", "inv-mpu6050-i2c")),
        (
            Quantity("accel_z", f"{IIO}/in_accel_z_raw", GRAVITY, GRAVITY),
            # The kernel's: steps from 36.53 Cel, 340 to a degree.
            Quantity("temperature", f"{IIO}/in_temp_raw", 1 / 340, 0.01, 12_420),
        ),
        degrees(25.0, -40.0),
    ),
)


class Seat:
    """A chip in its place on the bridge.

    Args:
        bridge: has it.
        chip: which.
    """

    def __init__(self, bridge, chip: Chip) -> None:
        self.bridge, self.chip = bridge, chip
        bridge.plug(chip.address, chip.driver, **chip.arguments)
        name = f"{bridge.number}-{chip.address:04x}"
        self.device = bridge.adapter / name

    async def surround(self, truth: dict[str, float]) -> None:
        for name, value in truth.items():
            self.bridge.ask("set", self.chip.address, name, value)
        await asyncio.sleep(SETTLED_S)

    async def find(self, bus) -> Any:
        """The device of edged's driver, which found the chip."""
        driver = plugins.load("edged.drivers", self.chip.driver)
        config = driver.Config(address=self.chip.address, **self.chip.options)
        return await driver.probe(config, bus, asyncio.sleep)

    def bind(self) -> None:
        """Has the kernel's driver take the chip."""
        subprocess.run(["modprobe", self.chip.module], check=True)
        words = f"{self.chip.kernel[0]} {self.chip.address:#x}"
        (self.bridge.adapter / "new_device").write_text(words)
        bound = os.readlink(self.device / "driver")
        assert os.path.basename(bound) == self.chip.kernel[1]

    def shown(self, quantity: Quantity) -> float:
        """What the kernel's driver measures now."""
        (file,) = self.device.glob(quantity.file)
        return (float(file.read_text()) + quantity.offset) * quantity.scale

    def clear(self) -> None:
        if self.device.exists():
            (self.bridge.adapter / "delete_device").write_text(f"{self.chip.address:#x}")
        self.bridge.ask("unplug", self.chip.address)


@pytest.fixture(params=CHIPS, ids=lambda chip: f"{chip.driver}-{chip.kernel[0]}")
def seat(request, bridge):
    taken = Seat(bridge, request.param)
    yield taken
    taken.clear()


async def test_both_drivers_say_the_same(seat, bus):
    """Issue 3, part 9 (b); each of the two has the chip alone, one after the other."""
    device = await seat.find(bus)
    ours = []
    for truth in seat.chip.truths:
        await seat.surround(truth)
        ours.append({sample.channel: sample.value for sample in await device.read()})
    seat.bind()
    for truth, values in zip(seat.chip.truths, ours, strict=True):
        await seat.surround(truth)
        for quantity in seat.chip.quantities:
            kernel = seat.shown(quantity)
            assert abs(kernel - values[quantity.channel]) <= quantity.within, (truth, quantity)


async def test_bosch_says_25_08_degrees(bridge, bus):
    """Bosch's worked example (BMP280, 3.12): 25.08 Cel, 100653.27 Pa."""
    seat = Seat(bridge, CHIPS[0])
    try:
        await seat.surround(AIR[0])
        temperature, pressure = await (await seat.find(bus)).read()
        seat.bind()
        kernel = [seat.shown(quantity) for quantity in BOSCH]
        for found in ([round(temperature.value, 2), pressure.value], kernel):
            # A step of the pressure is 0.16 Pa.
            assert found == [pytest.approx(25.08), pytest.approx(100_653.27, abs=0.1)]
    finally:
        seat.clear()


async def test_an_address_of_the_kernels_driver_is_refused_with_its_value(seat, bus, clock):
    """Issue 3, part 3: I2C_RDWR would reach the chip behind that driver's back."""
    assert bus.owner(seat.chip.address) == ""
    seat.bind()
    clock.advance(OWNER_S)
    with pytest.raises(BusyError) as refused:
        await bus.transfer(seat.chip.address, b"\x00", 1)
    message = str(refused.value)
    assert f"the kernel's driver {seat.chip.kernel[1]} owns it: read it at " in message
    where = Path(message.partition("read it at ")[2].partition(",")[0])
    for quantity in seat.chip.quantities:
        assert (where / os.path.basename(quantity.file)).exists()
    assert await bus.detect(seat.chip.address)


async def test_an_eeprom_is_the_same_to_both(bridge, bus):
    """Bytes that either writes the other reads; a busy EEPROM acknowledges nothing meanwhile."""
    options = {"chip": "24c32"}
    chip = Chip("at24", 0x50, "at24", ("24c32", "at24"), (), (), options, options)
    seat = Seat(bridge, chip)
    try:
        eeprom = await seat.find(bus)
        driver = plugins.load("edged.drivers", "at24")
        text = "edged writes this over the end of a page of 32 bytes"
        await eeprom.act("write", driver.Write(offset=16, text=text))
        seat.bind()
        file = seat.device / "eeprom"
        with file.open("r+b") as memory:
            assert memory.read()[16 : 16 + len(text)] == text.encode()
            memory.seek(1000)
            memory.write(b"the kernel writes this")
        (bridge.adapter / "delete_device").write_text("0x50")
        while not await bus.detect(0x50):
            # The kernel's driver does not wait for the end of its last write.
            await asyncio.sleep(0)
        shown = await (await seat.find(bus)).act("read", driver.Read(offset=1000, length=22))
        assert b"the kernel writes this".hex(" ") in shown
    finally:
        seat.clear()
