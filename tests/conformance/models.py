"""The drivers' own models of their chips, as subjects: on any bus that can carry them."""

from __future__ import annotations

from typing import Any, NamedTuple

from edged import plugins
from tests.conformance.benches import Subject, Truth

G = 9.80665
"""Standard gravity, m/s2."""


class Worked(NamedTuple):
    """A datasheet's worked example, as a model's surroundings and a driver's samples.

    Attributes:
        options: of the driver's `Config`, beside its usual ones.
        model: arguments of the model.
        truths: of `Subject`.
    """

    truths: tuple[Truth, ...]
    options: dict[str, Any] = {}
    model: dict[str, Any] = {}


def air(cel: float, percent: float, source: str, within: float = 0.002) -> Truth:
    outside = {"temperature_cel": cel, "humidity_rh": percent}
    return Truth(outside, {"temperature": (cel, within), "humidity": (percent, within)}, source)


def degrees(source: str, within: float, *values: float) -> tuple[Truth, ...]:
    return tuple(
        Truth({"temperature_cel": value}, {"temperature": (value, within)}, source)
        for value in values
    )


def co2(ppm: float, cel: float, percent: float, source: str, within: float) -> Truth:
    outside = {"co2_ppm": ppm, "temperature_cel": cel, "humidity_rh": percent}
    samples = {
        "co2": (ppm, within), "temperature": (cel, 0.01), "humidity": (percent, 0.01),
    }  # fmt: skip
    return Truth(outside, samples, source)


def bosch(source: str, **more: float) -> tuple[Truth, ...]:
    """Bosch's worked example; its last digit of the pressure is one step of 0.16 Pa."""
    samples = {"temperature": (25.08, 0.005), "pressure": (100_653.27, 0.2)}
    if more:
        samples["humidity"] = (more["humidity_rh"], 0.02)
    return (Truth({"temperature_cel": 25.08, "pressure_pa": 100_653.27, **more}, samples, source),)


def shunt(source: str) -> Worked:
    """TI's worked example of both: 20 mV over 2 milliohms, 11.98 V, 10 A, 119.8 W."""
    ohms = {"shunt_ohms": 0.002}
    samples = {
        "voltage": (11.98, 0.0), "current": (10.0, 0.001), "power": (119.8, 0.02),
        "shunt_voltage": (0.02, 0.0),
    }  # fmt: skip
    truth = Truth({"volts": 11.98, "amperes": 10.0}, samples, source)
    return Worked((truth,), {**ohms, "max_current_a": 32.768}, ohms)


WORKED = {
    "ads1115": Worked(
        (
            Truth(
                {"volts": [4.09575, -0.000125, 0.0, 2.048]},
                {
                    "a0": (4.09575, 1e-7),
                    "a1": (-0.000125, 1e-7),
                    "a2": (0.0, 0.0),
                    "a3": (2.048, 1e-7),
                },
                "SBAS444: 125 uV a step at 4.096 V, table 5",
            ),
        )
    ),
    "aht20": Worked((air(25.0, 50.0, "7.4"), air(-10.0, 33.3, "two's complement is none here"))),
    "bh1750": Worked(
        (Truth({"illuminance_lx": 28_067.0}, {"illuminance": (28_066.667, 0.5)}, "page 7"),)
    ),
    "bme280": Worked(bosch("BMP280, 3.12; BME280, 4.2.3", humidity_rh=55.0), {"oversampling": 16}),
    "bmp280": Worked(bosch("BMP280, 3.12"), {"oversampling": 16}),
    "circuitpython": Worked(degrees("MCP9808, 5.1.3", 0.0, 25.25, -20.0)),
    "ds3231": Worked(degrees("DS3231, temperature registers: 0x19 0x40", 0.0, 25.25, -0.25)),
    "ina219": shunt("SBOS448, 8.5, table 8"),
    "ina226": shunt("SBOS547, 7.5"),
    "lm75": Worked(
        degrees("SLLS648D, table 5", 0.0, 127.0 - 2.0, 80.0, 25.0, 0.25, 0.0, -0.25, -55.0),
        *({"chip": "tmp105"}, {"chip": "tmp105"}),
    ),
    "mpu6050": Worked(
        (
            Truth(
                {"accel": [-G, G, 0.0], "temperature_cel": 35.0},
                {"accel_x": (-G, 0.001), "accel_y": (G, 0.001), "temperature": (35.0, 0.003)},
                "RM-MPU-6000A, 4.17 and 4.18: 16384 steps a g, raw -521 is 35.00 Cel",
            ),
        )
    ),
    "scd30": Worked((co2(439.095, 27.238, 48.807, "interface description, 1.4.5", 0.001),)),
    "scd4x": Worked((co2(500, 25.0, 37.0, "3.5.2", 0.0),)),
    "sht3x": Worked((air(25.0, 50.0, "4.13"), air(-10.0, 33.3, "4.13"))),
    "sht4x": Worked((air(25.0, 50.0, "4.6"), air(-10.0, 33.3, "4.6"))),
    "vl53l0x": Worked((Truth({"distance_m": 1.2}, {"distance": (1.2, 0.001)}, "in mm"),)),
}
"""Of chips that measure what their models are told; by driver."""


def subjects(bus: str, *kinds: str) -> tuple[Subject, ...]:
    """All drivers of these kinds of bus, each on the bus of that name."""
    found = []
    for name in plugins.names("edged.drivers"):
        driver = plugins.load("edged.drivers", name)
        if kinds and driver.INFO.bus not in kinds:
            continue
        worked = WORKED.get(name, Worked(()))
        options = {**getattr(driver, "SIM_CONFIG", {}), **worked.options}
        address = driver.INFO.addresses[0] if driver.INFO.addresses else None
        found.append(Subject(name, bus, address, options, worked.truths, model=worked.model))
    return tuple(found)
