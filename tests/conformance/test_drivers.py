"""Every driver whose chip is on the rig."""

import functools

import msgspec
import pytest

from edged import plugins
from tests.conformance.benches import Truth

pytestmark = pytest.mark.needs("drivers")


def is_stepped(driver):
    """Whether its measurements are done on their bus's thread, as the board has it."""
    return driver.INFO.bus == "i2c" and not driver.INFO.needs_loop


@pytest.fixture
def driver(subject):
    return plugins.load("edged.drivers", subject.driver)


@pytest.fixture
def config(driver, subject):
    address = {} if subject.address is None else {"address": subject.address}
    return msgspec.convert({**address, **subject.options}, driver.Config)


@pytest.fixture
async def device(driver, config, plugged):
    """Found by its identity, and closed again."""
    sleep = plugged.sleep
    if is_stepped(driver):
        sleep = functools.partial(plugged.bus.pause, sleep=plugged.sleep)
    found = await driver.probe(config, plugged.bus, sleep)
    yield found
    if hasattr(found, "close"):
        await found.close()


async def test_it_finds_its_chip_and_reads_what_is_true(driver, config, subject, device, plugged):
    """Equal to what the outside set, or else within the chip's limits."""
    assert device.identity
    assert subject.identity in device.identity
    channels = driver.channels(config) if hasattr(driver, "channels") else driver.INFO.channels
    for truth in subject.truths or [Truth({}, {}, "")]:
        await plugged.surround(truth.outside)
        reading = device.read()
        if is_stepped(driver):
            reading = plugged.bus.run(reading, plugged.sleep)
        samples = await reading
        if driver.INFO.commands:
            await device.safe()
            continue
        assert [sample.channel for sample in samples] == [channel.name for channel in channels]
        for sample, channel in zip(samples, channels, strict=True):
            assert sample.quality in {"ok", "warming"}, sample
            assert channel.low <= sample.value <= channel.high
            if sample.channel in truth.samples:
                value, within = truth.samples[sample.channel]
                assert sample.value == pytest.approx(value, abs=within), truth.source
