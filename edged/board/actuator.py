"""One configured device that acts: told what to do, and brought to its safe state.

Commands of one device run one after the other; one that interrupts ends all that run or
wait. Loop thread only.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec

from edged import log
from edged.board.claims import Claims
from edged.board.deadline import Deadline
from edged.board.device import Slot
from edged.board.sensor import Publish
from edged.drivers import Actuator as Acting
from edged.drivers import Command, Sample
from edged.errors import (
    BusError,
    BusyError,
    ConfigError,
    EdgedError,
    Fault,
    InvalidArgumentsError,
    NoDeviceError,
)
from edged.yamlio import faults


class ActuatorInfo(msgspec.Struct, frozen=True):
    """What is known of a configured actuator.

    Attributes:
        name: configured name.
        driver: name of its driver.
        bus: where it is; empty where there is none to name.
        commands: what it can be told: name, description and the schema of its arguments.
        identity: what the chip said it is; empty before it was found.
        error: why it cannot be used; empty when it can.
    """

    name: str
    driver: str
    bus: str
    commands: tuple[dict[str, Any], ...]
    identity: str
    error: str


class Actuator:
    """A device that acts: an entry of `board.actuators`, or a sensor with commands.

    Args:
        slot: its place.
        holder: how others are told who holds it.
        deadline_s: it goes to its safe state this long after it was told anything; 0 is never.

    Raises:
        ConfigError: its driver only measures.
    """

    def __init__(
        self, slot: Slot, holder: str, deadline_s: float, claims: Claims, publish: Publish
    ) -> None:
        self.name, self.slot, self.holder = slot.name, slot, holder
        info = slot.driver.INFO
        if not info.commands:
            reason = f"{slot.config.driver} only measures: put it under sensors"
            raise ConfigError(reason, key=f"board.actuators.{slot.name}.driver")
        self.commands = {command.name: command for command in info.commands}
        self._claims, self._publish = claims, publish
        self._deadline = Deadline(
            f"actuator {self.name}",
            deadline_s,
            self.safe,
            lambda: publish("actuator.deadline", {"actuator": self.name}),
        )
        self._doing: set[asyncio.Task[str]] = set()
        self._error = ""
        self._identity = ""

    @property
    def place(self) -> str:
        """What it claims."""
        return self.slot.place

    def info(self) -> ActuatorInfo:
        """What is known of it."""
        return ActuatorInfo(
            name=self.name,
            driver=self.slot.config.driver,
            bus=self.slot.bus,
            commands=tuple(_described(command) for command in self.commands.values()),
            identity=self._identity,
            error=self._error,
        )

    async def start(self) -> None:
        """Find it and bring it to its safe state; what cannot be had is tried again when used."""
        try:
            await self.safe()
        except EdgedError as error:
            log.warning(f"actuator {self.name}: {error}")

    async def act(self, command: str, arguments: dict[str, Any]) -> str:
        """Do what it is told; one line for people.

        Raises:
            InvalidArgumentsError: no such command, or arguments that it does not take.
            BusyError: its place is claimed, or it was ended by another command.
            NoDeviceError, BusError, DataError: it could not be told.
        """
        known = self.commands.get(command)
        if known is None:
            reason = f"{self.name} has no {command!r}: it knows {', '.join(self.commands)}"
            raise InvalidArgumentsError([Fault("command", reason)])
        try:
            params = msgspec.convert(arguments, known.params, str_keys=True)
        except msgspec.ValidationError:
            found = faults(arguments, known.params)
            raise InvalidArgumentsError(
                [Fault(fault.path or command, fault.reason) for fault in found]
            ) from None
        self._claims.check(self.place, self.holder)
        if known.interrupts:
            self._interrupt()
        said = await _finished(self._begun(known, params), f"{self.name} {command}")
        self._publish("actuator.acted", {"actuator": self.name, "command": command})
        return said

    async def read(self) -> tuple[Sample, ...]:
        """What it was told last, as its driver knows it."""
        async with self.slot.lock:
            return await (await self._found()).read()

    async def safe(self) -> None:
        """Bring it to its safe state; commands that run or wait are ended."""
        self._interrupt()
        async with self.slot.lock:
            device = await self._found()
            try:
                await device.safe()
            except EdgedError as error:
                await self._lose(error)
                raise

    async def stop(self) -> None:
        """To its safe state, and give back what is held."""
        await self._deadline.stop()
        try:
            if self.slot.device is not None:
                await self.safe()
        finally:
            await self.slot.lose()

    def _begun(self, command: Command, params: Any) -> asyncio.Task[str]:
        doing = asyncio.create_task(self._do(command.name, params))
        if not command.interrupts:
            # One that does is short, and not ended: repeated, it would never come to its end.
            self._doing.add(doing)
            doing.add_done_callback(self._doing.discard)
        return doing

    async def _do(self, command: str, params: Any) -> str:
        async with self.slot.lock:
            with self._deadline.holding():
                device = await self._found()
                try:
                    return await device.act(command, params)
                except (NoDeviceError, BusError) as error:
                    await self._lose(error)
                    raise

    def _interrupt(self) -> None:
        for doing in self._doing:
            _end(doing)

    async def _found(self) -> Acting:
        fresh = self.slot.device is None
        try:
            device = cast("Acting", await self.slot.find())
            if fresh:
                # It may come back from a brown-out in any state.
                await device.safe()
        except EdgedError as error:
            await self._lose(error)
            raise
        self._identity, self._error = device.identity, ""
        return device

    async def _lose(self, error: EdgedError) -> None:
        """Set it up anew at the next command."""
        self._error = str(error)
        await self.slot.lose()


async def _finished(doing: asyncio.Task[str], what: str) -> str:
    """What a command says at its end.

    Raises:
        BusyError: another one ended it.
    """
    try:
        await asyncio.wait([doing])
        if doing.cancelled():
            raise BusyError(f"{what} was ended by another command, or to be safe")
        return doing.result()
    except asyncio.CancelledError:
        _end(doing)
        await asyncio.wait([doing])
        raise
    finally:
        # Its error's traceback has this frame: both would keep each other.
        del doing


def _end(doing: asyncio.Task[str]) -> None:
    """Cancel it once: a second time would cut short what it does to end well."""
    if not doing.cancelling():
        doing.cancel()


def _described(command: Command) -> dict[str, Any]:
    schema = msgspec.json.schema(command.params)
    # One Struct is the root; its own definition is what people want to see.
    definitions = schema.pop("$defs", {})
    name = schema.pop("$ref", "").rpartition("/")[2]
    return {
        "name": command.name,
        "description": command.description,
        "arguments": definitions.get(name, schema),
    }
