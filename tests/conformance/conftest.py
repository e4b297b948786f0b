"""Runs the suite on the rigs that are named, with what each of them can do.

EDGED_RIGS names modules, each with a tuple RIGS; by default those that any machine has.
"""

from __future__ import annotations

import importlib
import os
import threading

import pytest

from tests.conformance.benches import Rig

MODULES = os.environ.get("EDGED_RIGS", "tests.conformance.sim tests.conformance.pty").split()
RIGS = [rig for module in MODULES for rig in importlib.import_module(module).RIGS]


def pytest_generate_tests(metafunc):
    if "subject" in metafunc.fixturenames:
        pairs = [(rig, subject) for rig in RIGS for subject in rig.subjects or [None]]
        names = [f"{rig.name}-{subject and subject.driver}" for rig, subject in pairs]
        metafunc.parametrize(("rig", "subject"), pairs, ids=names, indirect=["rig"])
    else:
        metafunc.parametrize("rig", RIGS, ids=[rig.name for rig in RIGS], indirect=True)


def pytest_collection_modifyitems(config, items):
    """Leaves out what a rig cannot do: that is no test of it."""
    left_out = [item for item in items if not _is_possible(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _is_possible(item) -> bool:
    callspec = getattr(item, "callspec", None)
    rig = callspec and callspec.params.get("rig")
    if not isinstance(rig, Rig):
        return True
    return {name for mark in item.iter_markers("needs") for name in mark.args} <= rig.can


@pytest.fixture(scope="session")
def rig(request):
    with request.param as set_up:
        yield set_up


@pytest.fixture(autouse=True)
def _nothing_is_left():
    """No test leaves a thread of a bus behind; those of the loop end with it."""
    before = set(threading.enumerate())
    yield
    left = [thread.name for thread in threading.enumerate() if thread not in before]
    assert not [name for name in left if not name.startswith("asyncio_")]


@pytest.fixture
async def i2c_bench(rig):
    async with rig.i2c() as bench:
        yield bench


@pytest.fixture
async def spi_bench(rig):
    async with rig.spi() as bench:
        yield bench


@pytest.fixture
async def serial_bench(rig):
    async with rig.serial() as bench:
        yield bench


@pytest.fixture
async def gpio_bench(rig):
    async with rig.gpio() as bench:
        yield bench


@pytest.fixture
async def plugged(rig, subject):
    async with rig.plug(subject) as device:
        yield device
