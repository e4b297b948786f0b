"""ST VL53L0X: distance by time of flight over I2C.

Source: ST VL53L0X datasheet, DocID029104; what its registers mean and in which
order they are set is ST's API (STSW-IMG005, user manual UM2039), as the
datasheet describes none. Each reading is one ranging of 33 ms with the API's
default profile. Its address is kept until power-off or XSHUT.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from edged.bus import I2c, I2cTransfers, Sleep
from edged.clock import Clock
from edged.drivers import Channel, Identity, Info, Sample
from edged.drivers._sample import silent
from edged.errors import DataError, NoDeviceError

INFO = Info(
    title="VL53L0X distance",
    compatible=("st,vl53l0x",),
    bus="i2c",
    addresses=(0x29,),
    identity=Identity(register=0xC0, values=(0xEEAA,), size=2),
    channels=(Channel("distance", "m", 0.0, 2.0),),
    datasheet="VL53L0X datasheet, DocID029104, revision 2",
)

# Names as in ST's vl53l0x_device.h.
SYSRANGE_START, SEQUENCE_CONFIG, INTERRUPT_CLEAR = 0x00, 0x01, 0x0B
INTERRUPT_STATUS, RESULT = 0x13, 0x14
SIGNAL_RATE_LIMIT, MSRC_CONFIG, GPIO_HV_MUX, PAD_HV = 0x44, 0x60, 0x84, 0x89
SPAD_ENABLES, MODEL_ID, PAGE = 0xB0, 0xC0, 0xFF
STOP_VARIABLE, SPAD_STROBE, SPAD_COUNT = 0x91, 0x83, 0x92

RESULT_LEN = 12
SPAD_MAP_LEN = 6
FIRST_APERTURE_SPAD = 12

RANGING, CALIBRATE_VHV, CALIBRATE_PHASE = 0xE8, 0x01, 0x02
"""Steps of a measurement, in SEQUENCE_CONFIG; it comes up with all of them, 0xFF."""

BUDGET_S = 0.034
"""Of one ranging with the timeouts that `TUNING` and `_READY` set."""

VALID = 11
_FAULTY = {1, 2, 3}
"""Device range statuses: 1 and 2 are the laser's watchdogs, 3 a missing calibration."""
_REASONS = {
    4: "too little light comes back",
    5: "too little light comes back",
    6: "the target is beyond its range",
    7: "the measurement is too uncertain",
    9: "the target is beyond its range",
}
NO_TARGET_MM = 8190
"""8190 and 8191 stand for no target (UM2039)."""

_POLLS, _POLL_S = 30, 0.005

# Register and value in turn.
_OPEN, _CLOSE = bytes.fromhex("8001 FF01 0000"), bytes.fromhex("0001 FF00 8000")
_SPAD_OPEN = bytes.fromhex("FF07 8101 8001 946B 8300")
_SPAD_CLOSE = bytes.fromhex("8100 FF06")
_REFERENCE = bytes.fromhex("FF01 4F00 4E2C FF00 B6B4")
TUNING = bytes.fromhex(
    "FF01 0000 FF00 0900 1000 1100 2401 25FF 7500 FF01 4E2C 4800 3020 FF00 3009 5400 3104 3203"
    "4083 4625 6000 2700 5006 5100 5296 5608 5730 6100 6200 6400 6500 66A0 FF01 2232 4714 49FF"
    "4A00 FF00 7A0A 7B00 7821 FF01 2334 4200 44FF 4526 4605 4040 0E06 201A 4340 FF00 3403 3544"
    "FF01 3104 4B09 4C05 4D04 FF00 4400 4520 4708 4828 6700 7004 7101 72FE 7600 7700 FF01 0D01"
    "FF00 8001 01F8 FF01 8E01 0001 FF00 8000"
)
"""The API's default tuning, vl53l0x_tuning.h; what else each register does is not published."""

_READY = bytes.fromhex("0A04 0B01 01E8 7102 7290")
"""Interrupt at a new sample; steps; what the steps left out leave of the time to the last one."""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one VL53L0X.

    Attributes:
        address: 0x29, or what another program gave it since it was powered.
    """

    address: Annotated[int, msgspec.Meta(description="7-bit address: 0x29")] = 0x29


def reference_spads(good: bytes, count: int, *, aperture: bool) -> bytes:
    """The detectors (SPADs) that measure the reference: the first good ones of their kind.

    Args:
        good: a bit for each of 48, the lowest bit of the first byte first.
        count: how many.
        aperture: those behind an aperture, which begin at the 13th.

    Source: API, `VL53L0X_set_reference_spads`.
    """
    bits = int.from_bytes(good, "little")
    chosen = 0
    for spad in range(FIRST_APERTURE_SPAD if aperture else 0, 8 * len(good)):
        if count and bits >> spad & 1:
            chosen |= 1 << spad
            count -= 1
    return chosen.to_bytes(len(good), "little")


def sample(result: bytes) -> Sample:
    """The distance in m.

    Shape:
        result: 12 bytes from RESULT: the status in bits 6 to 3 of the first, the
        distance in mm in the last two, higher byte first.

    Raises:
        ValueError: the chip says that it is faulty or not set up.

    Source: API, `VL53L0X_GetRangingMeasurementData` and `VL53L0X_get_pal_range_status`.
    """
    status = result[0] >> 3 & 0x0F
    distance_mm = int.from_bytes(result[10:12], "big")
    if status in _FAULTY:
        raise ValueError(f"its laser or its calibration failed (status {status})")
    if distance_mm >= NO_TARGET_MM:
        return Sample("distance", None, "error", "no target in range", result)
    if status != VALID:
        reason = _REASONS.get(status, f"no valid measurement (status {status})")
        return Sample("distance", None, "error", reason, result)
    return Sample("distance", distance_mm / 1000, raw=result)


class Vl53l0x:
    """A VL53L0X that was found; call from the event loop's thread."""

    def __init__(self, config: Config, bus: I2c, sleep: Sleep) -> None:
        self.identity = ""
        self._address, self._bus, self._sleep = config.address, bus, sleep
        self._who = f"VL53L0X at {config.address:#04x} on {bus.name}"
        self._stop_variable = 0

    async def read(self) -> tuple[Sample, ...]:
        """One ranging."""
        async with self._bus.hold() as bus:
            # It answers after a dip of its supply too, but without its tuning.
            if await self._get(bus, SEQUENCE_CONFIG) != RANGING:
                await self._identify(bus)
                raise DataError(f"{self._who}: it forgot its settings: its supply dipped")
            await self._put(bus, _OPEN + bytes([STOP_VARIABLE, self._stop_variable]) + _CLOSE)
            # A reading that was given up may have left its result.
            await self._put(bus, bytes([INTERRUPT_CLEAR, 0x01, SYSRANGE_START, 0x01]))
            await self._sleep(BUDGET_S)
            await self._wait(bus, INTERRUPT_STATUS, 0x07)
            result = await bus.transfer(self._address, bytes([RESULT]), RESULT_LEN)
        if result == b"\xff" * RESULT_LEN:
            raise NoDeviceError(silent(self._who))
        try:
            return (sample(result),)
        except ValueError as error:
            raise DataError(f"{self._who}: {error}: power it off and on (XSHUT)") from None

    async def start(self) -> None:
        """Identifies the chip and sets it up: data and static init, calibration (UM2039).

        Raises:
            NoDeviceError, BusError: it does not answer.
            DataError: another chip, or it does not become ready.
        """
        async with self._bus.hold() as bus:
            await self._identify(bus)
            # The pads' supply is 2.8 V on every module; then the API's "standard mode".
            await self._change(bus, PAD_HV, 0x01)
            await self._put(bus, b"\x88\x00" + _OPEN)
            self._stop_variable = await self._get(bus, STOP_VARIABLE)
            await self._put(bus, _CLOSE)
            # The limit checks of the signal before the last step are off, its own is 0.25 Mcps.
            await self._change(bus, MSRC_CONFIG, 0x12)
            await bus.transfer(self._address, bytes([SIGNAL_RATE_LIMIT, 0x00, 0x20]))
            await self._put(bus, bytes([SEQUENCE_CONFIG, 0xFF]))
            await self._choose_spads(bus)
            await self._put(bus, TUNING)
            await self._change(bus, GPIO_HV_MUX, clear=0x10)
            await self._put(bus, _READY)
            await self._calibrate(bus, CALIBRATE_VHV, 0x41)
            await self._calibrate(bus, CALIBRATE_PHASE, 0x01)
            await self._put(bus, bytes([SEQUENCE_CONFIG, RANGING]))

    async def _identify(self, bus: I2cTransfers) -> None:
        found = await bus.transfer(self._address, bytes([MODEL_ID]), 3)
        for byte, level in ((b"\xff", "ones"), (b"\x00", "zeros")):
            if found == byte * 3:
                raise NoDeviceError(silent(self._who, level))
        if found[:2] != b"\xee\xaa":
            raise DataError(
                f"{self._who} is not a VL53L0X: its id is {found.hex()}; TCS34725, TSL2561 and "
                "TSL2591 have that address too"
            )
        self.identity = f"VL53L0X, revision {found[2]:#04x}"

    async def _choose_spads(self, bus: I2cTransfers) -> None:
        """Reads which reference SPADs the factory chose, and enables those."""
        await self._put(bus, _OPEN + bytes([PAGE, 0x06]))
        await self._change(bus, SPAD_STROBE, 0x04)
        await self._put(bus, _SPAD_OPEN)
        await self._wait(bus, SPAD_STROBE, 0xFF)
        await self._put(bus, bytes([SPAD_STROBE, 0x01]))
        info = await self._get(bus, SPAD_COUNT)
        await self._put(bus, _SPAD_CLOSE)
        await self._change(bus, SPAD_STROBE, clear=0x04)
        await self._put(bus, bytes([PAGE, 0x01]) + _CLOSE)
        good = await bus.transfer(self._address, bytes([SPAD_ENABLES]), SPAD_MAP_LEN)
        chosen = reference_spads(good, info & 0x7F, aperture=bool(info & 0x80))
        await self._put(bus, _REFERENCE)
        await bus.transfer(self._address, bytes([SPAD_ENABLES]) + chosen)

    async def _calibrate(self, bus: I2cTransfers, step: int, start: int) -> None:
        """API, `VL53L0X_perform_single_ref_calibration`."""
        await self._put(bus, bytes([SEQUENCE_CONFIG, step, SYSRANGE_START, start]))
        await self._wait(bus, INTERRUPT_STATUS, 0x07)
        await self._put(bus, bytes([INTERRUPT_CLEAR, 0x01, SYSRANGE_START, 0x00]))

    async def _wait(self, bus: I2cTransfers, register: int, bits: int) -> None:
        """Until one of the bits is set."""
        for _ in range(_POLLS):
            if await self._get(bus, register) & bits:
                return
            await self._sleep(_POLL_S)
        raise DataError(f"{self._who}: it does not become ready: power it off and on (XSHUT)")

    async def _change(
        self, bus: I2cTransfers, register: int, bits: int = 0, clear: int = 0
    ) -> None:
        """Sets and clears bits of a register."""
        value = await self._get(bus, register)
        await self._put(bus, bytes([register, (value | bits) & ~clear]))

    async def _get(self, bus: I2cTransfers, register: int) -> int:
        return (await bus.transfer(self._address, bytes([register]), 1))[0]

    async def _put(self, bus: I2cTransfers, pairs: bytes) -> None:
        """Registers and their values in turn, one write each."""
        for start in range(0, len(pairs), 2):
            await bus.transfer(self._address, pairs[start : start + 2])


async def probe(config: Config, bus: I2c, sleep: Sleep) -> Vl53l0x:
    """Finds the chip and sets it up; see `Driver.probe`."""
    device = Vl53l0x(config, bus, sleep)
    await device.start()
    return device


_NVM_STOP_VARIABLE, _NVM_SPADS = 0x3C, 0x85


class Sim:
    """Register model of a VL53L0X before a target: set `distance_m`, None for no target.

    A chip that is not calibrated, or gets a wrong stop variable, says so in its status.

    Args:
        clock: what its times follow.
        distance_m: to the target.
    """

    def __init__(self, clock: Clock, *, distance_m: float | None = 0.5) -> None:
        self.distance_m = distance_m
        self.hangs = False
        """While set, nothing that it starts ever ends."""
        self.ranging_s = BUDGET_S
        """What a ranging takes: the clock of a chip may be slow."""
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Comes up anew, as after a brown-out or by XSHUT."""
        self._page, self._pointer = 0, 0
        self._memory = {(0, SEQUENCE_CONFIG): 0xFF, (0, GPIO_HV_MUX): 0x11}
        self._memory |= {(0, MODEL_ID + i): byte for i, byte in enumerate(b"\xee\xaa\x10")}
        self._memory |= {(0, SPAD_ENABLES + i): 0xEF for i in range(SPAD_MAP_LEN)}
        self._memory |= {(1, STOP_VARIABLE): _NVM_STOP_VARIABLE, (7, SPAD_COUNT): _NVM_SPADS}
        self._calibrated: set[int] = set()
        self._ends: dict[tuple[int, int], float] = {}

    def write(self, data: bytes) -> None:
        """A register, and values for it and those after it."""
        self._settle()
        self._pointer = data[0]
        for value in data[1:]:
            self._set(self._pointer, value)
            self._pointer += 1

    def read(self, length: int) -> bytes:
        """Registers from the one addressed last."""
        self._settle()
        return bytes(self._memory.get((self._page, self._pointer + i), 0) for i in range(length))

    def _set(self, register: int, value: int) -> None:
        if register == PAGE:
            self._page = value
            return
        self._memory[self._page, register] = value
        place = self._page, register
        if place == (7, SPAD_STROBE) and value == 0:
            self._ends[place] = self._clock.monotonic() + 0.001
        elif place == (0, INTERRUPT_CLEAR):
            self._memory[0, INTERRUPT_STATUS] = 0
        elif place == (0, SYSRANGE_START) and value & 1:
            self._ends[place] = self._clock.monotonic() + self.ranging_s

    def _settle(self) -> None:
        """Ends what should be over."""
        now = self._clock.monotonic()
        for place in [place for place, end in self._ends.items() if end <= now]:
            if self.hangs:
                continue
            del self._ends[place]
            if place == (7, SPAD_STROBE):
                self._memory[place] = 0x10
            else:
                self._measure()

    def _measure(self) -> None:
        self._memory[0, INTERRUPT_STATUS] = 0x04
        step = self._memory[0, SEQUENCE_CONFIG]
        if step in {CALIBRATE_VHV, CALIBRATE_PHASE}:
            self._calibrated.add(step)
            return
        ready = self._calibrated == {CALIBRATE_VHV, CALIBRATE_PHASE}
        ready &= self._memory[1, STOP_VARIABLE] == _NVM_STOP_VARIABLE
        distance_mm = NO_TARGET_MM if self.distance_m is None else round(self.distance_m * 1000)
        status = 3 if not ready else 6 if distance_mm >= NO_TARGET_MM else VALID
        result = bytes([status << 3 | 4, *bytes(9), *distance_mm.to_bytes(2, "big")])
        self._memory |= {(0, RESULT + i): byte for i, byte in enumerate(result)}
