"""The board itself: its temperature, its supply, what its firmware throttles, its disk.

Source: Linux, Documentation/ABI/testing/sysfs-class-thermal and
drivers/hwmon/raspberrypi-hwmon.c; Raspberry Pi documentation, vcgencmd,
get_throttled. What a board does not have comes without a value and says so.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import msgspec

from edged.bus import Sleep, Sysfs
from edged.clock import Clock
from edged.drivers import Channel, Info, Sample
from edged.errors import EdgedError, NoDeviceError

INFO = Info(
    title="The board itself: temperature, supply, throttling, disk",
    compatible=(),
    bus="sysfs",
    channels=(
        Channel("temperature", "Cel", -60.0, 200.0),
        Channel("core_voltage", "V", 0.0, 5.0),
        Channel("undervoltage", "/", 0.0, 1.0),
        Channel("frequency_capped", "/", 0.0, 1.0),
        Channel("throttled", "/", 0.0, 1.0),
        Channel("temperature_limit", "/", 0.0, 1.0),
        Channel("disk_free", "B", 0.0, 1e18),
    ),
    datasheet="Linux, ABI/testing/sysfs-class-thermal; Raspberry Pi documentation, vcgencmd",
)

FLAGS = ("undervoltage", "frequency_capped", "throttled", "temperature_limit")
"""By bit of get_throttled: of this moment from bit 0, since the start from bit 16."""

_SINCE_START = 16
_MODELS = ("firmware/devicetree/base/model", "class/dmi/id/product_name")
_FIRMWARE_DRIVER = "bus/platform/drivers/raspberrypi-firmware"
_CPU_ZONES = ("cpu", "soc", "pkg")
"""Words in the type of the thermal zone of a processor."""
_ABSENT = "this board does not have it"


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings.

    Attributes:
        disk: a path on the file system that is watched.
    """

    disk: str = "/"


class Places(NamedTuple):
    """Directories where this board shows things; empty where it does not."""

    zone: str
    firmware: str
    supply: str


def flag_samples(bits: int) -> tuple[Sample, ...]:
    """The flags of the firmware, 1 while it is so.

    Args:
        bits: `get_throttled`.

    Source: Raspberry Pi documentation, vcgencmd, get_throttled.
    """
    return tuple(
        Sample(
            name,
            float(bits >> bit & 1),
            note="it was so since the start" if bits >> (bit + _SINCE_START) & 1 else "",
        )
        for bit, name in enumerate(FLAGS)
    )


class Host:
    """The board; call from the event loop's thread."""

    def __init__(self, config: Config, bus: Sysfs, model: str, places: Places) -> None:
        self.identity = model
        self._config, self._bus, self._places = config, bus, places

    async def read(self) -> tuple[Sample, ...]:
        """All channels; one that has no value hides no other."""
        places = self._places
        temperature = await self._scaled("temperature", places.zone, "temp")
        voltage = await self._scaled("core_voltage", places.supply, "in0_input")
        return (temperature, voltage, *await self._flags(), self._disk())

    async def _scaled(self, channel: str, directory: str, file: str) -> Sample:
        """A value that the kernel shows in thousandths."""
        try:
            return Sample(channel, int(await self._text(directory, file)) / 1000)
        except (EdgedError, ValueError) as error:
            return _missing(channel, error)

    async def _flags(self) -> tuple[Sample, ...]:
        places = self._places
        if places.firmware:
            try:
                return flag_samples(int(await self._text(places.firmware, "get_throttled"), 16))
            except (EdgedError, ValueError) as error:
                return tuple(_missing(name, error) for name in FLAGS)
        try:
            # What the kernel's own driver saw in its last two seconds.
            alarm = await self._text(places.supply, "in0_lcrit_alarm")
        except EdgedError as error:
            return tuple(_missing(name, error) for name in FLAGS)
        others = (_missing(name, NoDeviceError(_ABSENT)) for name in FLAGS[1:])
        return (Sample(FLAGS[0], float(alarm != "0")), *others)

    async def _text(self, directory: str, file: str) -> str:
        if not directory:
            raise NoDeviceError(_ABSENT)
        return await self._bus.read(f"{directory}/{file}")

    def _disk(self) -> Sample:
        try:
            # A mount that hangs would hang here: the file system is a local one.
            found = os.statvfs(self._config.disk)
        except OSError as error:
            return _missing("disk_free", error)
        return Sample("disk_free", float(found.f_frsize * found.f_bavail))


def _missing(channel: str, error: Exception) -> Sample:
    return Sample(channel, None, "error", str(error))


async def probe(config: Config, bus: Sysfs, sleep: Sleep) -> Host:  # noqa: ARG001  nothing is waited for
    """Looks what this board has; see `Driver.probe`."""
    places = Places(await _zone(bus), await _firmware(bus), await _supply(bus))
    return Host(config, bus, await _model(bus), places)


async def _told(bus: Sysfs, path: str) -> str:
    """A file that not every board has; empty then."""
    try:
        return await bus.read(path)
    except EdgedError:
        return ""


async def _model(bus: Sysfs) -> str:
    for path in _MODELS:
        # Devicetree's texts end with a zero byte.
        model = (await _told(bus, path)).rstrip("\0")
        if model:
            return model
    return "this board"


async def _zone(bus: Sysfs) -> str:
    """The processor's thermal zone, else the first."""
    zones = [
        f"class/thermal/{entry}"
        for entry in await bus.list("class/thermal")
        if entry.startswith("thermal_zone")
    ]
    for zone in zones:
        kind = await _told(bus, f"{zone}/type")
        if any(word in kind for word in _CPU_ZONES):
            return zone
    return zones[0] if zones else ""


async def _firmware(bus: Sysfs) -> str:
    """The Raspberry Pi's firmware, which has another path on each model."""
    for entry in await bus.list(_FIRMWARE_DRIVER):
        if "get_throttled" in await bus.list(f"{_FIRMWARE_DRIVER}/{entry}"):
            return f"{_FIRMWARE_DRIVER}/{entry}"
    return ""


async def _supply(bus: Sysfs) -> str:
    for entry in await bus.list("class/hwmon"):
        if await _told(bus, f"class/hwmon/{entry}/name") == "rpi_volt":
            return f"class/hwmon/{entry}"
    return ""


class Sim:
    """Model of a Raspberry Pi.

    Args:
        clock: not used: it stands still.
        temperature_cel: of the processor.
        throttled: the firmware's flags, as `get_throttled` gives them.
    """

    def __init__(
        self,
        clock: Clock,  # noqa: ARG002  every model is handed one
        *,
        temperature_cel: float = 48.3,
        throttled: int = 0,
    ) -> None:
        self.temperature_cel = temperature_cel
        self.throttled = throttled
        self.files = {
            _MODELS[0]: "Raspberry Pi 4 Model B Rev 1.5\0",
            "class/thermal/thermal_zone0/type": "cpu-thermal\n",
            "class/thermal/thermal_zone0/temp": (
                lambda: f"{round(self.temperature_cel * 1000)}\n"
            ),
            f"{_FIRMWARE_DRIVER}/soc:firmware/get_throttled": lambda: f"{self.throttled:x}\n",
            "class/hwmon/hwmon0/name": "rpi_volt\n",
            "class/hwmon/hwmon0/in0_input": "860\n",
            "class/hwmon/hwmon0/in0_lcrit_alarm": lambda: f"{self.throttled >> 16 & 1}\n",
        }
