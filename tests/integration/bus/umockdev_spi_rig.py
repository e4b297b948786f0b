"""Emulated ioctls of SPI as a rig of the conformance suite."""

import os
from contextlib import asynccontextmanager

from edged.bus.spi import KernelSpi
from tests.conformance.benches import Rig, SpiBench
from tests.conformance.sim import EVERY, complement
from tests.integration.bus.umockdev_spi_kernel import Kernel, server


class EmulatedBench(SpiBench):
    """A target that answers the complement of each byte."""

    exchanges = (complement(b"\x01\x80\x00"),)
    longest = complement(EVERY * 16)
    modes = tuple(range(4))

    def __init__(self):
        self.spi = KernelSpi("spi0.0")


class Emulated(Rig):
    name = "umockdev"
    is_kernel = False
    can = frozenset({"spi", "spi.long"})

    def __enter__(self):
        self._server = server()
        self._ask = self._server.__enter__()
        return self

    def __exit__(self, *error):
        self._server.__exit__(*error)

    @asynccontextmanager
    async def spi(self):
        os.environ["UMOCKDEV_DIR"] = self._ask("testbed")
        Kernel(self._ask, "0.0")
        bench = EmulatedBench()
        yield bench
        bench.spi.close()


RIGS = (Emulated(),)
