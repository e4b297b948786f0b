"""`edged status` for people: tidy at 80 columns; the numbers are the daemon's."""

import json

import pytest

from edged.cli import run, status, tools

LIMITS = "memory is held by cgroup v1; add cgroup_enable=memory to cmdline.txt for v2"
OLD = "bubblewrap 0.8.0 is older than 0.12.0: profiles with a mount point are refused"
SPARE = {"name": "hello", "language": "python", "ready": True, "memory": 6_215_680, "age_s": 63.97}
FOUND = {
    "version": "0.1.0",
    "uptime_s": 3_903.4,
    "user": "local",
    "role": "owner",
    "data": "/var/lib/edged",
    "listen": ["unix:/run/edged.sock", "http://127.0.0.1:8420"],
    "calls_running": 1,
    "tools": {"blocked": 3, "enabled": 9},
    "audit_lost": 0,
    "board": {"sensors": {"greenhouse": "ok"}, "lines": {}},
    "problems": ["seed tool x: cannot be read"],
    "sandbox": {
        "ok": True,
        "level": "watched",
        "version": [0, 8, 0],
        "error": "",
        "remedy": "",
        "warnings": [LIMITS, OLD],
        "limits": LIMITS,
    },
    "warm": {
        "running": 1,
        "waiting": 0,
        "spares": [SPARE, {**SPARE, "name": "my_db", "ready": False, "age_s": 0.06}],
        "memory": 12_431_360,
        "budget": 268_435_456,
        "warm_calls": 7,
        "cold_calls": 2,
    },
}
STATES = [
    {"name": "a", "status": "blocked", "reason_code": "invalid"},
    {"name": "b", "status": "blocked", "reason_code": "requires_runtime"},
    {"name": "c", "status": "blocked", "reason_code": "shadowed"},
    {"name": "c", "status": "enabled", "reason_code": ""},
]


class FakeClient:
    """Answers with what a daemon says of itself."""

    def __init__(self, found):
        self.answers = {"edged/status": found, "edged/tools/state": {"tools": STATES}}
        self.asked = []

    def request(self, method, params=None):
        self.asked.append(method)
        return json.loads(json.dumps(self.answers[method]))


@pytest.fixture
def shown(monkeypatch, capsys):
    """What the verb prints for a status; and what it asked."""

    def show(found, *words):
        client = FakeClient(found)
        monkeypatch.setattr(status, "connect", lambda _: client)
        monkeypatch.setenv("COLUMNS", "80")
        assert run(["status", *words]) == 0
        return capsys.readouterr().out, client.asked

    return show


def test_each_fact_is_told_once_in_words_and_within_80_columns(shown):
    text, _ = shown(FOUND)
    assert text == (
        "version        0.1.0\n"
        "up             1 h 5 min\n"
        "you are        local, owner\n"
        "data           /var/lib/edged\n"
        "listen         unix:/run/edged.sock\n"
        "               http://127.0.0.1:8420\n"
        "calls running  1\n"
        "tools          9 enabled, 2 blocked, 1 overridden\n"
        "audit          nothing lost\n"
        "sensors        greenhouse ok\n"
        "problems       seed tool x: cannot be read\n"
        "               2 tools are blocked: edged tools --all says why\n"
        "sandbox        watched, bubblewrap 0.8.0\n"
        "               memory is held by cgroup v1; add cgroup_enable=memory to\n"
        "               cmdline.txt for v2\n"
        "               bubblewrap 0.8.0 is older than 0.12.0: profiles with a mount\n"
        "               point are refused\n"
        "warm           calls: 7 warm, 2 cold; now 1 running, 0 waiting\n"
        "               spares: 2, 12 MiB of 256 MiB\n"
        "                 TOOL   LANGUAGE  MIB  AGE\n"
        "                 hello  python    5.9  1 min 3 s\n"
        "                 my_db  python    5.9  0 s, starting\n"
    )


def test_alarms_and_what_cannot_be_used_are_problems(shown):
    """Told once, where people look for what is wrong."""
    board = {
        "sensors": {"attic": "nothing answered at address 0x76 on i2c-1", "rain": "warming"},
        "lines": {"led": "line GPIO17 is used by 'x'"},
        "actuators": {"pump": "ok"},
        "alarms": {"soil a0": "below: 12 %"},
    }
    text, _ = shown({**FOUND, "tools": {"enabled": 9}, "problems": [], "board": board})
    assert (
        "sensors        attic see problems, rain warming\n"
        "lines          led see problems\n"
        "actuators      pump ok\n"
        "problems       sensor attic: nothing answered at address 0x76 on i2c-1\n"
        "               line led: line GPIO17 is used by 'x'\n"
        "               alarm: soil a0 is below: 12 %\n"
    ) in text


def test_channels_that_messages_wait_for_are_problems(shown):
    """By the daemon's word, whatever the text is."""
    channels = {"mail": "2 on the way: soon", "old": "1 waiting, not configured", "phone": "ok"}
    found = {**FOUND, "tools": {"enabled": 9}, "problems": []}
    text, _ = shown({**found, "messages": {"channels": channels, "troubled": ["old"]}})
    assert "channels mail 2 on the way: soon, old see problems, phone ok\n" in text
    assert "problems       channel old: 1 waiting, not configured\n" in text


def test_json_is_what_the_daemon_said(shown):
    text, asked = shown(FOUND, "--json")
    assert json.loads(text) == FOUND
    assert asked == ["edged/status"]


def test_nothing_more_is_asked_where_nothing_is_blocked(shown):
    text, asked = shown({**FOUND, "tools": {"enabled": 9}, "problems": []})
    assert "problems       none\n" in text
    assert "tools          9 enabled\n" in text
    assert asked == ["edged/status"]


@pytest.mark.parametrize(
    ("sandbox", "text"),
    [
        ({"level": "unknown"}, "unknown"),
        ({"level": "none", "warning": "sandbox: none: tools run unconfined"}, "sandbox: none: t"),
        (
            {**FOUND["sandbox"], "ok": False, "error": "Operation not permitted", "remedy": "do"},
            "bubblewrap 0.8.0 does not work: Operation not permitted\n               do\n",
        ),
        ({**FOUND["sandbox"], "limits": "", "warnings": []}, "watched, bubblewrap 0.8.0\nwarm"),
    ],
)
def test_state_of_the_sandbox_is_said_in_words(sandbox, text, shown):
    assert f"sandbox        {text}" in shown({**FOUND, "sandbox": sandbox})[0]


def test_parts_of_a_later_daemon_are_shown_too(shown):
    """Each issue adds a part of the daemon, and its health."""
    more = {"cron": {"jobs": 2, "late": True, "next": None, "names": ["a", "b"]}, "peers": []}
    text, _ = shown(
        {**FOUND, "audit_lost": 3, "tools": {}, "warm": {**FOUND["warm"], "spares": []}, **more}
    )
    assert "cron           jobs 2, late yes, next none, names a, b\n" in text
    assert "peers          none\n" in text
    assert "audit          3 records lost\n" in text
    assert "tools          none\n" in text
    assert "TOOL" not in text


@pytest.mark.parametrize(
    ("rows", "note"),
    [
        (STATES, "2 tools are blocked: edged tools --all says why"),
        (STATES[1:], "1 tool is blocked: edged tools --all says why"),
        (STATES[2:], ""),
    ],
)
def test_overridden_tools_are_no_fault(rows, note):
    """Contract, section 3: a user's own tool overrides a global one."""
    assert tools.blocked(rows) == note
