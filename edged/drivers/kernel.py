"""Any device that a driver of the kernel measures, by its name in hwmon or iio.

Source: Linux, Documentation/hwmon/sysfs-interface.rst and
Documentation/ABI/testing/sysfs-bus-iio: what a file is called says what it is
and in which unit.
"""

from __future__ import annotations

import re
from typing import Annotated, NamedTuple

import msgspec

from edged.bus import Sleep, Sysfs
from edged.clock import Clock
from edged.drivers import Channel, Info, Sample
from edged.errors import BusError, DataError, NoDeviceError

INFO = Info(
    title="A device of the kernel's hwmon or iio drivers, by name",
    compatible=(),
    bus="sysfs",
    datasheet="Linux, Documentation/hwmon/sysfs-interface.rst and ABI/testing/sysfs-bus-iio",
)


class Kind(NamedTuple):
    """A quantity: SenML unit, factor from the kernel's unit, and what is possible at all."""

    unit: str
    factor: float
    low: float
    high: float


HWMON = {
    "temp": Kind("Cel", 1e-3, -273.15, 2_000.0),
    "in": Kind("V", 1e-3, -10_000.0, 10_000.0),
    "curr": Kind("A", 1e-3, -10_000.0, 10_000.0),
    "power": Kind("W", 1e-6, -1e7, 1e7),
    "energy": Kind("J", 1e-6, 0.0, 1e15),
    "humidity": Kind("%RH", 1e-3, 0.0, 100.0),
    "fan": Kind("1/min", 1.0, 0.0, 1e6),
    "freq": Kind("Hz", 1.0, 0.0, 1e12),
}
"""`temp1_input` and so on."""

IIO = {
    "temp": Kind("Cel", 1e-3, -273.15, 2_000.0),
    "humidityrelative": Kind("%RH", 1e-3, 0.0, 100.0),
    "pressure": Kind("Pa", 1e3, 0.0, 1e9),
    "voltage": Kind("V", 1e-3, -10_000.0, 10_000.0),
    "current": Kind("A", 1e-3, -10_000.0, 10_000.0),
    "power": Kind("W", 1e-3, -1e7, 1e7),
    "energy": Kind("J", 1.0, 0.0, 1e15),
    "illuminance": Kind("lx", 1.0, 0.0, 1e6),
    "distance": Kind("m", 1.0, 0.0, 1e6),
    "accel": Kind("m/s2", 1.0, -1e5, 1e5),
    "concentration": Kind("ppm", 1e4, 0.0, 1e6),
}
"""`in_temp_input`, `in_voltage0_raw`, `in_accel_x_raw` and so on."""

_HWMON_FILE = r"([a-z]+)[0-9]+_(?:input|average)"
_IIO_FILE = r"(in_([a-z]+)[0-9]*(?:-[a-z]+[0-9]+)?(?:_[a-z0-9]+)*)_(raw|input)"
_ROOTS = ("class/hwmon", "bus/iio/devices")


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one device.

    Attributes:
        name: the kernel's, as its file `name` says it: `lm75`.
        channels: files by the names that their values get, `{temperature: temp1_input}`.
        device: its path below /sys, `bus/i2c/devices/1-0048`; where several have the name.
    """

    name: Annotated[str, msgspec.Meta(min_length=1)]
    channels: Annotated[dict[str, str], msgspec.Meta(min_length=1)]
    device: str = ""

    def __post_init__(self) -> None:
        for channel, file in self.channels.items():
            if re.fullmatch(r"[a-z][a-z0-9_]{0,39}", channel) is None:
                raise ValueError(f"channels: {channel!r} is no name: write it like temperature")
            kind_of(file)


def kind_of(file: str) -> Kind:
    """The quantity that a file of hwmon or iio shows.

    Raises:
        ValueError: none that is known here.
    """
    hwmon = re.fullmatch(_HWMON_FILE, file)
    iio = re.fullmatch(_IIO_FILE, file)
    kind = None
    if hwmon is not None:
        kind = HWMON.get(hwmon[1])
    elif iio is not None:
        kind = IIO.get(iio[2])
    if kind is None:
        raise ValueError(
            f"channels: {file!r} is no file that edged knows, which are N_input of "
            f"{', '.join(HWMON)} and in_N_input or in_N_raw of {', '.join(IIO)}"
        )
    return kind


def channels(config: Config) -> tuple[Channel, ...]:
    """What the settings name."""
    return tuple(
        Channel(name, kind.unit, kind.low, kind.high)
        for name, kind in ((name, kind_of(file)) for name, file in config.channels.items())
    )


def shared_names(file: str) -> tuple[str, ...]:
    """Beginnings of the files with scale and offset of a raw value, the nearest first.

    A scale may belong to a channel, `in_voltage0_scale`, or to all of its type,
    `in_voltage_scale`, `in_accel_scale`.

    Source: sysfs-bus-iio, `in_voltageY_scale`, `in_accel_scale`.
    """
    stem = file.removesuffix("_raw")
    of_type = re.sub(r"[0-9]+", "", stem)
    without_modifier = "_".join(of_type.split("_")[:2])
    return tuple(dict.fromkeys((stem, of_type, without_modifier)))


class Kernel:
    """A device that was found; call from the event loop's thread."""

    def __init__(self, config: Config, bus: Sysfs, directory: str, files: frozenset[str]) -> None:
        self.identity = config.name + (f" ({config.device})" if config.device else "")
        self._config, self._bus, self._directory, self._files = config, bus, directory, files

    async def read(self) -> tuple[Sample, ...]:
        """All channels; one that has no value hides no other."""
        samples, errors = [], []
        for name, file in self._config.channels.items():
            try:
                samples.append(Sample(name, await self._value(file)))
            except (BusError, DataError) as error:
                samples.append(Sample(name, None, "error", str(error)))
                errors.append(error)
        if len(errors) == len(samples):
            raise errors[0]
        return tuple(samples)

    async def _value(self, file: str) -> float:
        fault = f"{file.rpartition('_')[0]}_fault"
        if fault in self._files and await self._number(fault):
            raise DataError(f"{self.identity}: {file}: its sensor is open, shorted or absent")
        value = await self._number(file)
        if file.endswith("_raw"):
            value = (value + await self._shared(file, "offset")) * await self._shared(
                file, "scale"
            )
        kind = kind_of(file)
        value = round(value * kind.factor, 6)
        if not kind.low <= value <= kind.high:
            raise DataError(f"{self.identity}: {file}: {value:g} {kind.unit} cannot be")
        return value

    async def _shared(self, file: str, what: str) -> float:
        """Scale or offset of a raw value; without an offset it is 0."""
        for name in shared_names(file):
            if f"{name}_{what}" in self._files:
                return await self._number(f"{name}_{what}")
        if what == "offset":
            return 0.0
        raise DataError(f"{self.identity}: {file}: the kernel tells no scale for it")

    async def _number(self, file: str) -> float:
        text = await self._bus.read(f"{self._directory}/{file}")
        try:
            return float(text)
        except ValueError:
            raise DataError(f"{self.identity}: {file}: {text!r} is no number") from None


async def probe(config: Config, bus: Sysfs, sleep: Sleep) -> Kernel:  # noqa: ARG001  the kernel's driver waits
    """Finds the device by its name; see `Driver.probe`."""
    roots = (f"{config.device}/hwmon", config.device) if config.device else _ROOTS
    found, others = [], []
    for root in roots:
        for entry in await bus.list(root):
            name = await _name(bus, f"{root}/{entry}")
            if name == config.name:
                found.append(f"{root}/{entry}")
            elif name:
                others.append(name)
    if not found:
        there = ", ".join(sorted(set(others))) or "nothing"
        where = f" at {config.device}" if config.device else ""
        raise NoDeviceError(f"the kernel shows no {config.name}{where}, but {there}")
    if len(found) > 1:
        raise NoDeviceError(
            f"there are several of {config.name}: name one by `device`, its path below /sys, "
            "such as bus/i2c/devices/1-0048"
        )
    files = frozenset(await bus.list(found[0]))
    absent = [file for file in config.channels.values() if file not in files]
    if absent:
        there = ", ".join(sorted(f for f in files if f.endswith(("_input", "_average", "_raw"))))
        raise NoDeviceError(f"{config.name} has no {', '.join(absent)}: it has {there or 'none'}")
    return Kernel(config, bus, found[0], files)


async def _name(bus: Sysfs, directory: str) -> str:
    """The name of what may be a device of hwmon or iio; empty when it is none."""
    if not directory.rpartition("/")[2].startswith(("hwmon", "iio:device")):
        return ""
    try:
        return await bus.read(f"{directory}/name")
    except NoDeviceError:
        return ""


SIM_CONFIG = {"name": "lm75", "channels": {"temperature": "temp1_input"}}


class Sim:
    """A board on which the kernel's drivers lm75 (hwmon) and bmp280 (iio) are bound.

    Args:
        clock: not used: it stands still.
        temperature_cel: true temperature.
        pressure_pa: true pressure.
    """

    def __init__(
        self,
        clock: Clock,  # noqa: ARG002  every model is handed one
        *,
        temperature_cel: float = 21.5,
        pressure_pa: float = 101_325.0,
    ) -> None:
        self.temperature_cel = temperature_cel
        self.pressure_pa = pressure_pa
        self.files = {
            "class/hwmon/hwmon0/name": "lm75\n",
            "class/hwmon/hwmon0/temp1_input": self._millis,
            "bus/iio/devices/iio:device0/name": "bmp280\n",
            "bus/iio/devices/iio:device0/in_temp_input": self._millis,
            "bus/iio/devices/iio:device0/in_pressure_input": (
                lambda: f"{self.pressure_pa / 1000:.9f}\n"
            ),
        }

    def _millis(self) -> str:
        return f"{round(self.temperature_cel * 1000)}\n"
