"""What is on the board: buses, addresses that answer, and the chips that tell who they are.

Only asks what is harmless: an address by its acknowledgement, and identity registers
of drivers that say so, where reading one changes nothing. Every scan has a budget of time.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import cast

import msgspec

from edged import plugins
from edged.bus import Buses, I2c, I2cTransfers, PortInfo
from edged.clock import Clock
from edged.drivers import Driver, Identity, Info
from edged.errors import BusError, EdgedError, NoDeviceError

FIRST, LAST = 0x08, 0x77
"""Addresses outside are reserved (UM10204, section 3.1.12)."""

FEW = 16
"""Addresses of a chip; where one with more of them may be says little."""

BUDGET_S = 15.0
"""Of one bus; an adapter that waits a second for each address gets through what it can."""

Holder = Callable[[str], str]
"""Which configured device has a place such as `i2c-1/0x76`; empty when none has."""


def nobody(_place: str) -> str:
    """The holder of all places where no daemon runs."""
    return ""


class Found(msgspec.Struct, frozen=True):
    """An address that answers.

    Attributes:
        address: 7-bit.
        owner: the kernel's driver that owns it; empty when none does.
        holder: the configured device that is there, `the sensor room`; empty when none is.
        drivers: those of edged that may be for it; one when the chip told who it is.
        title: what that chip is, for people.
        certain: whether the chip told who it is.
        note: what else there is to say.
    """

    address: int
    owner: str = ""
    holder: str = ""
    drivers: tuple[str, ...] = ()
    title: str = ""
    certain: bool = False
    note: str = ""

    @property
    def used_by(self) -> str:
        """Who has it, so that nobody else need look; empty when nobody does."""
        return f"the kernel's driver {self.owner}" if self.owner else self.holder


class BusScan(msgspec.Struct, frozen=True):
    """One I2C bus.

    Attributes:
        name: `i2c-1`.
        found: addresses that answer.
        problem: why not all could be asked; empty when all were.
        asked: how many addresses were.
    """

    name: str
    found: tuple[Found, ...]
    problem: str = ""
    asked: int = 0


class Scan(msgspec.Struct, frozen=True):
    """The whole board.

    Attributes:
        i2c: each bus.
        spi: targets, by name.
        serial: ports.
        w1: ids of 1-wire devices.
        problems: of buses that could not be looked at, by kind.
        simulated: nothing of it is wired: the daemon runs with `--sim`.
    """

    i2c: tuple[BusScan, ...] = ()
    spi: tuple[str, ...] = ()
    serial: tuple[PortInfo, ...] = ()
    w1: tuple[str, ...] = ()
    problems: dict[str, str] = {}
    simulated: bool = False


@lru_cache(maxsize=1)
def i2c_infos() -> Mapping[str, Info]:
    """Facts of all I2C drivers by their name; imports them all, once."""
    found = {}
    for name in plugins.names("edged.drivers"):
        info = cast("Driver", plugins.load("edged.drivers", name)).INFO
        if info.bus == "i2c":
            found[name] = info
    return found


async def scan_board(
    buses: Buses,
    clock: Clock,
    *,
    only: str = "",
    budget_s: float = BUDGET_S,
    holder: Holder = nobody,
) -> Scan:
    """Look at all buses, or at one I2C bus.

    Args:
        buses: of the board.
        clock: for the budget.
        only: `i2c-1`; empty is everything.
        budget_s: of each I2C bus.
        holder: who has which address.

    Raises:
        NoDeviceError: `only` is not there.
    """
    if only:
        return Scan(i2c=(await scan_i2c(buses.i2c(only), clock, budget_s, holder),))
    # Each bus waits on a thread of its own: all take no longer than the slowest.
    i2c = await asyncio.gather(
        *(_scanned(buses, name, clock, budget_s, holder) for name in buses.names("i2c"))
    )
    problems: dict[str, str] = {}
    ports: Sequence[PortInfo] = ()
    ids: Sequence[str] = ()
    try:
        ports = await buses.serial.list()
    except EdgedError as error:
        problems["serial"] = str(error)
    try:
        ids = await buses.w1.devices()
    except EdgedError as error:
        problems["w1"] = str(error)
    return Scan(tuple(i2c), tuple(buses.names("spi")), tuple(ports), tuple(ids), problems)


async def _scanned(
    buses: Buses, name: str, clock: Clock, budget_s: float, holder: Holder
) -> BusScan:
    try:
        return await scan_i2c(buses.i2c(name), clock, budget_s, holder)
    except EdgedError as error:
        return BusScan(name, (), problem=str(error))


async def scan_i2c(
    bus: I2c, clock: Clock, budget_s: float = BUDGET_S, holder: Holder = nobody
) -> BusScan:
    """Ask all addresses of one bus, and the chips that answer who they are.

    Whether it is stuck, or its adapter says of each absent address that it timed out,
    shows when one answers: until then it goes on.
    """
    began = clock.monotonic()
    found: list[Found] = []
    asked = 0
    problem = stuck = ""
    moves = False
    for address in _in_order():
        if clock.monotonic() - began > budget_s:
            problem = (
                f"gave up after {budget_s:g} s and {asked} addresses, the usual ones first: this "
                "adapter waits long for those that nobody has; ask for others one by one: "
                f"edged call i2c bus={bus.name} address=0x60"
            )
            break
        try:
            there = await bus.detect(address)
        except BusError as error:
            if error.errno != errno.ETIMEDOUT or moves:
                return BusScan(bus.name, _sorted(found), str(error), asked)
            there, stuck = False, stuck or str(error)
        asked += 1
        if there:
            who = holder(f"{bus.name}/{address:#04x}")
            # What a sensor holds is not touched beside it.
            one = Found(address, holder=who) if who else await identify(bus, address)
            # What the kernel owns was not asked.
            moves = moves or not one.owner
            found.append(one)
    if stuck and not moves:
        problem = stuck
    if len(found) > LAST - FIRST - 8:
        found = []
        problem = "every address answers: SDA is held low or not connected; check the wiring"
    return BusScan(bus.name, _sorted(found), problem, asked)


def _in_order() -> list[int]:
    """All addresses: where a chip that edged knows usually is, then where one can be."""
    chips = [info.addresses for info in i2c_infos().values() if len(info.addresses) <= FEW]
    usual = {addresses[0] for addresses in chips}
    possible = set().union(*chips)
    return sorted(range(FIRST, LAST + 1), key=lambda a: (a not in usual, a not in possible, a))


def _sorted(found: Sequence[Found]) -> tuple[Found, ...]:
    return tuple(sorted(found, key=lambda one: one.address))


async def identify(bus: I2c, address: int) -> Found:
    """Which chip answers at an address, as far as that can be asked without harm."""
    owner = bus.owner(address)
    if owner:
        return Found(address, owner)
    infos = {name: info for name, info in i2c_infos().items() if address in info.addresses}
    infos = {name: info for name, info in infos.items() if len(info.addresses) < LAST - FIRST}
    values: list[int | None] = []
    certain: list[str] = []
    told = {name: info.identity for name, info in infos.items() if info.identity is not None}
    async with bus.hold() as held:
        for name, identity in told.items():
            value = await _ask(held, address, identity)
            values.append(value)
            masked = None if value is None else value & (identity.mask or value)
            if masked in identity.values:
                certain.append(name)
    if certain:
        title = infos[certain[0]].title
        return Found(address, drivers=tuple(certain), title=title, certain=True)
    # Whose chips have few addresses first: a PCA9685 may be at more than half of all.
    by_rarity = sorted(infos, key=lambda name: len(infos[name].addresses))
    others = tuple(name for name in by_rarity if name not in told or not told[name].decisive)
    note = ""
    ones = all(v == (1 << 8 * told[name].size) - 1 for name, v in zip(told, values, strict=True))
    # Zeros may be a register of a chip that has no identity.
    if told and (ones or (not others and not any(values))):
        note = "reads give all ones or all zeros: check its wiring and supply"
    return Found(address, drivers=others, note=note)


async def _ask(held: I2cTransfers, address: int, identity: Identity) -> int | None:
    """What an identity register holds; None when the chip does not let it be read."""
    register = identity.register
    command = bytes([register]) if isinstance(register, int) else register
    try:
        data = await held.transfer(address, command, identity.size)
    except (BusError, NoDeviceError):
        return None
    return int.from_bytes(data, "big")


def yaml_lines(scan: Scan) -> list[str]:
    """The lines of `board:` to paste, for what was recognised; what else may be, commented out."""
    names = _Names()
    lines: list[str] = []
    for bus in scan.i2c:
        for one in bus.found:
            facts = f"bus: {bus.name}, address: {one.address:#04x}, every: 10s"
            if one.certain:
                lines += _entry(names.next(one.drivers[0]), one.drivers[0], facts)
    lines += [
        f"    {names.next('ds18b20')}: {{driver: ds18b20, address: {device}, every: 30s}}"
        for device in scan.w1
        if device.startswith(("28-", "10-", "22-"))
    ]
    for bus in scan.i2c:
        for one in bus.found:
            lines += [] if one.certain else _guesses(names, bus, one)
    return ["board:", "  sensors:", *lines] if lines else []


class _Names:
    """Names for devices that are called after their drivers."""

    def __init__(self) -> None:
        self._count: dict[str, int] = {}

    def next(self, driver: str) -> str:
        count = self._count[driver] = self._count.get(driver, 0) + 1
        return driver if count == 1 else f"{driver}_{count}"


def _guesses(names: _Names, bus: BusScan, one: Found) -> list[str]:
    """Sensors that have no identity; what acts is not set up on a guess."""
    facts = f"bus: {bus.name}, address: {one.address:#04x}, every: 10s"
    lines = [
        line
        for driver in one.drivers
        if not i2c_infos()[driver].commands
        for line in _entry(names.next(driver), driver, facts)
    ]
    if not lines:
        return []
    # Without a blank, for without the # a line has to be indented as the others are.
    return [
        f"    # {bus.name}/{one.address:#04x} does not say what it is: remove the # if it is this",
        *(line.replace("    ", "    #", 1) for line in lines),
    ]


def _entry(name: str, driver: str, facts: str) -> list[str]:
    """One device; settings that its driver cannot know stand there to be checked."""
    module = plugins.load("edged.drivers", driver)
    fields = msgspec.structs.fields(module.Config)
    missing = [f.name for f in fields if f.required and f.name != "address"]
    if not missing:
        return [f"    {name}: {{driver: {driver}, {facts}}}"]
    usual = getattr(module, "SIM_CONFIG", {})
    options = ", ".join(f"{one}: {usual.get(one)}" for one in missing)
    return [
        f"    {name}:",
        f"      {{driver: {driver}, {facts},",
        f"       options: {{{options}}}}}  # check {', '.join(missing)}",
    ]
