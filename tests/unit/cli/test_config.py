"""`edged config`: what holds, its origin, and no secret."""

import fcntl

import msgspec
import pytest

from edged import plugins, settings
from edged.cli import config, drivers, run, show
from edged.errors import ConfigError
from edged.results import MASK
from edged.store import Store
from edged.transports import http
from edged.yamlio import load

TEXT = """\
http: {listen: [], hosts: ["board.local", "10"]}
tools:
  echo:
    enabled: true
  my_db: {env: {TOKEN: !secret key, SHORT: !secret pin, N: 5}}
resources: {list: [!secret key, {a: "x 1234567"}]}
users:
  1000: ada@example.org
stop_grace: 2s
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    for name in ("EDGED_CONFIG", "EDGED_SOCKET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DATA_PATH", str(tmp_path / "data"))
    (tmp_path / "edged.yaml").write_text(TEXT)
    secrets = tmp_path / "secrets.yaml"
    secrets.write_text('key: "1234567"\npin: "5"\n')
    secrets.chmod(0o600)
    return tmp_path


def explained(place):
    loaded = settings.load(str(place / "edged.yaml"), explicit=True)
    return list(config.explained(loaded, Store(str(place / "data" / "state"))))


def switch(place, text):
    (place / "data" / "state").mkdir(parents=True)
    (place / "data" / "state" / "tool-switches.json").write_text(text)


def test_each_value_has_its_file_and_line_or_is_a_default(place):
    origins = {".".join(v.path): v.origin for v in explained(place)}
    file = place / "edged.yaml"
    assert origins["http.listen"] == f"{file}:1"
    assert origins["tools.echo.enabled"] == f"{file}:4"
    assert origins["users.1000"] == f"{file}:8"
    assert origins["stop_grace"] == f"{file}:9"
    assert origins["http.rate"] == origins["tools.defaults.timeout"] == "default"


def test_owners_act_goes_before_the_file_and_both_are_shown(place):
    """Contract, section 3: a later act of the owner wins over YAML."""
    switch(place, '{"echo": false, "other": true}')
    found = {".".join(v.path): v for v in explained(place)}
    assert found["tools.echo.enabled"].value is False
    assert "owner's act" in found["tools.echo.enabled"].origin
    assert found["tools.echo.enabled"].origin.endswith("edged.yaml:4 says true")
    assert found["tools.other.enabled"].value is True
    assert "says" not in found["tools.other.enabled"].origin


def test_broken_file_of_switches_is_passed_over(place):
    switch(place, "no json")
    values = {".".join(v.path): v.value for v in explained(place)}
    assert values["tools.echo.enabled"] is True
    # It is the daemon's to set aside.
    assert (place / "data" / "state" / "tool-switches.json").exists()


def test_a_switch_stands_where_the_configuration_has_it(place):
    """P, config keys: `mcp.discovery.use_regex`; a family has a switch of its own."""
    switch(place, '{"mcp.discovery.use_regex": false, "mcp": false, "skills": false}')
    found = {".".join(v.path): v for v in explained(place)}
    for key in ("mcp.discovery.use_regex", "mcp.enabled", "skills.enabled"):
        assert found[f"tools.{key}"].value is False
        assert "owner's act" in found[f"tools.{key}"].origin
    assert found["tools.mcp.discovery.enabled"].origin == "default"


# Resetting --------------------------------------------------------------------------------


def kept(place):
    return msgspec.json.decode((place / "data" / "state" / "tool-switches.json").read_bytes())


def test_what_an_owner_set_is_dropped_and_the_file_holds_again(place, capsys):
    """Contract, section 3: `--reset KEY` drops it."""
    switch(place, '{"echo": false, "gone": true, "mcp.discovery.use_bm25": false}')
    before = (place / "edged.yaml").read_bytes()
    assert run(["config", "--reset", "tools.echo.enabled"]) == 0
    assert capsys.readouterr().out == "tools.echo.enabled: false dropped\n"
    assert kept(place) == {"gone": True, "mcp.discovery.use_bm25": False}
    # P fault #1941: nothing that a user wrote is written by edged.
    assert (place / "edged.yaml").read_bytes() == before
    assert run(["config", "--reset", "tools", "--json"]) == 0
    assert msgspec.json.decode(capsys.readouterr().out)["dropped"] == {
        "tools.gone.enabled": True,
        "tools.mcp.discovery.use_bm25": False,
    }
    assert kept(place) == {}


def test_after_a_daemon_the_lock_is_there_and_free(place, capsys):
    """`config` needs no daemon (contract, section 2)."""
    switch(place, '{"echo": false}')
    (place / "data" / "lock").write_text("/run/edged.sock\n")
    assert run(["config", "--reset", "tools.echo.enabled"]) == 0
    assert kept(place) == {}


def test_a_daemon_that_just_starts_is_waited_for(place, capsys):
    """One writer: its file is never written beside it."""
    switch(place, '{"echo": false}')
    with (place / "data" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert run(["config", "--reset", "tools.echo.enabled"]) == 3
    assert "the daemon is starting: try again" in capsys.readouterr().err
    assert kept(place) == {"echo": False}


def test_what_nobody_set_cannot_be_dropped(place, capsys):
    """The error names what there is."""
    switch(place, '{"echo": false}')
    assert run(["config", "--reset", "tools.ech"]) == 1
    assert "there is: tools.echo.enabled" in capsys.readouterr().err
    assert kept(place) == {"echo": False}


def test_secrets_are_never_shown(place, capsys):
    path = str(place / "edged.yaml")
    for more in ([], ["--explain"], ["--json"], ["--json", "--explain"]):
        assert run(["config", "--config", path, *more]) == 0
        out = capsys.readouterr().out
        assert "1234567" not in out
        assert MASK in out
    values = {v.path: v.value for v in explained(place)}
    assert values["tools", "my_db", "env", "SHORT"] == MASK
    # A secret of one character is a whole value, no part of others.
    assert values[("stop_grace",)] == "2s"


def test_text_reads_back_as_the_same_configuration(place, capsys):
    assert run(["config", "--config", str(place / "edged.yaml"), "--explain"]) == 0
    text = capsys.readouterr().out
    assert load(text, "printed").value == config.tree(explained(place))


def test_json_is_the_effective_configuration(place, capsys):
    assert run(["config", "--config", str(place / "edged.yaml"), "--json"]) == 0
    found = msgspec.json.decode(capsys.readouterr().out)
    assert found["http"]["hosts"] == ["board.local", "10"]
    assert found["tools"]["defaults"]["memory"] == "256M"


def test_json_with_origins_is_a_list(place, capsys):
    assert run(["config", "--config", str(place / "edged.yaml"), "--json", "--explain"]) == 0
    rows = msgspec.json.decode(capsys.readouterr().out)
    assert {"key": "http.rate", "value": 100.0, "origin": "default"} in rows


def test_no_file_means_defaults(place, capsys, monkeypatch):
    monkeypatch.setenv("HOME", str(place / "home"))
    missing = settings.load(None, explicit=False)
    assert {v.origin for v in config.explained(missing, Store("/nowhere"))} == {"default"}


def test_missing_file_that_was_named_is_a_fault(place, capsys):
    assert run(["config", "--config", str(place / "none.yaml")]) == 1
    assert "there is no such file" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:99999", "unix:relative"])
def test_address_that_serve_would_refuse_is_refused_with_its_words(address, place, capsys):
    """`edged config` says whether `edged serve` can start."""
    (place / "edged.yaml").write_text(f"http: {{listen: ['{address}']}}\n")
    assert run(["config", "--config", str(place / "edged.yaml")]) == 1
    with pytest.raises(ConfigError) as refused:
        http.parse(address)
    assert capsys.readouterr().err == f"edged: {place}/edged.yaml:1: {refused.value}\n"


def test_fault_of_the_file_has_its_place(place, capsys):
    (place / "edged.yaml").write_text("http:\n  listn: []\n")
    assert run(["config", "--config", str(place / "edged.yaml")]) == 1
    err = capsys.readouterr().err
    assert f"{place}/edged.yaml:2" in err
    assert "listen" in err


def test_fault_of_the_board_has_its_place(place, capsys):
    """`edged config` says whether `edged serve` can start: drivers are asked too."""
    text = (
        "board:\n  sensors:\n    a:\n      driver: ina219\n      options:\n        shunt_ohm: 1\n"
    )
    (place / "edged.yaml").write_text(text)
    assert run(["config", "--config", str(place / "edged.yaml")]) == 1
    assert capsys.readouterr().err == (
        f"edged: {place}/edged.yaml:6: board.sensors.a.options.shunt_ohm: unknown key; "
        "did you mean 'shunt_ohms'?\n"
    )


@pytest.mark.parametrize("name", plugins.names("edged.drivers"))
def test_a_driver_tells_what_it_takes(name, capsys):
    """All of its options, with types and defaults; its address stands beside them."""
    assert run(["config", "--driver", name]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{name}: ")
    assert run(["config", "--driver", name, "--json"]) == 0
    found = msgspec.json.decode(capsys.readouterr().out)
    module = plugins.load("edged.drivers", name)
    options = set(found["options"]["properties"])
    assert options == set(module.Config.__struct_fields__) - {"address", "id"}
    assert all(f"\n{option} " in out for option in options)
    assert all(f"\n{command.name}: " in out for command in module.INFO.commands)


def test_options_are_told_with_type_range_default_and_their_docstring(capsys):
    """From the driver's own `Config`; entries that are settings themselves too."""
    run(["config", "--driver", "ina219"])
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "shunt_ohms number over 0 required of the resistor on the board, which" in " ".join(
        lines
    )
    assert any(line.startswith("samples 1|2|4|8|16|32|64|128 default 1 ") for line in lines)
    run(["config", "--driver", "pca9685"])
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "addresses 55 from 0x40 to 0x77" in lines
    assert "servos.*.max_us number default 2000.0 longest pulse." in lines
    assert any(line.startswith("trim number 0.9 to 1.1 ") for line in lines)


def test_notes_are_those_of_the_fields_alone_and_of_the_bases_too():
    """Google docstrings: a section ends where the next begins."""

    class Base(msgspec.Struct):
        """Settings.

        Attributes:
            first: begins here
                and ends here.
        """

        first: int = 0

    class More(Base):
        """More of them.

        Attributes:
            second: another.

        Raises:
            third: none.
        """

        second: int = 0

    assert drivers.notes(More) == {"first": "begins here and ends here.", "second": "another."}


def test_all_drivers_are_listed(capsys):
    assert run(["config", "--driver"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert names == plugins.names("edged.drivers")
    assert run(["config", "--driver", "--json"]) == 0
    rows = msgspec.json.decode(capsys.readouterr().out)["drivers"]
    assert {"driver": "host", "bus": "sysfs", "title": rows[names.index("host")]["title"]} in rows


def test_a_driver_that_is_not_there_is_told_the_nearest(capsys):
    assert run(["config", "--driver", "bme820"]) == 1
    assert "did you mean 'bme280'?" in capsys.readouterr().err
    assert run(["config", "--driver", "xyz"]) == 1
    assert "(edged config --driver lists them)" in capsys.readouterr().err


def test_origins_stay_within_the_terminal_and_read_back_all_the_same(place, capsys, monkeypatch):
    file = str(place / "edged.yaml")
    words = ["config", "--explain", "--config", file]
    assert run(words) == 0
    whole = capsys.readouterr().out
    assert max(map(len, whole.splitlines())) > 80
    monkeypatch.setattr(show, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", str(len(file) + 30))
    assert run(words) == 0
    shown = capsys.readouterr().out
    assert load(shown, "x").value == load(whole, "x").value
    assert f"  # {file}:1\n  listen: []\n" in shown
    assert [line for line in shown.splitlines() if len(line) > len(file) + 30] == []


def test_keys_of_search_providers_are_never_shown(place, capsys):
    """Also where they are plain text in the file."""
    (place / "edged.yaml").write_text("tools: {web: {brave: {api_key: plain-key}}}\n")
    assert run(["config", "--config", str(place / "edged.yaml")]) == 0
    printed = capsys.readouterr().out
    assert "plain-key" not in printed
    assert MASK in printed


def test_keys_of_model_servers_are_never_shown(place, capsys):
    """Nor what a header says; also where they are plain text in the file."""
    provider = "{model: m, api_key: plain-key, api_keys: [key-2], headers: {X-Key: plain-word}}"
    text = f"tools: {{subagent: {{providers: {{far: {provider}}}}}}}\n"
    (place / "edged.yaml").write_text(text)
    assert run(["config", "--explain", "--config", str(place / "edged.yaml")]) == 0
    printed = capsys.readouterr().out
    assert "X-Key:" in printed
    for secret in ("plain-key", "key-2", "plain-word"):
        assert secret not in printed
    assert "model: m" in printed
