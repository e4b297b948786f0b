"""What `edged doctor` makes of what it finds; the machine itself is an integration test."""

import grp
import os
import pwd
import socket
import stat
import sys
import threading

import msgspec
import pytest

from edged import __version__, doctor, settings
from edged.doctor import Finding, Places, Running
from edged.sandbox.probe import Capability
from edged.toolmd.sync import Action
from edged.transports.http import parse


def levels(findings):
    return [(f.check, f.level) for f in findings]


@pytest.fixture
def places(tmp_path):
    return Places(
        config=str(tmp_path / "edged.yaml"),
        explicit=False,
        data=str(tmp_path / "data"),
        socket=str(tmp_path / "s.sock"),
        seed=str(tmp_path / "seed"),
        dev=str(tmp_path / "dev"),
        proc=str(tmp_path / "proc"),
        run=str(tmp_path / "run"),
    )


def test_old_python_is_a_fault():
    assert doctor.python((3, 11, 0)).level == "ok"
    assert doctor.python((3, 10, 9)) == Finding(
        "python", "fault", f"Python 3.10.9 ({sys.executable})", "install Python 3.11 or newer"
    )


def test_configuration_is_absent_valid_or_a_fault_with_its_place(places, tmp_path):
    _, finding = doctor.configuration(places)
    assert (finding.level, "defaults hold" in finding.text) == ("ok", True)
    file = tmp_path / "edged.yaml"
    file.write_text("http: {listen: []}\n")
    loaded, finding = doctor.configuration(places)
    assert (loaded.config.http.listen, finding.text) == ([], f"{file} is valid")
    file.write_text("http:\n  listn: []\n")
    loaded, finding = doctor.configuration(places)
    assert (loaded, finding.level) == (None, "fault")
    assert f"{file}:2" in finding.text


def test_missing_configuration_that_was_named_is_a_fault(places):
    _, finding = doctor.configuration(msgspec.structs.replace(places, explicit=True))
    assert finding.level == "fault"


def test_only_a_fault_in_a_line_is_mended_in_a_line(places, tmp_path):
    file = tmp_path / "edged.yaml"
    file.write_text("http:\n  listn: []\n")
    assert "mend the line" in doctor.configuration(places)[1].remedy
    file.unlink()
    file.mkdir()
    _, finding = doctor.configuration(places)
    assert finding.text == (
        f"{file}: cannot be read: Is a directory: "
        "check its permissions, or choose another with --config"
    )
    assert finding.remedy == ""


def test_daemon_that_was_not_started_is_no_fault(places):
    running, found = doctor.daemon(places)
    assert running is None
    assert found == [
        Finding(
            "daemon",
            "note",
            f"no daemon answers at {places.socket}",
            "start it with edged serve",
        )
    ]


def test_daemon_that_hangs_up_is_a_fault(places):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(places.socket)
        sock.listen()
        accepted = threading.Thread(target=lambda: sock.accept()[0].close())
        accepted.start()
        running, found = doctor.daemon(places)
        accepted.join(10)
    assert running is None
    assert levels(found) == [("daemon", "fault")]


def status(**facts):
    return {
        "version": __version__,
        "uptime_s": 3.2,
        "user": "local",
        "role": "owner",
        "data": "/",
        "listen": ["unix:/s"],
        **facts,
    }


def test_agents_that_no_daemon_serves_are_looked_at(places, tmp_path):
    folder = tmp_path / "data" / "ada@example.org" / "agents"
    folder.mkdir(parents=True)
    (folder / "well.md").write_text("---\nname: a\ntool_permissions: [sensor]\n---\nHi")
    (folder / "odd.md").write_text("---\nname: a\ntool_permissions: [sensr]\n---\nHi")
    (folder / "broken.md").write_text("---\nname: a\nmodle: x\n---\nHi")
    found = [one for one in doctor.of_machine(places, None) if one.check == "agents"]
    assert [one.level for one in found] == ["warning", "warning"]
    assert found[0].text.startswith(f"{folder}/broken.md: line 3: modle: unknown key")
    assert "did you mean 'sensor'?" in found[1].text


def test_daemon_speaks_for_itself(places):
    told = {"ok": True, "level": "watched", "version": [0, 8, 0], "limits": "watched; do this"}
    running = Running(status(sandbox=told), [], None)
    found = list(doctor.of_daemon(running, places))
    assert ("sandbox", "ok") in levels(found)
    assert Finding("limits", "warning", "watched", "do this") in found
    assert Finding("http", "note", "no HTTP listener is configured") in found
    assert ("seed tools", "note") in levels(found)
    assert "in use by the daemon" in found[0].text


def test_a_channel_that_takes_nothing_and_what_was_given_up_are_told(places):
    told = {
        "given_up": 2,
        "channels": {"dead": "1 waiting: no connection", "small": "ok"},
        "troubled": ["dead"],
    }
    running = Running(status(sandbox={"level": "none"}, messages=told), [], [])
    found = [one for one in doctor.of_daemon(running, places) if one.check == "messages"]
    assert [(one.level, one.text) for one in found] == [
        ("warning", "channel dead: 1 waiting: no connection"),
        ("note", "2 messages were given up"),
    ]
    assert found[1].remedy.endswith("/outbox/given-up")
    healthy = {"given_up": 0, "channels": {"small": "ok"}, "troubled": []}
    (one,) = doctor.messages(healthy, "/data")
    assert (one.level, one.text) == ("ok", "1 channels take messages")
    assert list(doctor.messages({}, "/data")) == []


def test_daemon_without_a_sandbox_is_a_warning(places):
    running = Running(status(sandbox={"level": "none"}), [], [])
    assert ("sandbox", "warning") in levels(doctor.of_daemon(running, places))


def test_sandbox_that_does_not_work_is_a_fault_with_its_remedy():
    found = Capability(ok=False, level="none", version=(0, 6), error="No", remedy="do that")
    assert list(doctor.capability(found, "", "/run")) == [
        Finding("sandbox", "fault", "bubblewrap 0.6 does not work: No", "do that")
    ]
    unknown = Capability(ok=False, level="none", error="New words")
    (finding,) = doctor.capability(unknown, "", "/run")
    assert finding.text == "bubblewrap does not work: New words"
    assert finding.remedy


def test_each_warning_of_the_sandbox_is_told_once():
    found = Capability(ok=True, level="full", version=(0, 8), warnings=("old", "all; held"))
    assert levels(doctor.capability(found, "all; held", "/run")) == [
        ("sandbox", "ok"),
        ("limits", "ok"),
        ("sandbox", "note"),
    ]


def test_known_hole_of_bubblewrap_says_that_nothing_is_to_be_done():
    """There is never a mount point inside a writable bind."""
    note = "bubblewrap 0.8.0 is older than 0.12.0 (CVE-2026-1)"
    found = Capability(ok=True, level="full", version=(0, 8, 0), notes=(note,))
    told = list(doctor.capability(found, "", "/run"))[-1]
    assert told.text == note
    assert told.remedy.startswith("nothing to do: ")


def test_remedy_by_systemd_is_for_systems_that_have_it(tmp_path):
    found = Capability(ok=True, level="watched", version=(0, 12, 0))
    text = "memory is watched; run edged as a systemd service with Delegate=yes"

    def told():
        return list(doctor.capability(found, text, str(tmp_path)))[-1].remedy

    assert told() == "start edged as root, or give it a control group of its own that it may write"
    (tmp_path / "systemd" / "system").mkdir(parents=True)
    assert told() == "run edged as a systemd service with Delegate=yes"


@pytest.fixture
def owned(tmp_path):
    """A data directory that is not root's."""
    data = tmp_path / "data"
    for path in (data, data / "audit", data / "state"):
        path.mkdir()
        os.chown(path, 1000 if os.geteuid() == 0 else -1, -1)
    return data


def test_directory_that_the_daemon_cannot_write_is_a_fault(owned):
    assert doctor.in_use(str(owned)).text == f"{owned}, in use by the daemon"
    (owned / "state").chmod(0o500)
    found = doctor.in_use(str(owned))
    assert found.text == f"{owned}/state is closed to its owner (mode 500)"
    assert (found.level, found.remedy) == ("fault", f"chmod u+rwx {owned}/state")
    (owned / "state").chmod(0o700)
    owned.chmod(0o500)
    assert doctor.in_use(str(owned)).remedy == f"chmod u+rwx {owned}"


def test_lost_records_are_told_with_their_cause(owned, monkeypatch):
    (owned / "audit").chmod(0)
    found = doctor.audit_lost(1, str(owned))
    assert found.remedy == f"chmod u+rwx {owned}/audit"
    assert found.text == (
        f"1 record of the audit trail was lost: {owned}/audit is closed to its owner (mode 000)"
    )
    (owned / "audit").chmod(0o700)
    found = doctor.audit_lost(2, str(owned))
    assert found.text == "2 records of the audit trail were lost"
    assert found.remedy == "the daemon's log says why"
    monkeypatch.setattr(doctor, "SPACE_LOW", 1 << 60)
    assert "the disk is full" in doctor.audit_lost(2, str(owned)).remedy


@pytest.mark.parametrize(
    ("free", "level"), [(1 << 30, "ok"), (100 << 20, "warning"), (0, "fault")]
)
def test_free_space_is_judged_by_what_is_left(free, level, monkeypatch):
    class Room:
        f_bavail, f_frsize = free, 1

    monkeypatch.setattr(os, "statvfs", lambda _: Room)
    assert doctor.free_space("/x/y").level == level


def test_data_directory_may_still_have_to_be_made(tmp_path):
    assert "made at the first start" in doctor.data_directory(str(tmp_path / "a" / "b")).text
    assert doctor.data_directory(str(tmp_path)).text.endswith("can be written")
    (tmp_path / "file").touch()
    assert doctor.data_directory(str(tmp_path / "file" / "b")).level == "fault"


@pytest.mark.parametrize(
    ("file", "value", "level"),
    [
        ("sys/user/max_user_namespaces", "0", "note"),
        ("sys/kernel/unprivileged_userns_clone", "0", "note"),
        ("sys/kernel/apparmor_restrict_unprivileged_userns", "1", "note"),
        ("sys/user/max_user_namespaces", "15000", "ok"),
    ],
)
def test_switches_of_the_kernel_are_read(file, value, level, places, tmp_path):
    """user_namespaces(7), Debian's and Ubuntu's own switches."""
    assert doctor.user_namespaces(places.proc).level == "fault"
    (tmp_path / "proc" / "self" / "ns").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "ns" / "user").touch()
    path = tmp_path / "proc" / file
    path.parent.mkdir(parents=True)
    path.write_text(f"{value}\n")
    assert doctor.user_namespaces(places.proc).level == level


OK = b"HTTP/1.1 200 OK\r\nServer: edged\r\nContent-Length: 15\r\n\r\n{}"
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nServer: edged\r\n\r\n"
OTHER = b"HTTP/1.0 404 Not Found\r\nDate: x\r\nSERVER: nginx/1.22\r\n\r\n"
MAIL = b"220 mail ready\r\n"


@pytest.fixture
def answering():
    """Starts a listener that answers every request with some bytes; None keeps silent."""
    ended = threading.Event()
    threads = []

    def start(data, sock=None):
        sock = sock or socket.create_server(("127.0.0.1", 0))

        def serve():
            with sock:
                peer, _ = sock.accept()
                with peer:
                    asked.append(peer.recv(4096))
                    if data is None:
                        ended.wait(20)
                    else:
                        peer.sendall(data)

        asked = []
        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        return sock, asked

    yield start
    ended.set()
    for thread in threads:
        thread.join(20)


def address_of(sock):
    return f"127.0.0.1:{sock.getsockname()[1]}"


def listening(tmp_path, sock, uid, host="0100007F", name="tcp"):
    """A /proc in which a user listens on the port of a socket."""
    net = tmp_path / "proc" / "net"
    net.mkdir(parents=True, exist_ok=True)
    head = "sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid\n"
    port = sock.getsockname()[1]
    rows = [(host, port, "0A", uid), (host, port, "01", 1), ("00000000", 1, "0A", 2)]
    text = head + "".join(
        f"0: {h}:{p:04X} 00000000:0000 {state} 0:0 00:0 0 {who} 0 1\n" for h, p, state, who in rows
    )
    (net / name).write_text(text)
    return str(tmp_path / "proc")


def test_listener_is_asked_who_it_is(answering, tmp_path):
    """A connection alone proves nothing: anybody may have the port."""
    sock, asked = answering(OK)
    address = address_of(sock)
    assert list(doctor.listeners(["unix:/s", f"http://{address}"], None, str(tmp_path))) == [
        Finding("http", "ok", f"http://{address} answers")
    ]
    assert asked[0].startswith(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (BUSY, "ADDRESS answers 503"),
        (OTHER, "another program (nginx/1.22) answers on ADDRESS in place of the daemon"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "another program answers on ADDRESS in place of the daemon"),
        (
            MAIL,
            "another program (it does not speak HTTP) answers on ADDRESS in place of the daemon",
        ),
        (b"", "ADDRESS takes connections and does not answer within 3 s"),
        (b"x" * 20_000, "another program (it does not speak HTTP) answers on ADDRESS in place"),
    ],
)
def test_listener_that_is_not_the_daemon_is_named(data, text, answering, tmp_path):
    sock, _ = answering(data)
    address = address_of(sock)
    (found,) = doctor.listeners(["unix:/s", address], None, str(tmp_path))
    assert (found.level, found.remedy != "") == ("warning", True)
    assert found.text.startswith(text.replace("ADDRESS", address))


def test_silence_ends_after_the_bound(answering, tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "ANSWER_S", 0.05)
    sock, _ = answering(None)
    (found,) = doctor.addresses([address_of(sock)], str(tmp_path))
    assert found.level == "warning"
    assert found.text == f"{address_of(sock)} is taken by a program that does not say what it is"


def test_queue_that_is_full_is_silence_too(tmp_path, monkeypatch):
    """listen(2): what exceeds the backlog waits to be connected."""
    monkeypatch.setattr(doctor, "ANSWER_S", 0.05)
    with socket.socket() as sock, socket.socket() as first, socket.socket() as second:
        sock.bind(("127.0.0.1", 0))
        sock.listen(0)
        for one in (first, second):
            one.setblocking(False)
            one.connect_ex(sock.getsockname())
        assert doctor.answer(address_of(sock), str(tmp_path)) == doctor.Answer("silent")


def test_listener_that_is_gone_is_a_warning(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as sock:
        address = address_of(sock)
    assert levels(doctor.listeners(["unix:/s", address], None, "")) == [("http", "warning")]
    free = [address, "[::1]:1", f"unix:{tmp_path}/none"]
    assert levels(doctor.addresses(free, "")) == [("http", "ok")] * 3


@pytest.mark.parametrize(
    ("uid", "name"),
    [
        (os.geteuid(), "another edged of yours"),
        (pwd.getpwnam("nobody").pw_uid, "the edged of nobody"),
        (3_999_999_999, "the edged of uid 3999999999"),
    ],
)
def test_address_of_another_edged_says_whose_it_is(uid, name, answering, tmp_path):
    """proc_net(5): the uid of a listening socket is there for everyone."""
    sock, _ = answering(OK)
    address = address_of(sock)
    (found,) = doctor.addresses([address], listening(tmp_path, sock, uid))
    assert (found.level, found.text) == ("warning", f"{name} answers on {address}")
    assert found.remedy == "use it (--url, with a token), or choose another http.listen"


@pytest.mark.parametrize(
    ("host", "name", "known"),
    [
        ("0100007F", "tcp", True),
        ("00000000", "tcp", True),
        ("0" * 32, "tcp6", True),
        ("0200007F", "tcp", False),
    ],
)
def test_owner_of_an_address_is_also_who_listens_on_all(host, name, known, answering, tmp_path):
    sock, _ = answering(OTHER)
    proc = listening(tmp_path, sock, 7, host, name)
    assert doctor.answer(address_of(sock), proc).uid == (7 if known else None)


def test_real_kernel_says_who_listens(answering):
    for sock in (socket.create_server(("127.0.0.1", 0)), socket.create_server(("", 0))):
        answering(OK, sock)
        assert doctor.answer(address_of(sock), "/proc").uid == os.geteuid()


def test_ipv6_address_is_read_in_the_machines_order(tmp_path):
    """proc_net(5): four words of 32 bits, each in the machine's order."""
    word = f"{int.from_bytes(bytes([0, 0, 0, 1]), sys.byteorder):08X}"
    with socket.create_server(("127.0.0.1", 0)) as sock:
        proc = listening(tmp_path, sock, 7, "0" * 24 + word, "tcp6")
        where = parse(f"[::1]:{sock.getsockname()[1]}")
        assert doctor._listening_uid(proc, where, socket.AF_INET6) == 7


def test_daemon_whose_address_another_user_has_is_told(answering, tmp_path):
    """In another network namespace, 127.0.0.1 is another one."""
    sock, _ = answering(OK)
    address = address_of(sock)
    proc = listening(tmp_path, sock, pwd.getpwnam("nobody").pw_uid)
    (found,) = doctor.listeners(["unix:/s", address], os.geteuid(), proc)
    assert found.level == "warning"
    assert found.text == f"the edged of nobody answers on {address} in place of the daemon"


def test_socket_that_systemd_made_is_the_daemons(answering, tmp_path):
    """systemd.socket(5): root makes it, for a daemon of any user."""
    sock, _ = answering(OK)
    proc = listening(tmp_path, sock, 0)
    assert levels(doctor.listeners(["unix:/s", address_of(sock)], 999, proc)) == [("http", "ok")]


def test_unix_listener_is_asked_too(answering, tmp_path):
    """unix(7): the peer's uid is that of who listens."""
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(tmp_path / "s"))
    sock.listen()
    answering(OK, sock)
    found = doctor.answer(f"unix:{tmp_path}/s", "")
    assert (found.kind, found.uid) == ("edged", os.geteuid())


def test_unix_listener_that_is_closed_to_this_user_is_a_note(tmp_path, monkeypatch):
    """connect(2): EACCES. Root may always, so the kernel's answer is made here."""

    def refused(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "connect", refused)
    address = f"unix:{tmp_path}/s"
    assert levels(doctor.listeners(["unix:/s", address], None, "")) == [("http", "note")]
    assert levels(doctor.addresses([address], "")) == [("http", "warning")]


def test_address_that_is_none_is_a_fault_of_the_configuration(places, tmp_path):
    """What only `serve` would refuse."""
    (tmp_path / "edged.yaml").write_text("http: {listen: [nonsense]}\n")
    loaded, finding = doctor.configuration(places)
    assert (loaded, finding.level) == (None, "fault")
    assert "'nonsense' is not an address" in finding.text


def test_board_that_the_daemon_would_refuse_is_a_fault_of_the_configuration(places, tmp_path):
    """One finding, and no "valid" before it."""
    (tmp_path / "edged.yaml").write_text("board:\n  sensors:\n    a: {driver: bme820}\n")
    loaded, finding = doctor.configuration(places)
    assert loaded is None
    assert (finding.level, finding.check) == ("fault", "configuration")
    assert "edged.yaml:3: board.sensors.a.driver: 'bme820' is not one of" in finding.text
    assert "mend the line" in finding.remedy


def test_configuration_for_what_is_not_there_is_doubted(tmp_path):
    text = "tools:\n  moistur: {timeout: 5}\n  hello: {timeout: 5}\nsocket: {group: nobodies}\n"
    loaded = settings.parse(text.replace("timeout: 5", "enabled: true"), "/e.yaml")
    tool, group = doctor.doubtful(loaded, {"moisture", "hello"})
    assert tool.text == "/e.yaml:2: tools.moistur: there is no such tool; did you mean 'moisture'?"
    assert group.text == "/e.yaml:4: socket.group: there is no group 'nobodies' here"
    assert "groupadd nobodies" in group.remedy
    assert levels(doctor.doubtful(loaded, None)) == [("configuration", "warning")]
    usual = settings.parse("socket: {}\n", "/e.yaml")
    assert list(doctor.doubtful(usual, set())) == []


def test_names_of_all_tools_are_known_with_and_without_a_daemon(places, tmp_path):
    for root in ("data/tools", "data/ada@example.org/tools", "seed"):
        (tmp_path / root / f"of_{root.partition('/')[0]}").mkdir(parents=True)
    names = doctor._tool_names(places, None)
    assert {"gpio", "echo", "of_data", "of_seed"} <= names
    running = Running(status(data=places.data), [{"name": "new"}], None)
    assert names | {"new"} == doctor._tool_names(places, running)


def test_directory_of_tools_that_is_closed_is_no_tool():
    state = {"status": "blocked", "reason_code": "invalid", "problem": "/d/tools: cannot be read"}
    row = {"name": "/d/tools", "source": "/d/tools", **state}
    assert list(doctor.listed_tools([row]))[1].text == "/d/tools: cannot be read"


def test_seed_tools_are_due_up_to_date_changed_or_refused():
    due = doctor.seeds([Action("add", "a", 1), Action("update", "b", 2, 1)])
    assert [f.text for f in due] == ["to be copied: a, b"]
    held = list(doctor.seeds([Action("keep", "a", 1, 1), Action("differs", "b", 1, 1)]))
    assert levels(held) == [("seed tools", "ok"), ("seed tools", "note")]
    refused = list(doctor.seeds([Action("refused", "c", reason="no")]))
    assert levels(refused) == [("seed tools", "note"), ("seed tools", "warning")]


def test_broken_tools_are_named_with_file_and_line(tmp_path):
    broken = tmp_path / "ada@example.org" / "tools" / "bad"
    broken.mkdir(parents=True)
    (broken / "TOOL.md").write_text("---\nname: bad\ndescription: [\n---\n")
    (finding,) = doctor.tools(str(tmp_path))
    assert finding.level == "warning"
    assert f"{broken}/TOOL.md:" in finding.text
    assert levels(doctor.tools(str(tmp_path / "none"))) == [("tools", "ok")]


def test_blocked_tools_of_the_daemon_are_told():
    def row(name, state, reason=""):
        return {"name": name, "status": state, "reason_code": reason, "problem": "p"}

    rows = [row("a", "enabled"), row("b", "blocked", "invalid"), row("b", "blocked", "shadowed")]
    rows += [row("c", "blocked", "requires_skills")]
    # Whoever wants no messages has no channel; a sandbox is wanted.
    rows += [{**row("d", "blocked", "requires_config"), "category": "communication"}]
    rows += [{**row("e", "blocked", "requires_config"), "category": "user"}]
    found = list(doctor.listed_tools(rows))
    assert [f.level for f in found] == ["ok", "warning", "note", "note", "note", "warning"]
    assert found[0].text == "1 of 6 can be called"
    assert found[1].text == "b is blocked (invalid): p"


def test_clock_that_was_never_set_is_a_fault(places, tmp_path):
    assert doctor.clock(places.run, 0.0).level == "fault"
    assert doctor.clock(places.run, 2e9).level in ("ok", "note")
    (tmp_path / "run" / "systemd" / "timesync").mkdir(parents=True)
    (tmp_path / "run" / "systemd" / "timesync" / "synchronized").touch()
    assert doctor.clock(places.run, 2e9).level == "ok"


def test_clock_is_kept_by_what_the_system_has(places, tmp_path):
    """sd_booted(3): the directory is there where systemd runs."""
    assert "timedatectl" not in doctor.clock(places.run, 0.0).remedy
    (tmp_path / "run" / "systemd" / "system").mkdir(parents=True)
    assert "timedatectl set-ntp true" in doctor.clock(places.run, 0.0).remedy


def test_devices_are_told_only_where_they_are_there_and_closed(places, tmp_path, monkeypatch):
    assert list(doctor.devices(places.dev)) == []
    dev = tmp_path / "dev"
    dev.mkdir()
    (dev / "i2c-1").touch()
    assert list(doctor.devices(places.dev)) == []
    monkeypatch.setattr(os, "access", lambda *_: False)
    (finding,) = doctor.devices(places.dev)
    assert finding.level == "note"
    assert str(dev / "i2c-1") in finding.text
    group = grp.getgrgid(os.stat(dev / "i2c-1")[stat.ST_GID]).gr_name
    assert f"usermod -aG {group} USER" in finding.remedy


def test_languages_have_runtimes_or_remedies(monkeypatch, tmp_path):
    old = tmp_path / "node"
    old.write_text("#!/bin/sh\necho v20.1.0\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.path", [])
    found = {f.check: f for f in doctor.languages()}
    assert found["node tools"].level == "note"
    assert f"{old} is 20.1.0" in found["node tools"].text
    assert "22.18" in found["node tools"].remedy
