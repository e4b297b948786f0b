"""The board itself, as a Raspberry Pi, a PC and nothing at all show it."""

import errno
import os

import pytest

from edged.bus.sim import SimSysfs
from edged.drivers import host
from edged.testing import FakeClock


@pytest.fixture
def sim():
    return host.Sim(FakeClock())


@pytest.fixture
def bus(sim):
    return SimSysfs(sim.files)


async def probed(bus, **settings):
    return await host.probe(host.Config(**settings), bus, FakeClock().sleep)


async def read(bus, **settings):
    return {sample.channel: sample for sample in await (await probed(bus, **settings)).read()}


async def test_a_raspberry_pi_shows_everything(sim, bus):
    sim.temperature_cel = -5.25
    found = await read(bus)
    assert list(found) == [channel.name for channel in host.INFO.channels]
    assert found["temperature"].value == -5.25
    assert found["core_voltage"].value == 0.86
    assert {sample.quality for sample in found.values()} == {"ok"}
    assert (await probed(bus)).identity == "Raspberry Pi 4 Model B Rev 1.5"


@pytest.mark.parametrize(
    ("bits", "now", "since"),
    [
        (0x00000, set(), set()),
        (0x00001, {"undervoltage"}, set()),
        (0x50005, {"undervoltage", "throttled"}, {"undervoltage", "throttled"}),
        (0x50000, set(), {"undervoltage", "throttled"}),
        (0x80008, {"temperature_limit"}, {"temperature_limit"}),
        (0xE0002, {"frequency_capped"}, {"frequency_capped", "throttled", "temperature_limit"}),
    ],
)
async def test_the_firmwares_flags(bits, now, since, sim, bus):
    """Raspberry Pi documentation, vcgencmd, get_throttled: 0x50005 is its example."""
    sim.throttled = bits
    found = await read(bus)
    assert {name for name in host.FLAGS if found[name].value == 1.0} == now
    assert {name for name in host.FLAGS if found[name].note} == since
    assert all(found[name].quality == "ok" for name in host.FLAGS)


async def test_a_board_without_any_of_it_says_so(tmp_path):
    found = await read(SimSysfs({}), disk=str(tmp_path))
    assert (await probed(SimSysfs({}))).identity == "this board"
    disk = found.pop("disk_free")
    assert disk.value > 0
    for sample in found.values():
        assert sample[1:4] == (None, "error", "this board does not have it")


async def test_without_the_firmware_the_kernels_driver_tells_undervoltage(bus):
    """raspberrypi-hwmon.c: in0_lcrit_alarm; mainline kernels have no get_throttled."""
    del bus.files["bus/platform/drivers/raspberrypi-firmware/soc:firmware/get_throttled"]
    alarm = "class/hwmon/hwmon0/in0_lcrit_alarm"
    for text, value in (("1\n", 1.0), ("0\n", 0.0)):
        bus.files[alarm] = text
        found = await read(bus)
        assert (found["undervoltage"].value, found["undervoltage"].quality) == (value, "ok")
        assert found["throttled"].value is None
    bus.files[alarm] = errno.EIO
    assert (await read(bus))["undervoltage"].quality == "error"


async def test_an_older_kernel_has_no_core_voltage(bus):
    del bus.files["class/hwmon/hwmon0/in0_input"]
    found = await read(bus)
    assert (found["core_voltage"].value, found["core_voltage"].quality) == (None, "error")
    assert found["temperature"].value == 48.3


async def test_the_processors_zone_is_taken_before_others(bus):
    bus.files["class/thermal/thermal_zone0/type"] = "acpitz"
    bus.files["class/thermal/thermal_zone1/type"] = "x86_pkg_temp"
    bus.files["class/thermal/thermal_zone1/temp"] = "61000"
    bus.files["class/thermal/cooling_device0/type"] = "cpu"
    assert (await read(bus))["temperature"].value == 61.0
    del bus.files["class/thermal/thermal_zone1/type"]
    assert (await read(bus))["temperature"].value == 48.3


async def test_other_hwmon_chips_and_firmware_entries_are_passed_over(bus):
    bus.files["class/hwmon/hwmon-0/temp1_input"] = "1"
    bus.files["bus/platform/drivers/raspberrypi-firmware/bind"] = ""
    found = await read(bus)
    assert found["core_voltage"].value == 0.86
    assert found["undervoltage"].value == 0.0


async def test_a_pc_is_named_by_its_firmware(bus):
    del bus.files["firmware/devicetree/base/model"]
    bus.files["class/dmi/id/product_name"] = "NUC7i3\n"
    assert (await probed(bus)).identity == "NUC7i3"


@pytest.mark.parametrize("file", [errno.EIO, "hot", ""])
async def test_a_value_that_cannot_be_read_is_none_and_hides_no_other(file, bus):
    bus.files["class/thermal/thermal_zone0/temp"] = file
    bus.files["bus/platform/drivers/raspberrypi-firmware/soc:firmware/get_throttled"] = file
    found = await read(bus)
    for name in ("temperature", *host.FLAGS):
        assert (found[name].value, found[name].quality) == (None, "error")
        assert found[name].note
    assert found["core_voltage"].value == 0.86


async def test_the_disk_is_the_one_that_is_named(bus, tmp_path):
    found = await read(bus, disk=str(tmp_path))
    stat = os.statvfs(tmp_path)
    assert found["disk_free"].value == pytest.approx(stat.f_bavail * stat.f_frsize, rel=0.1)
    missing = (await read(bus, disk=str(tmp_path / "absent")))["disk_free"]
    assert (missing.value, missing.quality) == (None, "error")
    assert "absent" in missing.note
