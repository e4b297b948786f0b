"""edged.yaml and its secrets, as files."""

import os

import pytest

from edged import settings
from edged.config import Config, Defaults, UserEntry
from edged.errors import ConfigError
from edged.sections import Exec, Files

EXAMPLE = """\
http: {listen: [127.0.0.1:8420]}        # or also unix:/run/edged-http.sock
users: {1000: ada@example.org, 1001: {user: bob@example.org, role: owner}}
resources: {searxng: {url: http://127.0.0.1:8888}, optical-character-recognition: {engine: tesseract}}
tools:
  defaults: {network: false, timeout: 60, memory: 256M}
  exec: {enabled: true, timeout: 60, ask_permission: true, deny: ["\\\\bmkfs"], allow: [], sessions: 8}
  files: {max_read_size: 64K, read: ["/var/log/*"], write: []}
  web: {enabled: true, provider: auto, proxy: "", brave: {enabled: true, max_results: 10, api_keys: [!secret brave]}}
  skills: {enabled: true, registries: {clawhub: {}, github: {}}}
  subagent: {enabled: true, providers: {local: {kind: openai, base_url: http://127.0.0.1:8080/v1, model: small}}}
  cron: {min_interval: 60s, misfire_grace: 1h}
  mcp: {enabled: true, discovery: {enabled: true, use_regex: true, use_bm25: true, ttl: 5, max_search_results: 5}, servers: {files: {command: npx, args: [-y, server]}}}
  my_db: {env: {MY_DB_PATH: /officer/data/my.db}}
sandbox: {warm_memory: auto, limits: auto}      # `sandbox: none` switches it off
board:
  i2c: {1: {}}
  sensors:
    greenhouse: {driver: bme280, bus: i2c-1, address: 0x76, every: 10s}
    water: {driver: ds18b20, every: 30s}
  gpio:
    pump: {line: GPIO17, direction: output, active_low: true, safe: off}
    door: {line: GPIO27, direction: input, bias: pull-up, edge: both, debounce: 20ms}
messages: {default: ntfy, channels: {ntfy: {kind: webhook, url: http://127.0.0.1:8888/x}}}
"""


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch):
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)


@pytest.fixture
def place(tmp_path):
    """Writes edged.yaml and, where given, secrets.yaml; returns the path of the first."""

    def write(text, secrets=None, mode=0o600):
        if secrets is not None:
            path = tmp_path / "secrets.yaml"
            path.write_bytes(secrets if isinstance(secrets, bytes) else secrets.encode())
            path.chmod(mode)
        config = tmp_path / "edged.yaml"
        config.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(config)

    return write


def load(path):
    return settings.load(path, explicit=True)


def refusal(path):
    with pytest.raises(ConfigError) as caught:
        load(path)
    return caught.value


def test_the_example_of_the_contract_loads(place):
    """Contract, section 11."""
    path = place(EXAMPLE, "brave: 'BSA-123456'\n")
    loaded = load(path)
    assert loaded.file == path
    assert loaded.config.users == {
        "1000": "ada@example.org",
        "1001": UserEntry(user="bob@example.org", role="owner"),
    }
    assert loaded.secrets == ("BSA-123456",)
    assert loaded.config.tools["web"]["brave"]["api_keys"] == ["BSA-123456"]
    assert loaded.defaults == Defaults(network=False, timeout=60, memory="256M")
    assert list(loaded.tools) == ["my_db"]
    assert loaded.tools["my_db"].env == {"MY_DB_PATH": "/officer/data/my.db"}
    assert loaded.config.board.gpio["pump"].safe == "off"
    assert loaded.config.board.sensors["greenhouse"].address == 0x76


def test_without_a_file_the_daemon_runs_on_defaults(tmp_path):
    """Contract, section 3."""
    for path in (None, str(tmp_path / "none.yaml")):
        loaded = settings.load(path, explicit=False)
        assert (loaded.config, loaded.file, loaded.document) == (Config(), "", None)
        assert (loaded.secrets, loaded.defaults, loaded.tools) == ((), Defaults(), {})


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "tools: {}", b"\xef\xbb\xbf{}"])
def test_an_empty_file_is_the_defaults(place, text):
    assert load(place(text)).config == Config()


def test_json_is_accepted(place):
    """Contract, section 3: a JSON file is accepted, being YAML."""
    assert load(place('{"users": {"1000": "ada@example.org"}}')).config.users == {
        "1000": "ada@example.org"
    }


def test_the_users_file_is_never_written(place, tmp_path):
    """Contract, section 3."""
    path = place(EXAMPLE, "brave: 'BSA-123456'\n")
    tmp_path.chmod(0o555)
    before = os.stat(path)
    load(path)
    assert os.stat(path).st_mtime_ns == before.st_mtime_ns
    assert sorted(os.listdir(tmp_path)) == ["edged.yaml", "secrets.yaml"]
    tmp_path.chmod(0o755)


# Faults -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "key", "words"),
    [
        ("http:\n  lisen: []\n", 2, "http.lisen", "did you mean 'listen'?"),
        ("htp: {}\n", 1, "htp", "did you mean 'http'?"),
        ("\nsocket: {max_calls: many}\n", 2, "socket.max_calls", "a whole number"),
        ("socket:\n  max_calls: 0\n", 2, "socket.max_calls", ">= 1, got 0"),
        ("socket: {max_connections: 100000}\n", 1, "socket.max_connections", "<= 65536"),
        ("tools:\n  defaults:\n    timeout: 5000\n", 3, "tools.defaults.timeout", "1s to 1h"),
        ("tools:\n  defaults: {memory: 1M}\n", 2, "tools.defaults.memory", "from 16M"),
        ("tools:\n  a:\n    evn: {}\n", 3, "tools.a.evn", "did you mean 'env'?"),
        ("tools:\n  a: [1]\n", 2, "tools.a", "a mapping"),
        ("tools: [1]\n", 1, "tools", "a mapping"),
        ("audit:\n  interval: 5s\n  size: 8X\n", 3, "audit.size", "write 64K"),
        ("media: {age: -1}\n", 1, "media.age", "is not a duration"),
        ("stop_grace: 2d\n", 1, "stop_grace", "0s to 1h"),
        ("users:\n  1000: ada\n", 2, "users.1000", "such as ada@example.org"),
        ("users:\n  1000:\n    user: a/b@example.org\n", 3, "users.1000.user", "e-mail"),
        ("users: {1000: {user: a@b.c, role: root}}\n", 1, "users.1000.role", "owner, agent"),
        ("users: {ada: ada@example.org}\n", 1, "users.ada", "is not a uid"),
        ("sandbox: nope\n", 1, "sandbox", "none"),
        ("sandbox: {limits: none}\n", 1, "sandbox.limits", "auto, rlimits"),
        ("http: {}\nhttp: {}\n", 2, "", "is there already, on line 1: keep one"),
        (
            "board:\n  allow: []\nboard:\n  sensors: {}\n",
            3,
            "",
            "'board' is there already, on line 1: move what is below it there",
        ),
        ("a: &x 1\n", 1, "", "anchor"),
        ("a: !env X\n", 1, "", "tag '!env'"),
        ("- 1\n", 1, "", "a mapping"),
        (b"http: {}\n\xff\n", 2, "", "is not UTF-8"),
    ],
)
def test_a_fault_stops_the_start_with_its_place(place, text, line, key, words):
    """Contract, section 11: file, line, key path and the nearest known key."""
    path = place(text)
    fault = refusal(path)
    assert (fault.file, fault.line, fault.key) == (path, line, key)
    assert words in fault.reason


def test_all_faults_are_told_at_once(place):
    fault = refusal(place("audit: {size: x}\ntools:\n  a: {env: 1}\n  b: {on: 1}\nnonsense: 1\n"))
    assert sorted((f.line, f.key) for f in fault.faults) == [
        (1, "audit.size"),
        (3, "tools.a.env"),
        (4, "tools.b.on"),
        (5, "nonsense"),
    ]


def test_a_file_that_was_named_must_be_there(tmp_path):
    with pytest.raises(ConfigError, match="there is no such file"):
        load(str(tmp_path / "none.yaml"))


def test_a_file_that_cannot_be_read_is_told(tmp_path):
    assert "cannot be read: Is a directory" in str(refusal(str(tmp_path)))


def test_a_large_file_is_refused_and_never_cut(place):
    """A setting beyond the limit must not be lost silently."""
    text = "#" * (1 << 20) + "\nsandbox: none\n"
    assert "is larger than 1024 KiB" in str(refusal(place(text)))


def test_later_sections_are_read_by_their_own_parts(place):
    """Contract, section 11: keys of `tools` keep the specification's names."""
    loaded = load(place("tools: {subagent: {anything: 1}}\n"))
    assert loaded.tools == {}


@pytest.mark.parametrize(
    ("text", "key", "on"),
    [
        ("", "read_file", True),
        ("", "mcp.discovery.use_regex", True),
        ("{read_file: {enabled: false}}", "read_file", False),
        ("{cron: {enabled: false}}", "cron", False),
        ("{skills: {enabled: false}}", "skills", False),
        ("{mcp: {enabled: false}}", "mcp", False),
        ("{mcp: {enabled: false}}", "mcp.discovery", True),
        ("{mcp: {discovery: {enabled: false}}}", "mcp.discovery", False),
        ("{mcp: {discovery: {use_bm25: false}}}", "mcp.discovery.use_bm25", False),
        ("{exec: {ask_permission: false}}", "exec.ask_permission", False),
    ],
)
def test_a_switch_is_found_by_its_config_key(place, text, key, on):
    """P, config keys; contract, section 11."""
    assert load(place(f"tools: {text or '{}'}\n")).is_on(key) is on


def test_a_switchs_place_is_the_one_of_the_file():
    """Contract, section 3: an owner's act stands beside what the file says."""
    assert settings.switch_path("hello") == "tools.hello.enabled"
    assert settings.switch_path("mcp.discovery") == "tools.mcp.discovery.enabled"
    for key in ("mcp.discovery.use_regex", "exec.ask_permission"):
        assert settings.switch_path(key) == f"tools.{key}"


def test_a_familys_settings_are_checked_and_typed(place):
    """Contract, section 11: an unknown key stops the start, with its line and the nearest."""
    loaded = load(place("tools:\n  exec: {timeout: 90}\n"))
    assert loaded.section(Exec).timeout == 90
    assert loaded.section(Files) == Files()
    assert loaded.tools == {}
    with pytest.raises(ConfigError, match=r":2: tools\.exec\.timeot: unknown key; did you mean"):
        load(place("tools:\n  exec: {timeot: 90}\n"))


# Secrets ----------------------------------------------------------------------------------

ONE = "tools: {a: {env: {KEY: !secret key}}}\n"


def value(path):
    return load(path).tools["a"].env["KEY"]


def test_a_secret_is_read_beside_the_configuration(place):
    """Contract, section 11."""
    path = place(ONE, "key: from file\nother: x\n")
    assert value(path) == "from file"
    assert load(path).secrets == ("from file",)


def test_a_credential_of_systemd_goes_first(place, tmp_path, monkeypatch):
    """Contract, section 11; systemd.exec(5), LoadCredential=; the final newline is none of it."""
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    (credentials / "key").write_text("from systemd\n")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(credentials))
    path = place(ONE, "key: from file\n")
    assert value(path) == "from systemd"
    (credentials / "key").unlink()
    assert value(path) == "from file"


@pytest.mark.parametrize("name", ["../secret", "..", ".", "a/b"])
def test_a_credential_is_a_name_and_no_path(place, tmp_path, monkeypatch, name):
    (tmp_path / "secret").write_text("outside")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_text("outside")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "a"))
    assert "no secret named" in refusal(place(f"stop_grace: !secret {name}\n")).reason


@pytest.mark.parametrize("make", ["directory", "binary"])
def test_a_credential_that_cannot_be_read_is_told(place, tmp_path, monkeypatch, make):
    """It is there: another source must not stand in for it."""
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "credentials"))
    (tmp_path / "credentials").mkdir()
    if make == "directory":
        (tmp_path / "credentials" / "key").mkdir()
    else:
        (tmp_path / "credentials" / "key").write_bytes(b"\xff")
    fault = refusal(place(ONE, "key: from file\n"))
    assert fault.file.endswith("credentials/key")
    assert fault.reason in ("cannot be read: Is a directory", "cannot be read: is not UTF-8 text")


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o601])
def test_secrets_that_others_can_read_are_refused(place, mode):
    """Contract, section 11: not readable by others."""
    path = place(ONE, "key: x\n", mode)
    fault = refusal(path)
    assert fault.file.endswith("secrets.yaml")
    assert "can be read by others: chmod o= " in fault.reason


def test_secrets_may_be_for_a_group(place):
    """Root's file for the service's group."""
    assert value(place(ONE, "key: x\n", 0o640)) == "x"


@pytest.mark.parametrize(
    ("secrets", "words"),
    [
        (None, "no secret named 'key': put it into"),
        ("", "no secret named 'key': put it into"),
        ("kee: x\n", "did you mean 'kee'?"),
    ],
)
def test_a_missing_secret_is_told_with_where_to_put_it(place, tmp_path, secrets, words):
    fault = refusal(place("\n" + ONE, secrets))
    assert (fault.line, fault.key) == (2, "tools.a.env.KEY")
    assert words in fault.reason
    assert str(tmp_path / "secrets.yaml") in fault.reason


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("1.10", "must be text: put it in quotes"),
        ("0x1F", "must be text"),
        ("0", "must be text"),
        ("true", "must be text"),
        ("[a]", "must be text"),
        ("", "is empty"),
        ("''", "is empty"),
    ],
)
def test_a_secret_is_text_as_it_is_written(place, written, words):
    """A number would lose its zeros; nothing would be masked as it was typed."""
    fault = refusal(place(ONE, f"key: {written}\n"))
    assert words in fault.reason
    assert fault.file.endswith("secrets.yaml")


@pytest.mark.parametrize(
    ("data", "words"),
    [(b"\xff", "is not UTF-8"), ("- a\n", "lines of `name: value`"), ("a: 1\na: 2\n", "already")],
)
def test_a_broken_file_of_secrets_is_told(place, data, words):
    fault = refusal(place(ONE, data))
    assert fault.file.endswith("secrets.yaml")
    assert words in fault.reason


def test_a_directory_in_place_of_the_secrets_is_told(place, tmp_path):
    (tmp_path / "secrets.yaml").mkdir(mode=0o700)
    assert "Is a directory" in refusal(place(ONE)).reason


def test_secrets_are_found_in_lists_too(place):
    text = "tools: {subagent: {keys: [!secret a, x, !secret b]}}\n"
    loaded = load(place(text, "a: aaa\nb: bbb\n"))
    assert loaded.config.tools["subagent"] == {"keys": ["aaa", "x", "bbb"]}
    assert loaded.secrets == ("aaa", "bbb")


@pytest.mark.parametrize("name", ["deny", "allow"])
def test_pattern_that_is_none_is_named_with_its_line(place, name):
    """Issue 4: errors of patterns have file and line."""
    text = f"tools:\n  exec:\n    {name}:\n      - ok\n      - '(rm'\n"
    with pytest.raises(ConfigError) as caught:
        load(place(text))
    assert str(caught.value).endswith(
        f"edged.yaml:5: tools.exec.{name}[1]: '(rm': missing ), unterminated subpattern at "
        "position 0"
    )


def test_channels_of_tools_are_those_of_the_file(place):
    """`*` is any: no rule."""
    text = "tools: {exec: {channels: [mail]}, cron: {channels: []}, echo: {channels: ['*', a]}}"
    loaded = load(place(text))
    assert loaded.channels == {"exec": ("mail",), "cron": ()}
    assert load(place("tools: {echo: {}}")).channels == {}


@pytest.mark.parametrize("name", ["exec", "cron", "echo"])
def test_what_is_no_channel_is_refused_where_it_is_said(place, name):
    error = refusal(place(f"tools:\n  {name}:\n    channels: ['a:1', 'a b']"))
    assert (error.line, error.key) == (3, f"tools.{name}.channels[1]")
    assert error.reason == "'a b' is neither a channel, CHANNEL:CHAT, nor *"
