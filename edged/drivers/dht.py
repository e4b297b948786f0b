"""DHT11, DHT22 and AM2302: temperature and humidity, by the kernel's dht11 driver.

Source: Aosong DHT22 (AM2302) and DHT11 manuals; the kernel's
drivers/iio/humidity/dht11.c and Documentation/ABI/testing/sysfs-bus-iio.
User space is too slow for pulses of 26 and 70 us, the kernel is not always in
time either: a failed transfer is tried again, never made up.
"""

from __future__ import annotations

import errno

import msgspec

from edged.bus import Sleep, Sysfs
from edged.clock import Clock
from edged.drivers import Channel, Info, Sample
from edged.errors import BusError, DataError, NoDeviceError
from edged.register import signed

INFO = Info(
    title="DHT11, DHT22, AM2302 temperature and humidity (kernel)",
    compatible=(),
    bus="sysfs",
    channels=(
        Channel("temperature", "Cel", -40.0, 80.0),
        Channel("humidity", "%RH", 0.0, 100.0),
    ),
    datasheet="Aosong DHT22 (AM2302), product manual; Aosong DHT11, product manual",
    interval_s=2.0,
)

TRIES = 3
"""The sensors take a measurement every two seconds; the kernel keeps the last one as long."""

_DEVICES = "bus/iio/devices"
_TEMPERATURE, _HUMIDITY = "in_temp_input", "in_humidityrelative_input"


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one sensor.

    Attributes:
        name: the kernel's name for it, `dht11@4`; needed where there are several.
    """

    name: str = ""


def decode(temperature: str, humidity: str) -> tuple[Sample, ...]:
    """Both values from the kernel's files.

    Some copies of the DHT22 send temperatures below zero in two's complement
    where sign and magnitude belong; the kernel's driver takes both for the latter.

    Args:
        temperature: thousandths of a degree.
        humidity: thousandths of a percent.

    Raises:
        DataError: what no sensor measures.

    Source: dht11.c, `dht11_decode`; AM2302 manual, section 7.3.
    """
    try:
        cel, rh = int(temperature), int(humidity)
    except ValueError:
        raise DataError(f"the kernel shows no numbers: {temperature!r}, {humidity!r}") from None
    low, high = (int(1000 * limit) for limit in (INFO.channels[0].low, INFO.channels[0].high))
    if cel < low:
        cel = 100 * signed(0x8000 | -cel // 100, 16)
    if not low <= cel <= high:
        raise DataError(f"a temperature of {int(temperature) / 1000:g} °C cannot be")
    if not 0 <= rh <= 100_000:
        raise DataError(f"a humidity of {rh / 1000:g} % cannot be")
    if cel == rh == 0:
        raise DataError("all zeros: its data line is held low")
    return (Sample("temperature", cel / 1000), Sample("humidity", rh / 1000))


class Dht:
    """A sensor that was found; call from the event loop's thread."""

    def __init__(self, bus: Sysfs, sleep: Sleep, directory: str, name: str) -> None:
        self.identity = f"DHT ({name})"
        self._bus, self._sleep, self._directory = bus, sleep, directory

    async def read(self) -> tuple[Sample, ...]:
        """One measurement, of three tries."""
        tries = 1
        while True:
            try:
                return await self._measure()
            except (BusError, DataError) as error:
                if tries == TRIES:
                    raise self._given_up(error) from None
            tries += 1
            await self._sleep(INFO.interval_s)

    async def _measure(self) -> tuple[Sample, ...]:
        # The second file comes from the same transfer: the kernel keeps it for two seconds.
        temperature = await self._bus.read(f"{self._directory}/{_TEMPERATURE}")
        return decode(temperature, await self._bus.read(f"{self._directory}/{_HUMIDITY}"))

    def _given_up(self, error: BusError | DataError) -> BusError | DataError:
        if isinstance(error, DataError):
            return DataError(f"{self.identity}: {error}")
        return BusError(
            error.errno,
            f"{self.identity}: no valid answer in {TRIES} tries: check its wiring, supply and "
            "the pull-up of its data line",
        )


async def probe(config: Config, bus: Sysfs, sleep: Sleep) -> Dht:
    """Finds the kernel's device; see `Driver.probe`."""
    found = {}
    for device in await bus.list(_DEVICES):
        try:
            name = await bus.read(f"{_DEVICES}/{device}/name")
        except NoDeviceError:
            # An unnamed device, or a trigger.
            continue
        if config.name in {"", name} and name.startswith("dht"):
            found[device] = name
    if not found:
        raise NoDeviceError(
            f"the kernel has no {config.name or 'DHT sensor'}: switch it on with "
            "dtoverlay=dht11,gpiopin=4 in /boot/firmware/config.txt and reboot"
        )
    if len(found) > 1:
        raise NoDeviceError(f"there are several, name one: {', '.join(found.values())}")
    ((device, name),) = found.items()
    return Dht(bus, sleep, f"{_DEVICES}/{device}", name)


class Sim:
    """Model of a DHT22 as the kernel shows it.

    Args:
        clock: not used: it stands still.
        temperature_cel: true temperature.
        humidity_rh: true relative humidity.
    """

    def __init__(
        self,
        clock: Clock,  # noqa: ARG002  every model is handed one
        *,
        temperature_cel: float = 21.5,
        humidity_rh: float = 52.0,
    ) -> None:
        self.temperature_cel = temperature_cel
        self.humidity_rh = humidity_rh
        self.failures = 0
        """So many transfers are yet to fail."""
        directory = f"{_DEVICES}/iio:device0"
        self.files = {
            f"{directory}/name": "dht11@4\n",
            f"{directory}/{_TEMPERATURE}": lambda: self._shown(self.temperature_cel),
            f"{directory}/{_HUMIDITY}": lambda: self._shown(self.humidity_rh),
        }

    def _shown(self, value: float) -> str:
        if self.failures:
            self.failures -= 1
            raise BusError(errno.EIO, "the checksum was wrong")
        return f"{round(value * 10) * 100}\n"
