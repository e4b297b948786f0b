"""The README is true: its console examples run, in its order, in an empty directory."""

import asyncio
import os
import re
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from edged import plugins, sections, settings
from edged.board import Board
from edged.bus.sim import SimBuses, SimI2c
from edged.drivers import bme280
from edged.messages._channels import configured
from edged.sections import Exec
from edged.testing import FakeClock

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def examples(text=README, fence="console"):
    """Commands and what they print, in order; … stands for anything."""
    for block in re.findall(rf"```{fence}\n(.*?)```", text, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            yield command, expected


def pattern(expected):
    lines = expected.rstrip("\n").split("\n")
    if lines and lines[-1] == "…":
        lines = [*lines[:-1], "…"]
    return "\n".join(".*".join(map(re.escape, line.split("…"))) for line in lines)


@pytest.fixture
def place():
    # Not tmp_path: the account that runs root's tools may not enter pytest's directories.
    with tempfile.TemporaryDirectory(prefix="edged-readme-") as directory:
        yield from _running(Path(directory))


def _running(tmp_path, config=""):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = tmp_path / "home"
    home.mkdir()
    env = {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "DATA_PATH": str(tmp_path / "data"),
        "EDGED_SOCKET": str(tmp_path / "edged.sock"),
        "EDGED_CONFIG": str(tmp_path / "edged.yaml"),
    }
    (tmp_path / "edged.yaml").write_text(f"http: {{listen: [127.0.0.1:{port}]}}\n{config}")
    tmp_path.chmod(0o755)
    log = (tmp_path / "log").open("w")
    daemon = subprocess.Popen(["edged", "serve", "--sim"], env=env, stderr=log)
    subprocess.run(["edged", "status", "--wait-ready"], env=env, check=True, capture_output=True)

    def real(text):
        return text.replace("~/.local/share/edged", env["DATA_PATH"]).replace("8420", str(port))

    yield home, env, real
    daemon.terminate()
    assert daemon.wait(20) == 0, (tmp_path / "log").read_text()
    log.close()


def check(place, rows):
    """Run commands, and compare what they print."""
    home, env, real = place
    script = ["exec 2>&1"]
    for command, _ in rows:
        script += [f"echo '@@@'; {real(command)}"]
    done = subprocess.run(
        ["bash"],
        input="\n".join(script),
        cwd=home,
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
    )
    outputs = done.stdout.split("@@@\n")[1:]
    assert len(outputs) == len(rows), done.stdout + done.stderr
    for (command, expected), output in zip(rows, outputs, strict=True):
        assert re.fullmatch(pattern(real(expected)), output.rstrip("\n"), re.DOTALL), (
            f"$ {command}\nprinted:\n{output}\nthe README says:\n{expected}"
        )


def test_tour_prints_what_the_readme_says(place):
    """README, "A tour of five minutes" and what follows."""
    rows = list(examples())
    assert len(rows) > 15
    check(place, rows)


def test_messages_of_the_readme_are_accepted():
    """README, "Messages": by a daemon that has such channels."""
    told = README[README.index("## Messages") : README.index("## The board")]
    rows = list(examples(told, "sh"))
    assert len(rows) == 4
    channels = "{phone: {kind: ntfy, topic: shed-4711, url: 'http://127.0.0.1:9'}, stream: {kind: events}}"
    config = f"messages: {{default: phone, channels: {channels}}}\n"
    with tempfile.TemporaryDirectory(prefix="edged-readme-") as directory:
        with contextmanager(_running)(Path(directory), config) as place:
            check(place, rows)


def test_other_mcp_servers_of_the_readme_are_used(place):
    """README, "Tools of other MCP servers": its program is one, its settings are accepted."""
    told = README[README.index("## Tools of other MCP servers") : README.index("## The web")]
    home = place[0]
    (home / "dice.py").write_text(re.search(r"```python\n(.*?)```", told, re.DOTALL).group(1))
    check(place, list(examples(told, "sh")))
    text = re.search(r"```yaml\n(.*?)```", told, re.DOTALL).group(1)
    secrets = home / "secrets.yaml"
    secrets.write_text("wiki: Bearer x\nnotes: key\n")
    secrets.chmod(0o600)
    loaded = settings.parse(text, str(home / "edged.yaml"))
    servers = loaded.section(sections.Mcp).servers
    assert {name: one.link for name, one in servers.items()} == {
        "files": "stdio", "wiki": "http", "notes": "stdio",
    }  # fmt: skip
    assert servers["files"].has_network
    assert servers["wiki"].headers == {"Authorization": "Bearer x"}


def test_board_of_the_readme_is_a_board():
    """Every driver takes the options that it is shown with."""
    _, text = re.findall(r"```yaml\n(board:.*?)```", README, re.DOTALL)
    config = settings.parse(text, "edged.yaml").config.board
    board = Board(config, SimBuses(), FakeClock())
    assert {s.name for s in board.sensors} == {"greenhouse", "soil", "water", "meter"}
    assert [
        channel.unit for s in board.sensors for channel in s.channels if s.name == "meter"
    ] == ["V"]


def test_alarm_of_the_readme_is_told_in_the_readmes_words(capfd):
    """README, "Wire a sensor": by the daemon that reads it."""
    text, _ = re.findall(r"```yaml\n(board:.*?)```", README, re.DOTALL)
    config = settings.parse(text, "edged.yaml").config.board
    clock = FakeClock()
    chip = bme280.Sim(clock, temperature_cel=31.2)
    buses = SimBuses(i2c={"i2c-1": SimI2c("i2c-1", {0x76: chip})})

    async def sleep(seconds):
        clock.advance(seconds)

    async def read():
        async with Board(config, buses, clock, sleep=sleep) as board:
            await board.read("greenhouse")

    asyncio.run(read())
    told = re.search(r"`(edged: warning: alarm:.*?)`", README, re.DOTALL)[1]
    assert capfd.readouterr().err == " ".join(told.split()) + "\n"


def test_web_section_of_the_readme_is_a_configuration(tmp_path):
    text = re.search(r"```yaml\n(tools:\n  web:.*?)```", README, re.DOTALL)[1]
    (tmp_path / "secrets.yaml").write_text("brave: one\nbrave_2: two\n")
    (tmp_path / "secrets.yaml").chmod(0o600)
    web = settings.parse(text, str(tmp_path / "edged.yaml")).section(sections.Web)
    assert web.brave.api_keys == ["one", "two"]
    told = README[README.index("## The web") : README.index("## The board")]
    assert set(plugins.names("edged.web.providers")) <= set(re.findall(r"[a-z_]+", told))


def test_messages_section_of_the_readme_is_a_configuration(tmp_path):
    text = re.search(r"```yaml\n(messages:.*?)```", README, re.DOTALL)[1]
    names = re.findall(r"!secret (\w+)", text)
    words = dict.fromkeys(names, "https://example.org/x") | {"bot": "'1:abc'"}
    (tmp_path / "secrets.yaml").write_text("".join(f"{n}: {w}\n" for n, w in words.items()))
    (tmp_path / "secrets.yaml").chmod(0o600)
    section = settings.parse(text, str(tmp_path / "edged.yaml")).section(sections.Messages)
    kinds = [kind.__name__.rpartition(".")[2] for _, kind, _ in configured(section.channels)]
    assert set(kinds) == set(plugins.names("edged.messages"))
    told = README[README.index("## Messages") : README.index("## The board")]
    rows = dict(
        re.findall(r"^\| ([a-z]+) \| (.*) \|$", told.split("| settings |")[1], re.MULTILINE)
    )
    for _, kind, _ in configured(section.channels):
        name = kind.__name__.rpartition(".")[2]
        fields = {one.encode_name for one in msgspec.structs.fields(kind.Config)} - {"kind"}
        assert fields <= set(re.findall(r"`([a-z_]+)`", rows.get(name, "") + rows["each"])), name
        assert f"| {name} | " in told


def test_skills_section_of_the_readme_is_a_configuration(tmp_path):
    """And its kinds are those that there are."""
    text = re.search(r"```yaml\n(tools:\n  skills:.*?)```", README, re.DOTALL)[1]
    (tmp_path / "secrets.yaml").write_text("github: one\n")
    (tmp_path / "secrets.yaml").chmod(0o600)
    skills = settings.parse(text, str(tmp_path / "edged.yaml")).section(sections.Skills)
    kinds = {one.kind_of(name) for name, one in skills.registries.items()}
    assert kinds == set(plugins.names("edged.skills.registries"))


def test_every_driver_and_hardware_tool_is_named_in_the_readme():
    """Whoever looks for a chip finds it."""
    table = README[README.index("| measures | drivers |") : README.index("## What holds a tool")]
    named = set(re.findall(r"[a-z][a-z0-9_]+", table))
    assert set(plugins.names("edged.drivers")) <= named
    tools = README[README.index("| tool | does |") : README.index("| measures | drivers |")]
    for name in ("sensors", "actuators", "gpio", "i2c", "spi", "serial", "onewire"):
        for one in plugins.load("edged.tools", name).TOOLS:
            row = re.search(rf"^\| `{one.name}` \| (.*) \|$", tools, re.MULTILINE)[1]
            actions = one.schema["properties"]["action"]["enum"]
            assert set(row.split(", ")) == set(actions), one.name


def test_yaml_example_of_the_readme_is_a_configuration(tmp_path):
    """README, "Configuration"."""
    text = re.search(r"```yaml\n(http:.*?)```", README, re.DOTALL)[1]
    loaded = settings.parse(text, str(tmp_path / "edged.yaml"))
    assert loaded.config.http.listen == ["127.0.0.1:8420"]


def test_shell_settings_of_the_readme_are_settings(tmp_path):
    """README, "Shell": all of them, with their defaults."""
    text = re.search(r"```yaml\n(tools:\n  exec:.*?)```", README, re.DOTALL)[1]
    section = settings.parse(text, str(tmp_path / "edged.yaml")).section(Exec)
    shown = set(re.findall(r"^    (\w+):", text, re.MULTILINE))
    assert shown == set(Exec.__struct_fields__) - {"enabled"}
    for name in shown - {"devices", "deny", "allow"}:
        assert getattr(section, name) == getattr(Exec(), name)


def test_channels_of_tools_of_the_readme_are_settings(tmp_path):
    """README, "Messages": which tools may be called from which channel."""
    text = re.search(r"```yaml\n(tools:\n  exec: \{channels.*?)```", README, re.DOTALL)[1]
    assert settings.parse(text, str(tmp_path / "edged.yaml")).channels == {
        "exec": ("telegram:123456",),
        "write_file": ("telegram", "mail"),
        "install_skill": (),
    }


def test_tool_example_of_the_readme_is_a_tool():
    """README, "Tools"."""
    from edged.toolmd.manifest import parse

    text = re.search(r"```yaml\n(---\nname: soil.*?)```", README, re.DOTALL)[1]
    found = parse(text.encode(), "TOOL.md")
    assert found.warnings == ()
    assert found.calls == ("sensor",)


def test_configuration_error_of_the_readme_reads_so(tmp_path):
    """README, "Configuration": file, line, key path, nearest known key."""
    from edged.errors import ConfigError

    with pytest.raises(ConfigError) as caught:
        settings.parse("tools:\n  {}\nsandbox: {warm_memry: 64M}\n", "/etc/edged/edged.yaml")
    shown = re.search(r"^    edged: (/etc/edged/edged.yaml.*)$", README, re.MULTILINE)[1]
    assert str(caught.value) == shown


def test_commands_of_the_readme_are_those_of_the_program():
    """README, "Commands", against `edged --help`."""
    told = subprocess.run(
        [sys.executable, "-m", "edged", "--help"],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "80"},
    ).stdout
    section = README.split("## Commands")[1].split("## For developers")[0]
    for verb in re.findall(r"`(?:edged )?([a-z][a-z-]+)`", section.split("Each has")[0]):
        assert re.search(rf"^ +{verb} ", told, re.MULTILINE), verb


def test_call_from_inside_of_the_readme_works(place):
    """README, "Tools": the example that calls `sensor`."""
    _home, env, _real = place
    source = re.search(r"```python\n(# index.py, with.*?)```", README, re.DOTALL)[1]
    tool = Path(env["DATA_PATH"], "local", "tools", "warmth")
    tool.mkdir(parents=True)
    manifest = "---\nname: warmth\ndescription: Reads.\nversion: 1\nlanguage: python\n"
    (tool / "TOOL.md").write_text(f"{manifest}calls: [sensor]\n---\n")
    (tool / "index.py").write_text(source)
    done = subprocess.run(["edged", "call", "warmth"], env=env, capture_output=True, text=True)
    assert re.fullmatch(r"\d{1,2}\.\d Cel\n", done.stdout), done
