"""`onewire`: the devices on the board's 1-wire buses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from edged import results
from edged.board import Board
from edged.bus import OneWire
from edged.clock import Clock
from edged.drivers import ds18b20
from edged.errors import Fault, InvalidArgumentsError
from edged.results import Result
from edged.tool import READS, Context, tool
from edged.tools._forms import INPUTS_MAX
from edged.units import Reading, row
from edged.units import text as reading_text

KINDS = {
    "00": "no device: a phantom of a line without its pull-up of 4.7 kΩ",
    "01": "DS2401 serial number",
    "05": "DS2405 switch",
    "12": "DS2406 two switches",
    "1d": "DS2423 counter",
    "20": "DS2450 analogue inputs",
    "26": "DS2438 battery monitor",
    "29": "DS2408 eight switches",
    "2d": "DS2431 memory",
    "3a": "DS2413 two switches",
    "3b": "DS1825 or MAX31850 thermometer",
    "42": "DS28EA00 thermometer",
    **{family: f"{chip} thermometer" for family, chip in ds18b20.FAMILIES.items()},
}
"""By family, the first two digits of an id (Maxim, application note 155)."""


class Onewire(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Inputs of `onewire`."""

    action: Annotated[
        Literal["list", "read"] | None,
        Meta(description="list the devices, or read one; read when a device is named."),
    ] = None
    device: Annotated[
        str | None,
        Meta(description="An id such as 28-0316a2795bff; not needed where there is but one."),
    ] = None
    attribute: Annotated[
        str | None,
        Meta(
            description="A file of the kernel's driver, read as text, such as ext_power; "
            "without it a thermometer's temperature is measured (0.75 s)."
        ),
    ] = None


@tool(
    "onewire",
    label="1-wire devices",
    category="hardware",
    arguments_max=INPUTS_MAX,
    hints=READS,
    aliases={"id": "device", "name": "device", "address": "device"},
)
async def onewire(params: Onewire, ctx: Context) -> Result:
    """List the devices on the 1-wire bus, or read one: a thermometer's temperature, or a file."""
    board: Board = ctx.services.board
    w1 = board.buses.w1
    action = params.action
    if action is None:
        action = "read" if params.device or params.attribute else "list"
    if action == "list":
        unused = [name for name in ("device", "attribute") if getattr(params, name) is not None]
        if unused:
            faults = [Fault(name, "belongs to action read") for name in unused]
            raise InvalidArgumentsError(faults, "onewire")
        return _listing(await w1.devices())
    device = params.device or _only(await w1.devices())
    if params.attribute is not None:
        return await _read_file(w1, device, params.attribute)
    if device[:2] not in ds18b20.FAMILIES:
        reason = f"is required: {device} is {_kind(device)}, no thermometer that edged measures"
        raise InvalidArgumentsError([Fault("attribute", reason)], "onewire")
    return await _measure(w1, device, ctx.services.clock)


def _kind(device: str) -> str:
    return KINDS.get(device[:2], f"of family {device[:2]}")


def _listing(devices: Sequence[str]) -> Result:
    if not devices:
        text = (
            "No 1-wire devices: check their power, the data line and its pull-up of 4.7 kΩ, and "
            "dtoverlay=w1-gpio in /boot/firmware/config.txt."
        )
        return results.text(text, structured={"devices": []})
    rows = [{"device": d, "family": d[:2], "kind": _kind(d)} for d in devices]
    lines = [f"{one['device']}: {one['kind']}" for one in rows]
    return results.text("\n".join(lines), structured={"devices": rows})


def _only(devices: Sequence[str]) -> str:
    if len(devices) != 1:
        there = ", ".join(devices) or "there is none"
        raise InvalidArgumentsError([Fault("device", f"is required: {there}")], "onewire")
    return devices[0]


async def _read_file(w1: OneWire, device: str, attribute: str) -> Result:
    text = await w1.read(device, attribute)
    return results.text(
        f"{device} {attribute}: {text}",
        structured={"device": device, "attribute": attribute, "text": text},
    )


async def _measure(w1: OneWire, device: str, clock: Clock) -> Result:
    chip = ds18b20.Ds18b20(w1, device)
    (sample,) = await chip.read()
    (channel,) = ds18b20.INFO.channels
    reading = Reading(
        sensor=device,
        channel=sample.channel,
        value=sample.value,
        unit=channel.unit,
        time=clock.now(),
        monotonic=clock.monotonic(),
        identity=chip.identity,
        quality=sample.quality,
        note=sample.note,
    )
    return results.text(
        f"{device}: {reading_text(reading)}",
        structured={"device": device, "readings": [row(reading, reading.monotonic)]},
    )


TOOLS = (onewire,)
