"""The command line against a real daemon, as a person or a script uses it."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

import pytest

SLOW = """\
---
name: slow
description: Waits. Says first that it does.
version: 1
language: bash
---
"""


class Daemon:
    """A daemon of its own, and commands that ask it."""

    def __init__(self, base):
        self.base = base
        self.data = base / "data"
        config = base / "edged.yaml"
        config.write_text("tools: {echo: {enabled: true}}\nstop_grace: 1s\n")
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith("EDGED_")},
            "EDGED_SOCKET": str(base / "s.sock"),
            "EDGED_CONFIG": str(config),
            "DATA_PATH": str(self.data),
            "HOME": str(base),
        }
        self.log = open(base / "log", "wb")
        self.process = subprocess.Popen(
            [*EDGED, "serve", "--sim", "--http", "127.0.0.1:0"], env=self.env, stderr=self.log
        )

    def run(self, *words, code=0, stdin="", env=None):
        """Run one command; its exit code is checked."""
        done = subprocess.run(
            [*EDGED, *words],
            input=stdin,
            capture_output=True,
            text=True,
            env={**self.env, **(env or {})},
            timeout=60,
            cwd=self.base,
        )
        assert done.returncode == code, done.stderr
        return done

    def json(self, *words):
        return json.loads(self.run(*words, "--json").stdout)

    def start(self, *words):
        return subprocess.Popen(
            [*EDGED, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.env,
            cwd=self.base,
        )

    def stop(self):
        self.process.terminate()
        self.process.wait(20)
        self.log.close()


EDGED = (sys.executable, "-m", "edged")


@pytest.fixture(scope="module")
def daemon():
    # Tools run as another account, which may not enter pytest's directories.
    with tempfile.TemporaryDirectory(prefix="edged-cli-", dir="/var/tmp") as folder:
        base = Path(folder)
        base.chmod(0o755)
        made = Daemon(base)
        made.run("status", "--wait-ready", "--timeout", "30")
        yield made
        made.stop()


@pytest.fixture(scope="module")
def web(daemon):
    """The environment of a command that asks over HTTP."""
    address = daemon.json("status")["listen"][1]
    return {
        "EDGED_SOCKET": "/none",
        "EDGED_URL": address if "://" in address else f"http://{address}",
        "EDGED_TOKEN": (daemon.data / "token").read_text().strip(),
    }


def add_slow(daemon):
    tool = daemon.data / "local" / "tools" / "slow"
    tool.mkdir(parents=True, exist_ok=True)
    (tool / "index.sh").write_text("edged-update waiting\nexec sleep 60\n")
    (tool / "TOOL.md").write_text(SLOW)


def test_usable_tools_are_listed(daemon):
    lines = daemon.run("tools").stdout.splitlines()
    assert lines[0].split()[0] == "NAME"
    assert lines[1:] == sorted(lines[1:])
    assert {"echo", "gpio", "sensor", "hello"} <= {line.split()[0] for line in lines}
    assert not any(line.endswith("…") for line in lines)
    parent, child = os.openpty()
    with open(parent, "rb", buffering=0) as screen:
        subprocess.run(
            [*EDGED, "tools"],
            stdout=child,
            env={**daemon.env, "COLUMNS": "80", "TERM": "dumb"},
            check=True,
        )
        os.close(child)
        shown = b"".join(_read_all(screen)).decode().splitlines()
    assert len(shown) == len(lines)
    assert all(len(line) <= 80 for line in shown)


def _read_all(screen):
    """What was written to a terminal; its end is an error (pty(7))."""
    with contextlib.suppress(OSError):
        while part := screen.read(1 << 16):
            yield part


@pytest.mark.parametrize("form", ["mcp", "openai", "openai-responses", "anthropic"])
def test_definitions_are_one_json_array(form, daemon):
    found = json.loads(daemon.run("tools", "--format", form).stdout)
    names = {one.get("name") or one["function"]["name"] for one in found}
    assert "echo" in names


def test_every_listing_verb_prints_one_json_document(daemon):
    """Contract, section 2."""
    assert {row["name"] for row in daemon.json("tools")} <= {
        row["name"] for row in daemon.json("tools", "--all")
    }
    assert daemon.json("describe", "echo")["schema"]["required"] == ["text"]
    assert daemon.json("status")["role"] == "owner"
    assert isinstance(daemon.json("log"), list)
    assert [row["name"] for row in daemon.json("token", "list")] == ["first"]
    assert {a["kind"] for a in daemon.json("sync", "--dry-run")["actions"]} == {"keep"}
    assert daemon.json("config")["tools"]["echo"] == {"enabled": True}
    assert {f["level"] for f in daemon.json("doctor")} <= {"ok", "note", "warning"}


def test_tool_is_described_for_people(daemon):
    text = daemon.run("describe", "echo").stdout
    assert text.splitlines()[0].startswith("echo")
    assert "source    built-in" in text
    assert "text   string  required  What to return." in text


def test_each_value_that_an_input_may_have_is_told(daemon):
    """Also where nothing is cut for a terminal: there is no other place to read them."""
    text = daemon.run("describe", "sensor").stdout
    assert "calibrate, describe, history, identify, list, read." in text
    # As they are written on the command line.
    assert re.search(r"^raw +boolean +default false ", text, re.MULTILINE)
    assert re.search(r"^since +string +default 1h ", text, re.MULTILINE)


def test_call_prints_the_text(daemon):
    assert daemon.run("call", "echo", "text=ü = 1").stdout == "ü = 1\n"
    assert daemon.run("call", "echo", "--args", "-", stdin='{"text": "a"}').stdout == "a\n"
    # A number in a text stays a text.
    assert daemon.run("call", "echo", "text=010").stdout == "010\n"


def test_failure_is_exit_code_1_on_standard_error(daemon):
    done = daemon.run("call", "echo", "txt=1", code=1)
    assert done.stdout == ""
    assert "txt" in done.stderr
    assert "text" in done.stderr
    unknown = daemon.run("call", "ecko", code=1)
    assert unknown.stderr.startswith("edged: no tool named 'ecko'")


def test_object_input_is_taken_as_its_declared_type(daemon):
    done = daemon.run("call", "tool_call", "name=echo", 'arguments={"text": "inner"}')
    assert done.stdout == "inner\n"


def test_switched_off_tool_says_so_until_it_is_switched_on(daemon):
    assert daemon.run("tools", "--disable", "gpio").stdout == "gpio: disabled\n"
    try:
        assert "gpio" not in daemon.run("tools").stdout
        rows = {row["name"]: row for row in daemon.json("tools", "--all")}
        assert rows["gpio"]["status"] == "disabled"
        assert "is disabled" in daemon.run("call", "gpio", "action=list", code=1).stderr
        assert "owner's act" in daemon.run("config", "--explain").stdout
    finally:
        dropped = daemon.run("config", "--reset", "tools.gpio.enabled").stdout
        assert dropped == "tools.gpio.enabled: false dropped\n"
        # At once, by the daemon that runs there.
        assert "gpio" in daemon.run("tools").stdout
        assert "owner's act" not in daemon.run("config", "--explain").stdout
        assert daemon.run("tools", "--enable", "gpio").stdout == "gpio: enabled\n"


def test_broken_tool_is_listed_with_file_and_reason(daemon):
    tool = daemon.data / "local" / "tools" / "broken"
    tool.mkdir(parents=True)
    (tool / "TOOL.md").write_text("---\nname: broken\n---\n")
    try:
        text = daemon.run("tools", "--all").stdout
        assert "invalid" in text
        assert f"{tool}/TOOL.md" in text
        assert daemon.run("check-tool", str(tool), code=1).stdout.count("error: ") >= 1
        note = "1 tool is blocked: edged tools --all says why\n"
        assert daemon.run("tools").stderr == f"edged: {note}"
        assert f" {note}" in daemon.run("status").stdout
    finally:
        (tool / "TOOL.md").unlink()
        tool.rmdir()


@pytest.mark.parametrize("language", ["python", "bash", "typescript"])
def test_new_tool_works_as_it_is_written(language, daemon):
    """README, first half hour: new-tool, check-tool, the printed cp, call."""
    name = f"my_{language}"
    printed = daemon.run("new-tool", name, "--language", language).stdout
    assert daemon.run("check-tool", name).stdout == f"{name}: nothing to mend\n"
    (copy,) = [line for line in printed.splitlines() if "cp -r" in line]
    subprocess.run(["sh", "-c", copy], check=True, cwd=daemon.base)
    done = daemon.run("call", name, "text=hello", "times=2", "style=loud", "--stream")
    assert done.stdout == "HELLO\nHELLO\n"
    # What bash prints is an update too.
    assert done.stderr.splitlines()[0] == "Repeating 2 times..."
    wrong = daemon.run("call", name, "text=hello", "times=0", code=1)
    assert "times must be" in wrong.stderr


def test_whole_of_a_cut_output_is_saved(daemon):
    """Contract, section 7: cut at 50 KB; the cut names the media:// path of the whole."""
    daemon.run("new-tool", "long", "--directory", str(daemon.data / "local" / "tools"))
    words = ["call", "long", f"text={'x y ' * 40}", "times=1000"]
    assert daemon.run(*words).stdout == "\n".join(["x y " * 40] * 1000) + "\n"
    done = daemon.run(*words, "--output", "saved")
    assert len(done.stdout.encode()) < 51_000
    assert done.stderr == "edged: whole output: saved/output.txt\n"
    whole = (daemon.base / "saved" / "output.txt").read_text()
    assert whole == "\n".join(["x y " * 40] * 1000)


def test_interrupt_cancels_the_call(daemon):
    add_slow(daemon)
    call = daemon.start("call", "slow", "--stream")
    assert call.stderr.readline() == "waiting\n"
    follow = daemon.start("log", "-f", "--limit", "0", "--json")
    call.send_signal(signal.SIGINT)
    call.communicate(timeout=30)
    assert call.returncode == 130
    follow.kill()
    follow.communicate()
    daemon_sees = _until(lambda: [r for r in daemon.json("log") if r["tool"] == "slow"])
    assert daemon_sees[-1]["outcome"] == "cancelled"


def _until(look):
    for _ in range(200):
        found = look()
        if found:
            return found
    raise AssertionError


def test_time_limit_of_the_caller_holds(daemon):
    add_slow(daemon)
    done = daemon.run("call", "slow", "--timeout", "0.5", code=1)
    assert "timed out after 0.5 s" in done.stderr


def test_log_shows_calls_and_follows_them(daemon):
    follow = daemon.start("log", "-f", "--limit", "0")
    assert follow.stdout.readline().split()[:2] == ["TIME", "TOOL"]
    daemon.run("call", "echo", "text=seen")
    assert "echo" in follow.stdout.readline()
    follow.send_signal(signal.SIGINT)
    follow.communicate(timeout=30)
    assert follow.returncode == 130
    assert daemon.json("log", "--limit", "1")[0]["tool"] == "echo"


def test_reader_that_closes_early_is_no_fault(daemon):
    command = f"{sys.executable} -m edged tools --all --json | head -c 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, env=daemon.env)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"[", b"")


LONG = ["call", "echo", "--args", "-"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (LONG, 0),
        ([*LONG, "--json"], 0),
        (["call", "echo", "txt=1"], 0),
        (["call", "ecko"], 1),
        (["call"], 2),
        (["call", "--help"], 0),
        (["--help"], 0),
        (["status"], 0),
    ],
)
@pytest.mark.parametrize("errors", ["there", "closed"])
def test_pipe_that_nobody_reads_is_no_fault(words, code, errors, daemon):
    """`edged … | head` and `edged … 2>&1 | head`: no word of it, not even at the exit (120)."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*EDGED, *words],
        input=json.dumps({"text": "a line of text\n" * 30_000}).encode(),
        stdout=write,
        stderr=write if errors == "closed" else subprocess.PIPE,
        env={k: v for k, v in daemon.env.items() if k != "PYTHONUNBUFFERED"},
    )
    os.close(write)
    said = done.stderr or b""
    assert b"Exception" not in said
    assert b"Broken pipe" not in said
    assert done.returncode in (0, 1, 2)
    if errors == "closed":
        assert done.returncode == code


SHORT, PARSER = [], ["--socket", "a\N{NO-BREAK SPACE}b"]
"""Options that go by the short road, and one that is left to the parser."""


@pytest.mark.parametrize("more", [SHORT, PARSER], ids=["by-the-short-road", "by-the-parser"])
def test_wrong_address_is_blamed_on_the_command_line(more, tmp_path):
    (tmp_path / "edged.yaml").write_text("http: {listen: []}\n")
    words = ["--config", str(tmp_path / "edged.yaml"), "--data", str(tmp_path / "data"), *more]
    done = subprocess.run(
        [*EDGED, "serve", *words, "--http", "foo"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 2
    assert done.stderr.startswith("edged: --http: 'foo' is not an address: write 127.0.0.1:8420")


def test_second_signal_leaves_running_calls_no_time(serving, until):
    with serving(config="stop_grace: 1h\n") as running:
        call = subprocess.Popen(
            [*EDGED, "call", "exec", "command=touch began; sleep 1000"],
            env={**running.env, "EDGED_SOCKET": running.socket},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        until("the call runs", (running.data / "local" / "workspace" / "began").exists)
        running.signal(signal.SIGINT)
        until("it stops", lambda: "running calls (1) may end within 1h" in running.stderr())
        running.stop()
        call.communicate(timeout=60)
        assert call.returncode != 0


def test_taken_port_is_a_failure_that_passes(tmp_path):
    """A service manager tries again but after EX_CONFIG: by then the port may be free."""
    (tmp_path / "edged.yaml").write_text("http: {rate: 5}\n")
    words = ["--config", str(tmp_path / "edged.yaml"), "--data", str(tmp_path / "data")]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [
                *EDGED,
                "serve",
                *words,
                "--socket",
                str(tmp_path / "s"),
                "--http",
                f"127.0.0.1:{port}",
            ],
            capture_output=True,
            text=True,
        )
    assert done.returncode == 1
    assert f"edged: cannot listen on 127.0.0.1:{port}: port {port} is taken" in done.stderr


@pytest.mark.parametrize("more", [SHORT, PARSER], ids=["by-the-short-road", "by-the-parser"])
def test_wrong_file_ends_the_start_with_a_status_of_its_own(more, tmp_path):
    """sysexits(3): EX_CONFIG, by which systemd knows that trying again is of no use.

    sd-daemon(3): in the journal the reason is an error, in each of its lines.
    """
    config = tmp_path / "edged.yaml"
    config.write_text("sandbox: {warm_memry: 1M}\nhttp: {lisen: []}\n")
    path = tmp_path / "stream"
    with path.open("wb") as stream:
        there = os.fstat(stream.fileno())
        done = subprocess.run(
            [*EDGED, "serve", "--config", str(config), "--data", str(tmp_path / "data"), *more],
            stderr=stream,
            env={**os.environ, "JOURNAL_STREAM": f"{there.st_dev}:{there.st_ino}"},
        )
    assert done.returncode == 78
    lines = path.read_text().splitlines()
    assert lines[0] == f"<3>{config}: 2 faults:"
    assert all(line.startswith(f"<3>  {config}:") for line in lines[1:])
    # Of another verb it is a failure like any other.
    other = subprocess.run(
        [*EDGED, "config", "--config", str(config)], capture_output=True, text=True
    )
    assert (other.returncode, other.stderr[:7]) == (1, "edged: ")


@pytest.mark.parametrize("words", [["tools"], ["call", "hello", "name=Ada"], ["--help"]])
def test_disk_that_is_full_is_told_once(words, daemon):
    """null(4), full(4)."""
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*EDGED, *words],
            stdout=full,
            stderr=subprocess.PIPE,
            env={k: v for k, v in daemon.env.items() if k != "PYTHONUNBUFFERED"},
        )
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
    assert done.stderr.startswith(b"edged: cannot write the output: No space left on device: ")


@pytest.mark.parametrize(
    ("words", "closed", "code"),
    [
        ("tools", ">&-", 0),
        ("call hello name=Ada", ">&- 2>&-", 0),
        ("nonsense", "2>&-", 2),
        ("call hello --args -", "<&-", 2),
        ("status", "<&- >&- 2>&-", 0),
    ],
)
def test_streams_that_are_closed_are_as_good_as_null(words, closed, code, daemon):
    """POSIX shell, duplicating an output file descriptor: `>&-` closes it."""
    done = subprocess.run(
        ["sh", "-c", f"{' '.join(EDGED)} {words} {closed}"],
        env=daemon.env,
        capture_output=True,
        text=True,
        cwd=daemon.base,
    )
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    if closed == "<&-":
        assert done.stderr.startswith("edged: --args -: standard input is empty: ")


@pytest.mark.parametrize(
    "words",
    [
        ["call", "hello", b"name=\xff"],
        ["call", b"\xff"],
        ["call", "hello", "--args", b'{"name": "\xff"}'],
        ["describe", b"\xff"],
        ["tools", "--disable", b"\xff"],
        ["token", "add", b"\xff"],
    ],
)
def test_bytes_that_are_no_text_are_wrong_usage(words, daemon):
    done = subprocess.run([*EDGED, *words], capture_output=True, env=daemon.env)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"edged: ")
    assert done.stderr.endswith(b" is not UTF-8 text: convert it (iconv -t UTF-8)\n")
    assert done.stderr.count(b"\n") == 1


def test_token_is_made_shown_once_and_revoked(daemon, web):
    done = daemon.run("token", "add", "kitchen", "--user", "ada@example.org")
    secret = done.stdout.strip()
    assert "shown once" in done.stderr
    theirs = {**web, "EDGED_TOKEN": secret}
    assert daemon.run("call", "echo", "text=x", env=theirs).stdout == "x\n"
    assert "only an owner" in daemon.run("tools", "--disable", "echo", code=1, env=theirs).stderr
    assert "kitchen" in daemon.run("token").stdout
    assert secret not in daemon.run("token", "--json").stdout
    daemon.run("token", "revoke", "kitchen")
    assert "is not valid (revoked" in daemon.run("tools", code=1, env=theirs).stderr


def test_token_that_is_none_is_told_apart_from_a_missing_one(daemon, web):
    """A revoked or mistyped one is not mended by sending one."""
    told = daemon.run("tools", code=1, env={**web, "EDGED_TOKEN": "mistyped"}).stderr
    assert told.startswith("edged: this token is not valid (revoked or mistyped); ")


def test_body_that_is_wrong_says_where_inputs_go(daemon, web):
    def told(body):
        request = urllib.request.Request(
            f"{web['EDGED_URL']}/api/tools/hello/call",
            data=body,
            headers={
                "Authorization": f"Bearer {web['EDGED_TOKEN']}",
                "Content-Type": "application/json",
            },
        )
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=30)
        with refused.value as answer:
            return json.loads(answer.read())["detail"]

    inputs = "(the tool's inputs go into `arguments`)"
    assert told(b'{"name": "Ada"}').endswith(f"the body takes: arguments, timeout, async {inputs}")
    assert "the body is not JSON: " in told(b"{name")
    assert told(b"{name").endswith(inputs)


def test_everything_for_callers_works_over_http_too(daemon, web):
    names = {row["name"] for row in daemon.json("tools")}
    over = json.loads(daemon.run("tools", "--json", env=web).stdout)
    assert {row["name"] for row in over} == names
    assert daemon.run("describe", "echo", env=web).stdout.startswith("echo")
    assert json.loads(daemon.run("tools", "--format", "mcp", env=web).stdout)
    assert daemon.run("call", "echo", "text=x", env=web).stdout == "x\n"
    assert daemon.run("call", "echo", "txt=x", code=1, env=web).stderr.startswith("edged: echo: ")
    assert "no tool named" in daemon.run("call", "ecko", code=1, env=web).stderr
    assert daemon.run("log", "--limit", "1", env=web).stdout.count("\n") == 2
    assert "version" in daemon.run("status", env=web).stdout
    assert "not offered over HTTP" in daemon.run("sync", code=1, env=web).stderr


def test_updates_come_over_http_too(daemon, web):
    add_slow(daemon)
    done = daemon.run("call", "slow", "--stream", "--timeout", "1", code=1, env=web)
    assert done.stderr.splitlines() == ["waiting", "timed out after 1 s"]


def test_calls_are_followed_over_http_too(daemon, web):
    environment = {**daemon.env, **web}
    follow = subprocess.Popen(
        [*EDGED, "log", "-f", "--json", "--limit", "1"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert json.loads(follow.stdout.readline())["tool"]

    def called():
        daemon.run("call", "echo", "text=x")
        return True

    # The events begin a moment after the first record: one of the calls is seen.
    calls = [called() for _ in range(3)]
    assert calls
    assert json.loads(follow.stdout.readline())["outcome"] == "ok"
    follow.kill()
    follow.communicate()


def test_daemon_is_asked_by_the_bridge(daemon):
    request = '{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n'
    done = daemon.run("mcp", stdin=request)
    names = [tool["name"] for tool in json.loads(done.stdout)["result"]["tools"]]
    assert "echo" in names


def test_doctor_asks_the_daemon(daemon):
    text = daemon.run("doctor").stdout
    assert "ok       daemon" in text
    assert "in use by the daemon" in text
    assert f"http           {daemon.json('status')['listen'][1]} answers\n" in text
    assert "fault" not in text


def test_second_daemon_on_the_same_data_is_refused(daemon):
    done = daemon.run("serve", "--socket", str(daemon.base / "other.sock"), code=1)
    assert "another daemon uses" in done.stderr


def test_sync_without_a_daemon_does_it_itself(tmp_path):
    env = {**os.environ, "DATA_PATH": str(tmp_path / "d"), "EDGED_SOCKET": str(tmp_path / "none")}
    words = [*EDGED, "sync", "--json"]
    dry = subprocess.run([*words, "--dry-run"], capture_output=True, env=env, check=True)
    assert {a["kind"] for a in json.loads(dry.stdout)["actions"]} == {"add"}
    assert not (tmp_path / "d").exists()
    subprocess.run(words, capture_output=True, env=env, check=True)
    assert (tmp_path / "d" / "tools" / "hello" / "TOOL.md").exists()
    again = subprocess.run(words, capture_output=True, env=env, check=True)
    assert {a["kind"] for a in json.loads(again.stdout)["actions"]} == {"keep"}


def test_doctor_is_truthful_without_a_daemon(tmp_path):
    env = {
        **{k: v for k, v in os.environ.items() if not k.startswith("EDGED_")},
        "DATA_PATH": str(tmp_path / "data"),
        "EDGED_SOCKET": str(tmp_path / "none.sock"),
        "EDGED_CONFIG": str(Path(tmp_path) / "edged.yaml"),
    }
    done = subprocess.run([*EDGED, "doctor", "--json"], capture_output=True, env=env)
    found = json.loads(done.stdout)
    levels = {one["check"]: one["level"] for one in found}
    # The file was named and is not there.
    assert (done.returncode, levels["configuration"]) == (1, "fault")
    assert (levels["daemon"], levels["data"], levels["python"]) == ("note", "ok", "ok")
    assert not (tmp_path / "data").exists()


def test_wait_for_a_daemon_that_never_comes_ends(tmp_path):
    env = {**os.environ, "EDGED_SOCKET": str(tmp_path / "none.sock")}
    words = [*EDGED, "status", "--wait-ready", "--timeout", "0.3"]
    done = subprocess.run(words, capture_output=True, env=env)
    assert done.returncode == 3
    assert b"no daemon answers" in done.stderr


REFUSED = (
    "tools --enable nope", "describe nope", "call nope", "call read_file path=nope",
    "call read_file path=/etc/shadow", "call exec command=false", "scan --bus nope",
    "check-tool /nope", "skills show nope", "skills remove nope", "skills update nope",
    "skills check .", "agents show nope", "agents run nope task", "agents task nope",
    "agents stop nope", "agents import /nope", "jobs show nope", "jobs run nope",
    "jobs remove nope", "web-search nope --enable", "grant nope once", "grant --forget nope",
    "mcp-server remove nope", "mcp-server test nope", "mcp-server add A/b -- x",
    "token add first", "token revoke nope", "config --reset nope",
)  # fmt: skip
DONE = (
    "tools", "describe echo", "call echo text=x", "scan", "sensors", "skills", "agents",
    "agents tasks", "sync", "jobs", "log", "status", "web-search", "grant", "mcp-server", "token",
    "config", "completion bash", "safe",
)  # fmt: skip


@pytest.mark.parametrize("words", REFUSED)
def test_what_was_refused_or_failed_is_exit_code_1_and_told(daemon, words):
    """Contract, section 2; a check's findings go to standard output, all else to the other."""
    done = daemon.run(*words.split(), code=1)
    assert bool(done.stdout) == ("check" in words)
    assert bool(done.stderr) == ("check" not in words)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", DONE)
def test_what_was_done_is_exit_code_0(daemon, words):
    """Contract, section 2."""
    daemon.run(*words.split())
