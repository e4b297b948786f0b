"""What the conformance suite is held to: each of its tests meets a kernel of others."""

import importlib
import inspect
from pathlib import Path

import msgspec
import pytest

from edged import plugins
from hil import bench
from tests.conformance import benches
from tests.conformance.benches import ABILITIES

SUITE = Path(benches.__file__).parent
RIGS = {
    rig.name: rig
    for module in (
        "tests.conformance.sim",
        "tests.conformance.pty",
        "hil.uml.inside.rig",
        "hil.x86.inside.rig",
        "hil.guest.rig",
    )
    for rig in importlib.import_module(module).RIGS
}
EXAMPLE = Path(bench.__file__).with_name("bench.example.yaml")


def suite():
    """Name and needs of each."""
    for file in SUITE.glob("test_*.py"):
        module = importlib.import_module(f"tests.conformance.{file.stem}")
        for name, function in inspect.getmembers(module, inspect.iscoroutinefunction):
            if name.startswith("test_"):
                marks = [module.pytestmark, *getattr(function, "pytestmark", [])]
                wanted = {one for mark in marks if mark.name == "needs" for one in mark.args}
                yield pytest.param(wanted, id=f"{file.stem}.{name}")


@pytest.mark.parametrize("wanted", list(suite()))
def test_each_test_runs_on_a_kernel_that_no_one_here_wrote_and_on_a_rig_of_any_machine(wanted):
    """Issue 3, part 9: the same code as on the simulator."""
    assert wanted <= ABILITIES.keys()
    able = {name for name, rig in RIGS.items() if wanted <= rig.can}
    assert [name for name in able if RIGS[name].is_kernel]
    # What only the outside of an emulated wire can tell, umockdev tells too.
    assert able & {"sim", "pty"} or "i2c.trace" in wanted


def test_each_ability_is_asked_for_and_had():
    wanted = set().union(*(param.values[0] for param in suite()))
    assert wanted == ABILITIES.keys()
    assert set().union(*(rig.can for rig in RIGS.values())) == ABILITIES.keys()


def test_every_driver_of_i2c_meets_a_kernel():
    """By its model, where there is no chip of others."""
    i2c = {
        name
        for name in plugins.names("edged.drivers")
        if plugins.load("edged.drivers", name).INFO.bus == "i2c"
    }
    assert {subject.driver for subject in RIGS["x86"].subjects} == i2c


def test_the_example_of_a_bench_is_one():
    described = bench.load(EXAMPLE)
    real = bench.Bench("example", described)
    # The longest transfers and what is on the wire take more than a file; nobody pulls cables.
    beyond = {"i2c.limits", "i2c.trace", "serial.pull", "serial.flood"}
    assert real.can == ABILITIES.keys() - beyond
    for part in described.drivers:
        driver = plugins.load("edged.drivers", part.driver)
        msgspec.convert({"address": part.address, **part.options}, driver.Config)
        assert part.expect.keys() <= {channel.name for channel in driver.INFO.channels}
