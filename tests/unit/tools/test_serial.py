"""`serial` on simulated ports (issue 3, part 2)."""

import asyncio

import msgspec
import pytest

from edged.board import Board
from edged.bus import PortInfo
from edged.bus.settings import BoardConfig, SensorConfig
from edged.bus.sim import SimBuses, SimSerial
from edged.errors import NoDeviceError
from edged.identity import Caller
from edged.tools import serial
from edged.tools.serial import IDLE_S, OPEN_MAX, SerialSessions

BOB = Caller("bob@example.org", "agent", "", "unix", "uid 1001")
SOON = 0.05


class Peer:
    """The other end: remembers, answers by a table, and says how often it was opened."""

    def __init__(self, answers=()):
        self.answers = dict(answers)
        self.taken, self.opened, self.greeting = b"", 0, b""
        self.send = None

    def attach(self, send):
        self.send = send
        self.opened += 1
        send(self.greeting)

    def receive(self, data):
        self.taken += data
        if data in self.answers:
            self.send(self.answers[data])

    def detach(self):
        self.send = None


class Idle:
    """How sessions wait: until the test says that the time is over."""

    def __init__(self, clock):
        self.clock, self.waiting = clock, []

    async def sleep(self, seconds):
        over = asyncio.Event()
        self.waiting.append((seconds, over))
        await over.wait()

    async def pass_time(self, seconds):
        self.clock.advance(seconds)
        for _, over in self.waiting:
            over.set()
        self.waiting.clear()
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.fixture
def peer():
    return Peer({b"AT\r": b"OK\r\n"})


@pytest.fixture
def ports(peer):
    return SimSerial({"ttyUSB0": peer})


@pytest.fixture
def idle(core):
    return Idle(core.clock)


@pytest.fixture
async def bench(core, ports, idle):
    """A board with the ports, where nothing is allowed beforehand; changes the owner's `allow`."""
    core.add(*serial.TOOLS)
    sessions = SerialSessions(core.clock, sleep=idle.sleep)

    def bench(*allow):
        board = Board(BoardConfig(allow=list(allow)), SimBuses(serial=ports), core.clock)
        core.dispatcher.services = msgspec.structs.replace(
            core.dispatcher.services, board=board, serial=sessions
        )
        return board

    bench()
    bench.sessions = sessions
    yield bench
    await sessions.close()
    assert ports._open == {}


async def use(core, caller=None, **arguments):
    return await core.call("serial", msgspec.json.encode(arguments), caller or core.agent)


# One call ---------------------------------------------------------------------------------------


async def test_the_specifications_example_is_accepted_and_asks_for_a_confirmation(
    core, bench, peer
):
    """Tools API, "Serial Expected Arguments"; contract, section 8."""
    example = {"port": "/dev/ttyUSB0", "baud": 9600, "data": "hello"}
    denied = await use(core, **example)
    assert denied.is_error
    assert "a write to ttyUSB0 needs confirm: true, or allow: [ttyUSB0]" in denied.for_llm
    assert peer.opened == 0
    done = await use(core, **example, confirm=True)
    assert done.for_llm == "ttyUSB0: wrote 5 bytes"
    assert done.structured == {"port": "ttyUSB0", "written": 5, "hex": "68656c6c6f"}
    bench("ttyUSB0")
    await use(core, **example)
    assert peer.taken == b"hellohello"


@pytest.mark.parametrize(
    ("data", "sent"),
    [
        ([1, 2, 255], b"\x01\x02\xff"),
        ("hé\r\n", b"h\xc3\xa9\r\n"),
        ("0x01ff", b"\x01\xff"),
        ({"hex": "01 ff"}, b"\x01\xff"),
        ({"text": "0x01ff"}, b"0x01ff"),
    ],
)
@pytest.mark.parametrize("action", [{}, {"action": "write"}])
async def test_a_write_takes_bytes_in_any_form(core, bench, peer, data, sent, action):
    """`data` as list of bytes, text, or hex."""
    await use(core, port="ttyUSB0", data=data, confirm=True, **action)
    assert peer.taken == sent


async def test_a_read_says_what_was_asked_for_and_what_came(core, bench, peer):
    """Facts, fault 12: short data looked like success."""
    peer.greeting = b"hello world"
    result = await use(core, port="ttyUSB0", length=5)
    assert result.for_llm == 'ttyUSB0: 5 bytes: "hello"'
    assert result.structured == {
        "port": "ttyUSB0",
        "requested": 5,
        "received": 5,
        "timed_out": False,
        "text": "hello",
        "hex": "68656c6c6f",
        "decoded": True,
    }


async def test_a_short_read_is_flagged_as_one(core, bench, peer):
    """Facts, fault 12."""
    peer.greeting = b"hel"
    result = await use(core, port="ttyUSB0", length=5, timeout=SOON)
    assert not result.is_error
    assert result.for_llm == 'ttyUSB0: 3 of 5 bytes, then 0.05 s were over: "hel"'
    assert result.structured["timed_out"] is True
    assert (result.structured["requested"], result.structured["received"]) == (5, 3)


async def test_silence_says_what_may_be_wrong(core, bench):
    """A newcomer's first read."""
    result = await use(core, port="ttyUSB0", baud=115200, parity="E", timeout=SOON)
    assert result.for_llm == (
        "ttyUSB0: nothing came in 0.05 s at 115200 8E1: check the speed, RX and TX swapped, "
        "and the ground"
    )
    assert result.structured["received"] == 0
    assert result.structured["timed_out"] is True


async def test_a_read_without_a_length_takes_what_comes(core, bench, peer):
    """`serial` without `action` and `data` is a read (contract, section 8)."""
    peer.greeting = b"x"
    result = await use(core, port="ttyUSB0", timeout=SOON)
    assert result.for_llm == 'ttyUSB0: 1 byte: "x"'
    assert result.structured["requested"] is None


@pytest.mark.parametrize(
    ("until", "text"),
    [
        ({}, "a\r\n"),
        ({"until": "\r"}, "a\r"),
        ({"end": "0x0d"}, "a\r"),
        ({"delimiter": [97]}, "a"),
    ],
)
async def test_read_until_ends_with_its_end(core, bench, peer, until, text):
    """A line end unless another is given, in any form."""
    peer.greeting = b"a\r\nb"
    result = await use(core, action="read_until", port="ttyUSB0", **until)
    assert (result.structured["text"], result.structured["found"]) == (text, True)
    assert result.structured["timed_out"] is False


@pytest.mark.parametrize(
    ("length", "said", "timed_out"),
    [
        (None, "4 bytes without the end, then 0.05 s were over", True),
        (3, "3 bytes without the end, then the length was reached", False),
    ],
)
async def test_read_until_without_an_end_is_flagged(core, bench, peer, length, said, timed_out):
    """Fault 12; an `until` alone is a read_until."""
    peer.greeting = b"abcd"
    result = await use(core, port="ttyUSB0", until="\n", length=length, timeout=SOON)
    assert said in result.for_llm
    assert result.structured["found"] is False
    assert result.structured["timed_out"] is timed_out


async def test_bytes_that_are_no_text_come_as_hex_with_a_flag(core, bench, peer):
    """Facts, fault 8: a wrong speed or a first partial line must not end the reader."""
    peer.greeting = b"\xff\xfe42"
    result = await use(core, port="ttyUSB0", length=4)
    assert (
        result.for_llm == "ttyUSB0: 4 bytes: ff fe 34 32; not UTF-8: binary data, or another speed"
    )
    assert result.structured["decoded"] is False
    assert result.structured["text"] == "��42"
    assert result.structured["hex"] == "fffe3432"


async def test_errors_of_the_line_are_told_with_the_bytes(core, bench, peer, monkeypatch):
    """Facts, fault 8: framing errors are the honest sign of a wrong speed."""
    errors = {"framing": 7, "parity": 0, "overrun": 0, "break": 1}

    async def counted(_):
        return errors

    monkeypatch.setattr("edged.bus.sim.serial.SimPort.line_errors", counted)
    peer.greeting = b"ab"
    result = await use(core, port="ttyUSB0", length=2)
    assert "errors of the line since it was opened: 7 framing, 1 break: check the speed" in (
        result.for_llm
    )
    errors.update(dict.fromkeys(errors, 0))
    assert "notes" not in (await use(core, port="ttyUSB0", length=2)).structured


async def test_dropped_bytes_are_told(core, bench, peer):
    """Every buffer is bounded and says what was lost."""
    peer.greeting = bytes(65_536) + b"new"
    result = await use(core, port="ttyUSB0", length=1)
    assert "3 bytes lost since it was opened, for nobody read them" in result.for_llm


async def test_a_call_without_a_session_gives_the_port_back(core, bench, peer, ports):
    await use(core, port="ttyUSB0", data="x", confirm=True)
    await use(core, port="ttyUSB0", timeout=0)
    assert peer.opened == 2
    assert peer.send is None


async def test_a_cancelled_call_gives_the_port_back(core, bench, peer):
    """A cancelled caller never blocks the next."""
    arguments = msgspec.json.encode({"port": "ttyUSB0", "length": 1, "timeout": 50})
    call = core.dispatcher.start(core.agent, None, "serial", arguments)
    while peer.send is None:
        await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call.wait()
    while peer.send is not None:
        await asyncio.sleep(0)
    assert not (await use(core, port="ttyUSB0", data="x", confirm=True)).is_error


async def test_an_unplugged_port_says_so(core, bench, peer, ports):
    """Facts, fault 1."""
    reading = asyncio.create_task(use(core, port="ttyUSB0", length=1, timeout=50))
    while peer.send is None:
        await asyncio.sleep(0)
    ports.pull("ttyUSB0")
    result = await reading
    assert result.is_error
    assert result.for_llm.endswith("ttyUSB0 was unplugged or hung up")


async def test_ports_are_listed_with_what_tells_them_apart(core, bench, ports, monkeypatch):
    """By-id names, for ports whose numbers move (facts, fault 3)."""

    async def ports_there():
        usb = PortInfo(
            "ttyUSB0", "/dev/ttyUSB0", "usb-FTDI-A5", "FTDI FT232R", "0403:6001", "A50285BI"
        )
        return [usb, PortInfo("ttyAMA0", "/dev/ttyAMA0")]

    monkeypatch.setattr(ports, "list", ports_there)
    await use(core, action="open", port="ttyUSB0")
    for arguments in ({}, {"action": "list"}):
        result = await use(core, **arguments)
        assert result.for_llm == (
            "ttyUSB0: FTDI FT232R, 0403:6001, A50285BI, usb-FTDI-A5, open in this session\n"
            "ttyAMA0: /dev/ttyAMA0"
        )
    assert [row["open"] for row in result.structured["ports"]] == [True, False]
    assert result.structured["ports"][0]["by_id"] == "usb-FTDI-A5"


async def test_a_board_without_ports_says_what_to_do(core, bench, ports):
    ports.peers.clear()
    result = await use(core)
    assert result.for_llm.startswith("This board has no serial port: plug one in")
    assert result.structured == {"ports": []}


async def test_a_node_without_hardware_is_for_the_owner_to_allow(core, bench, ports, monkeypatch):
    """A pseudo terminal may be somebody's shell: reading it takes the keys from it."""

    async def found(_):
        return PortInfo("/dev/pts/3", "/dev/ttyUSB0")

    monkeypatch.setattr(ports, "find", found)
    for call in ({}, {"action": "open"}, {"data": "rm -rf ~\r", "confirm": True}):
        result = await use(core, port="/dev/pts/3", timeout=0, **call)
        assert result.is_error
        assert "allow: [/dev/pts/3] under board:" in result.for_llm
    bench("/dev/pts/3")
    monkeypatch.undo()
    assert not (await use(core, port="/dev/ttyUSB0", timeout=0)).is_error


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"action": "read"}, "serial: port: is required: there is ttyUSB0"),
        ({"action": "close"}, "serial: port: is required: there is ttyUSB0"),
        ({"port": "ttyUSB7"}, "no serial port 'ttyUSB7': there is ttyUSB0"),
        ({"action": "write", "port": "ttyUSB0"}, "serial: data: is required for a write"),
        ({"port": "ttyUSB0", "data": ""}, "serial: data: is required for a write"),
        ({"action": "read", "port": "ttyUSB0", "data": "x"}, "data: belongs to action write"),
        ({"port": "ttyUSB0", "until": ""}, "serial: until: must not be empty"),
        ({"port": "ttyUSB0", "data": "0xzz", "confirm": True}, "'0xzz' is not hex"),
    ],
)
async def test_what_makes_no_sense_is_refused_with_what_would(
    core, bench, peer, arguments, reason
):
    """Errors say what to do, and no byte moves."""
    result = await use(core, **arguments)
    assert result.is_error
    assert reason in result.for_llm
    assert peer.taken == b""


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"data": [1.5]}, "data"),
        ({"data": [256]}, "data"),
        ({"baud": 0}, "baud"),
        ({"baud": 9600.5}, "baud"),
        ({"data_bits": 9}, "data_bits"),
        ({"stop_bits": 3}, "stop_bits"),
        ({"parity": "mark"}, "parity"),
        ({"length": 0}, "length"),
        ({"length": 65_537}, "length"),
        ({"timeout": -1}, "timeout"),
        ({"timeout": 51}, "timeout"),
    ],
)
async def test_numbers_out_of_range_are_refused_not_cut(core, bench, peer, arguments, fault):
    with pytest.raises(ValueError, match="serial: "):
        await use(core, port="ttyUSB0", confirm=True, **arguments)
    assert peer.opened == 0


async def test_settings_go_to_the_port_in_the_spellings_of_clients(core, bench, ports):
    """Other programs say `baud`, `data_bits`, `stop_bits`, and E for even."""
    result = await use(
        core, action="open", device="ttyUSB0", baud="19200", data_bits=7, parity="E", stop_bits=2,
        dtr=False, rts=False, rtscts=True, xonxoff=True, rs485=True,
    )  # fmt: skip
    assert result.for_llm.startswith("ttyUSB0 is open at 19200 7E2, until close or 10 minutes")
    assert result.structured["settings"] == {
        "baudrate": 19200, "bytesize": 7, "parity": "even", "stopbits": 2, "dtr": False,
        "rts": False, "rtscts": True, "xonxoff": True, "rs485": True,
    }  # fmt: skip


# Sessions ---------------------------------------------------------------------------------------


async def test_an_open_port_stays_open_and_keeps_what_comes_between_calls(core, bench, peer):
    """Facts, fault 4: opening resets many boards, so one long opening."""
    opened = await use(core, action="open", port="ttyUSB0", baud=115200)
    assert opened.structured["path"] == "/dev/ttyUSB0"
    assert opened.structured["idle_s"] == IDLE_S
    await use(core, port="ttyUSB0", data="AT\r", confirm=True)
    answer = await use(core, port="/dev/ttyUSB0", until="\r\n")
    assert answer.structured["text"] == "OK\r\n"
    assert peer.opened == 1
    closed = await use(core, action="close", port="ttyUSB0")
    assert (closed.for_llm, closed.structured["closed"]) == ("ttyUSB0 is closed", True)
    again = await use(core, action="close", port="ttyUSB0")
    assert (again.for_llm, again.is_error) == ("ttyUSB0 was not open in this session", False)
    assert peer.send is None


async def test_opening_it_twice_changes_nothing(core, bench, peer):
    await use(core, action="open", port="ttyUSB0", baud=115200)
    again = await use(core, action="open", port="ttyUSB0")
    assert again.structured["settings"]["baudrate"] == 115200
    assert peer.opened == 1


@pytest.mark.parametrize("call", [{"action": "open"}, {"timeout": 0}])
async def test_other_settings_than_it_is_open_with_are_refused(core, bench, peer, call):
    """Setting them would need an opening, which resets many boards."""
    await use(core, action="open", port="ttyUSB0", baud=115200)
    result = await use(core, port="ttyUSB0", baud=9600, **call)
    assert result.is_error
    assert "port: ttyUSB0 is open at 115200 8N1: close it first" in result.for_llm
    assert not (await use(core, port="ttyUSB0", baud=115200, timeout=0)).is_error


@pytest.mark.parametrize(
    "call", [{"action": "open"}, {"timeout": 0}, {"data": "x", "confirm": True}]
)
async def test_a_port_of_another_session_is_refused_with_its_holder(core, bench, peer, call):
    """Facts, fault 5: two who read one port share its bytes."""
    await use(core, action="open", port="ttyUSB0")
    others = Caller(core.agent.user, "agent", "another", "unix", "uid 1000")
    for caller in (BOB, others):
        result = await use(core, caller, port="ttyUSB0", **call)
        assert result.is_error
        assert "ttyUSB0 is in use by a serial session of ada@example.org" in result.for_llm
        closed = await use(core, caller, action="close", port="ttyUSB0")
        assert closed.structured["closed"] is False
    assert peer.opened == 1


async def test_a_port_of_a_call_is_refused_with_its_holder(core, bench, peer):
    reading = asyncio.create_task(use(core, port="ttyUSB0", length=1, timeout=50))
    while peer.send is None:
        await asyncio.sleep(0)
    result = await use(core, BOB, action="open", port="ttyUSB0")
    assert "ttyUSB0 is in use by a call of ada@example.org" in result.for_llm
    peer.send(b"x")
    await reading
    assert not (await use(core, BOB, action="open", port="ttyUSB0")).is_error


async def test_a_port_that_the_board_holds_is_refused_with_its_holder(core, bench, peer):
    """Issue 3, part 3: claims on ports."""
    board = bench()
    async with board.claim("ttyUSB0", "sensor gps"):
        for call in ({"action": "open"}, {"timeout": 0}):
            result = await use(core, port="ttyUSB0", **call)
            assert "ttyUSB0 is in use by sensor gps" in result.for_llm
    assert peer.opened == 0


async def test_calls_of_a_session_read_one_after_the_other(core, bench, peer):
    """Who asked first for much is not robbed by who asks for little."""
    await use(core, action="open", port="ttyUSB0")
    first = asyncio.create_task(use(core, port="ttyUSB0", length=4, timeout=10))
    second = asyncio.create_task(use(core, port="ttyUSB0", length=2, timeout=10))
    for piece in (b"ab", b"cd", b"ef"):
        for _ in range(10):
            await asyncio.sleep(0)
        peer.send(piece)
    assert (await first).structured["text"] == "abcd"
    assert (await second).structured["text"] == "ef"


async def test_an_unused_port_is_closed_after_ten_minutes(core, bench, peer, idle):
    """Each use begins the time anew."""
    await use(core, action="open", port="ttyUSB0")
    await asyncio.sleep(0)
    await idle.pass_time(IDLE_S - 1)
    await use(core, port="ttyUSB0", timeout=0)
    await idle.pass_time(IDLE_S - 1)
    assert peer.send is not None
    await idle.pass_time(1)
    assert peer.send is None
    assert not (await use(core, BOB, action="open", port="ttyUSB0")).is_error


async def test_the_number_of_open_ports_is_bounded(core, bench, ports):
    ports.peers.update({f"ttyACM{number}": Peer() for number in range(OPEN_MAX)})
    for number in range(OPEN_MAX):
        assert not (await use(core, action="open", port=f"ttyACM{number}")).is_error
    result = await use(core, action="open", port="ttyUSB0")
    assert result.is_error
    assert "8 serial ports are kept open (ttyACM0, ttyACM1" in result.for_llm
    await use(core, action="close", port="ttyACM3")
    assert not (await use(core, action="open", port="ttyUSB0")).is_error


async def test_a_session_ends_with_its_device_and_begins_anew_after_the_replug(
    core, bench, peer, ports
):
    """Facts, fault 2."""
    await use(core, action="open", port="ttyUSB0")
    ports.plug("ttyUSB0", ports.pull("ttyUSB0"))
    result = await use(core, port="ttyUSB0", timeout=0)
    assert result.is_error
    assert "was unplugged or hung up" in result.for_llm
    assert (await use(core, action="list")).structured["ports"][0]["open"] is False
    assert not (await use(core, action="open", port="ttyUSB0")).is_error
    assert peer.opened == 2


async def test_all_calls_of_a_session_hear_of_the_unplugging(core, bench, peer, ports):
    """The last of them must not end the session that begins after it."""
    await use(core, action="open", port="ttyUSB0")
    reading = [
        asyncio.create_task(use(core, port="ttyUSB0", length=4, timeout=10)) for _ in range(3)
    ]
    for _ in range(10):
        await asyncio.sleep(0)
    ports.plug("ttyUSB0", ports.pull("ttyUSB0"))
    for result in await asyncio.gather(*reading):
        assert result.for_llm.endswith("ttyUSB0 was unplugged or hung up")
    assert not (await use(core, action="open", port="ttyUSB0")).is_error
    assert not (await use(core, port="ttyUSB0", timeout=0)).is_error


@pytest.mark.parametrize(
    ("caller", "call"),
    [(None, {"action": "open"}), (BOB, {"action": "open"}), (BOB, {"timeout": 0})],
)
async def test_a_port_whose_device_went_unnoticed_can_be_used_anew(
    core, bench, peer, ports, caller, call
):
    """By its owner and by others: a dead session must not hold the name for ten minutes."""
    await use(core, action="open", port="ttyUSB0")
    ports.plug("ttyUSB0", ports.pull("ttyUSB0"))
    assert not (await use(core, caller, port="ttyUSB0", **call)).is_error
    assert peer.opened == 2


async def test_bytes_that_came_before_the_unplugging_are_still_told(core, bench, peer, ports):
    await use(core, action="open", port="ttyUSB0")
    peer.send(b"bye")
    ports.pull("ttyUSB0")
    ports.peers["ttyUSB0"] = peer
    result = await use(core, port="ttyUSB0", length=10)
    assert result.structured["text"] == "bye"


async def test_an_opening_that_fails_leaves_the_port_free(core, bench, peer, ports, monkeypatch):
    async def gone(*_):
        raise NoDeviceError("ttyUSB0 has no hardware behind it, or was unplugged")

    with monkeypatch.context() as patch:
        patch.setattr(ports, "open", gone)
        assert (await use(core, action="open", port="ttyUSB0")).is_error
    assert not (await use(core, BOB, action="open", port="ttyUSB0")).is_error


async def test_a_port_that_is_being_opened_is_refused_to_others(core, bench, ports, monkeypatch):
    go_on = asyncio.Event()
    opening = ports.open

    async def slow(*given):
        await go_on.wait()
        return await opening(*given)

    monkeypatch.setattr(ports, "open", slow)
    first = asyncio.create_task(use(core, action="open", port="ttyUSB0"))
    while not bench.sessions._opening:
        await asyncio.sleep(0)
    second = await use(core, BOB, action="open", port="ttyUSB0")
    assert "ttyUSB0 is in use by a serial session of ada@example.org" in second.for_llm
    go_on.set()
    assert not (await first).is_error


async def test_at_the_end_every_port_is_closed(core, bench, peer):
    """Stop: close what is still open."""
    await use(core, action="open", port="ttyUSB0")
    await bench.sessions.close()
    await bench.sessions.close()
    assert peer.send is None


def test_the_schema_is_plain():
    """Contract, section 8: enums with their type."""
    properties = serial.serial.schema["properties"]
    assert properties["action"]["enum"] == [
        "close", "list", "open", "read", "read_until", "write",
    ]  # fmt: skip
    assert properties["baudrate"]["type"] == "integer"
    assert properties["length"]["maximum"] == 65_536


@pytest.mark.parametrize("written", ["/dev/ttyUSB0", "ttyUSB0", "usb:1a86:7523"])
async def test_a_port_of_a_device_is_refused_however_the_configuration_names_it(
    core, ports, written
):
    """Issue 3, part 3: claims are on the port, not on a way of writing it."""
    core.add(*serial.TOOLS)

    async def find(port):
        return (await ports.list())[0]

    ports.find = find
    config = BoardConfig(sensors={"dust": SensorConfig(driver="pms5003", bus=written)})
    board = Board(config, SimBuses(serial=ports), core.clock)
    core.dispatcher.services = msgspec.structs.replace(
        core.dispatcher.services, board=board, serial=SerialSessions(core.clock)
    )
    result = await use(core, action="open", port="ttyUSB0")
    assert result.for_llm == "ttyUSB0 is in use by the sensor dust"
