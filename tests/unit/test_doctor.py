"""What `edged doctor` makes of what it finds; the machine itself is an integration test."""

import grp
import os
import socket
import stat
import sys
import threading

import msgspec
import pytest

from edged import __version__, doctor
from edged.doctor import Finding, Places, Running
from edged.sandbox.probe import Capability
from edged.toolmd.sync import Action


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


def test_daemon_speaks_for_itself():
    told = {"ok": True, "level": "watched", "version": [0, 8, 0], "limits": "watched; do this"}
    running = Running(status(sandbox=told), [], None)
    found = list(doctor.of_daemon(running))
    assert ("sandbox", "ok") in levels(found)
    assert Finding("limits", "warning", "watched", "do this") in found
    assert Finding("http", "note", "no HTTP listener is configured") in found
    assert ("seed tools", "note") in levels(found)
    assert "in use by the daemon" in found[0].text


def test_daemon_without_a_sandbox_is_a_warning():
    running = Running(status(sandbox={"level": "none"}), [], [])
    assert ("sandbox", "warning") in levels(doctor.of_daemon(running))


def test_sandbox_that_does_not_work_is_a_fault_with_its_remedy():
    found = Capability(ok=False, level="none", version=(0, 6), error="No", remedy="do that")
    assert list(doctor.capability(found, "")) == [
        Finding("sandbox", "fault", "bubblewrap 0.6 does not work: No", "do that")
    ]
    unknown = Capability(ok=False, level="none", error="New words")
    (finding,) = doctor.capability(unknown, "")
    assert finding.text == "bubblewrap does not work: New words"
    assert finding.remedy


def test_each_warning_of_the_sandbox_is_told_once():
    found = Capability(ok=True, level="full", version=(0, 8), warnings=("old", "all; held"))
    assert levels(doctor.capability(found, "all; held")) == [
        ("sandbox", "ok"),
        ("limits", "ok"),
        ("sandbox", "note"),
    ]


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


def test_listener_that_does_not_answer_is_a_warning():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        address = f"127.0.0.1:{sock.getsockname()[1]}"
        assert levels(doctor.listeners(["unix:/s", f"http://{address}"])) == [("http", "ok")]
        assert levels(doctor.addresses([address])) == [("http", "warning")]
    assert levels(doctor.listeners(["unix:/s", f"http://{address}"])) == [("http", "warning")]
    assert levels(doctor.addresses([address, "[::1]:1", "unix:/none"])) == [("http", "ok")] * 3


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
    found = list(doctor.listed_tools(rows))
    assert [f.level for f in found] == ["ok", "warning", "note"]
    assert found[0].text == "1 of 3 can be called"
    assert found[1].text == "b is blocked (invalid): p"


def test_clock_that_was_never_set_is_a_fault(places, tmp_path):
    assert doctor.clock(places.run, 0.0).level == "fault"
    assert doctor.clock(places.run, 2e9).level in ("ok", "note")
    (tmp_path / "run" / "systemd" / "timesync").mkdir(parents=True)
    (tmp_path / "run" / "systemd" / "timesync" / "synchronized").touch()
    assert doctor.clock(places.run, 2e9).level == "ok"


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
