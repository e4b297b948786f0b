"""edged.service under a real systemd, with relays on chips that are not ours.

What a meter would show is asked of the chips: gpio-sim's `value` and `pull` are the
outside of one; the registers of the other, i2c-stub's memory, keep what was last
written whoever dies.
"""

import re

import pytest

pytestmark = pytest.mark.timeout(1800)  # the first run builds a kernel and a disk

SAFE = {"lamp": "off", "pump": "off"}
WATCHDOG_S = 20
"""WatchdogSec= of the unit."""


def bash_tool(unit, name, script, more=""):
    """Puts a tool of one script among the global ones."""
    directory = f"/var/lib/edged/tools/{name}"
    unit.run(f"mkdir -p {directory} && cat >{directory}/index.sh <<'EOF'\n{script}\nEOF")
    manifest = f"---\nname: {name}\ndescription: A tool.\nversion: 1\nlanguage: bash\n{more}---"
    unit.run(f"cat >{directory}/TOOL.md <<'EOF'\n{manifest}\nEOF")


@pytest.fixture
def running(unit):
    """The unit, running, and both relays on."""
    unit.run("systemctl reset-failed edged && systemctl start edged")
    # As relay boards have it: what nothing drives is off.
    unit.pull_lamp("up")
    unit.switch_on()
    return unit


@pytest.fixture
def once(running):
    """The same, but that nothing starts it again."""
    directory = "/run/systemd/system/edged.service.d"
    running.run(f"mkdir {directory} && printf '[Service]\\nRestart=no\\n' >{directory}/once.conf")
    running.run("systemctl daemon-reload")
    yield running
    running.run(f"rm -r {directory} && systemctl daemon-reload")


def test_at_boot_the_relays_are_put_on_their_safe_level(unit):
    """Issue 3, part 3. The lamp is wired to be on: only the daemon's driving holds it off."""
    unit.until("ActiveState", "active")
    assert unit.run("cat /run/lamp/pull") == "pull-down\n"
    assert unit.relays() == SAFE


def test_installed_unit_has_nothing_for_systemd_to_complain_of(unit):
    """systemd-analyze(1): its exit status tells of little, its output of all."""
    assert unit.run("systemd-analyze verify --man=no edged.service 2>&1") == ""


def test_stop_leaves_the_relays_on_their_safe_level(running):
    """Issue 3, part 3: SIGTERM."""
    running.run("systemctl stop edged")
    assert running.relays() == SAFE
    assert (running.show("ActiveState"), running.show("Result")) == ("inactive", "success")


@pytest.mark.parametrize(
    ("end", "result"),
    [
        pytest.param("systemctl kill -s KILL --kill-whom main edged", "signal", id="kill"),
        pytest.param("systemctl kill -s KILL edged", "signal", id="kill-with-the-guard"),
        pytest.param("systemctl kill -s SEGV --kill-whom main edged", "signal", id="segv"),
        pytest.param("systemctl kill -s ABRT edged", "signal", id="abort-with-the-guard"),
        pytest.param("systemctl kill -s STOP --kill-whom main edged", "watchdog", id="hang"),
    ],
)
def test_however_the_daemon_ends_the_relays_are_on_their_safe_level(once, end, result):
    """Issue 3, part 3: kill -9 and a crash with a relay on."""
    once.run(end)
    once.until("ActiveState", "failed", WATCHDOG_S + 60)
    assert once.relays() == SAFE
    assert once.show("Result") == result


@pytest.mark.parametrize("signal", ["SEGV", "HUP"])
def test_daemon_that_a_signal_ended_comes_back_and_holds_the_safe_level(running, signal):
    """Restart=. The lamp is wired to be on: only the new daemon's driving holds it off."""
    running.pull_lamp("down")
    restarts = int(running.show("NRestarts"))
    running.run(f"systemctl kill -s {signal} --kill-whom main edged")
    running.until("NRestarts", str(restarts + 1))
    running.until("ActiveState", "active")
    assert running.relays() == SAFE
    assert running.run("edged call hello name=Ada") == "Hello, Ada!\n"


def test_wrong_configuration_stops_the_start_once_and_is_told(running):
    """Contract 11: file, line, key path and the nearest known key; sysexits(3): EX_CONFIG."""
    running.run("cp /etc/edged/edged.yaml /root/right.yaml")
    running.run("sed -i '1i sandbox: {warm_memry: 64M}' /etc/edged/edged.yaml")
    restarts = running.show("NRestarts")
    try:
        with pytest.raises(RuntimeError, match="Job for edged.service failed"):
            running.run("systemctl restart edged")
        assert running.show("ActiveState") == "failed"
        assert running.show("ExecMainStatus") == "78"
        assert running.show("NRestarts") == restarts
        assert (
            "/etc/edged/edged.yaml:1: sandbox.warm_memry: unknown key; did you mean 'warm_memory'?"
        ) in running.errors()
        # What the file says of the relays still holds.
        assert running.relays() == SAFE
    finally:
        running.run("mv /root/right.yaml /etc/edged/edged.yaml")


def test_tool_runs_at_the_full_level(running):
    """README, "What holds a tool": Delegate= gives the daemon control groups for it."""
    assert running.run("edged call hello name=Ada") == "Hello, Ada!\n"
    assert re.search(r"^sandbox +full$", running.run("edged describe hello"), re.MULTILINE)


def test_tool_that_takes_too_much_memory_ends_alone(running):
    """systemd.service(5), OOMPolicy=: a unit with Delegate= goes on."""
    bash_tool(running, "hog", "head -c 200M /dev/zero | tail -n 1", "memory: 32M\n")
    daemon = running.show("MainPID")
    with pytest.raises(RuntimeError, match="memory: 64M"):
        running.run("edged call hog")
    assert running.show("MainPID") == daemon
    assert running.relays() == {"lamp": "on", "pump": "on"}


def test_running_call_may_end_before_the_daemon_does(running):
    """Contract 11, `stop_grace`: systemd's stop tells the daemon alone."""
    bash_tool(running, "slow", "edged-update begun\nsleep 2\necho ended")
    running.run("edged call slow --stream >/run/slow.log 2>&1 & true")
    running.guest.until("grep -c begun /run/slow.log || true", "1")
    running.run("systemctl stop edged")
    assert running.run("tail -n 1 /run/slow.log") == "ended\n"


def test_member_of_the_group_may_connect_and_others_may_not(running):
    """Contract 4: mode 0660, group `edged`."""
    call = "edged call hello name=Ada"
    assert (
        running.run(f"setpriv --reuid 1000 --regid 1000 --groups edged {call}") == "Hello, Ada!\n"
    )
    with pytest.raises(RuntimeError, match="exit status 3.*usermod -aG edged"):
        running.run(f"setpriv --reuid 1000 --regid 1000 --clear-groups {call}")
