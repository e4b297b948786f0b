"""Values of `tools:` that cannot work are refused with their line and what to write instead."""

import pytest

from edged.errors import ConfigError
from edged.settings import load

REFUSED = (
    ("files: {read: ['']}", "files.read[0]: '' is no path: write one such as /var/log/*"),
    ("files: {read: [/a, ../b]}", "files.read[1]: '../b' has . or .. in it"),
    ("files: {write: [/a/./b]}", "files.write[0]: '/a/./b' has . or .. in it"),
    ("files: {deny: [' ']}", "files.deny[0]: ' ' is no path"),
    ("files: {read: [/proc/cpuinfo]}", "files.read[0]: '/proc/cpuinfo' is of processes"),
    ("files: {quota: 10%}", "files.quota: '10%' is not a size"),
    ("files: {reserve: x}", "files.reserve: 'x' is not a size"),
    ("exec: {timeout: 2h}", "exec.timeout: is over timeout_max, which is 1h"),
    ("exec: {timeout: 9, timeout_max: 5}", "exec.timeout: is over timeout_max, which is 5"),
    ("exec: {devices: [/dev/i2c-1]}", "exec.devices[0]: '/dev/i2c-1' is no name below /dev"),
    ("exec: {devices: [../x]}", "exec.devices[0]: '../x' is no name below /dev"),
    ("exec: {deny: ['']}", "exec.deny[0]: is empty, and so is found in every command"),
    ("exec: {allow: [a, '']}", "exec.allow[1]: is empty, and so is found in every command"),
    ("web: {proxy: 'http://'}", "web.proxy: is no address such as http://192.168.1.5:8080"),
    ("web: {proxy: 'socks5://x:99999'}", "web.proxy: is no address"),
    ("web: {proxy: 'ftp://x'}", "web.proxy: must begin with http:// or https:// or socks5://"),
    ("web: {searxng: {base_url: 'http://x y/'}}", "web.searxng.base_url: is no address"),
    ("web: {brave: {api_key: 'two words'}}", "web.brave.api_key: a key has characters"),
    ("skills: {registries: {a b: {kind: http, url: 'http://x'}}}", "a name has letters, digits"),
    ("skills: {registries: {a: {kind: http, url: 'http://'}}}", "registries.a.url: is no address"),
    ("skills: {registries: {clawhub: {path: /x}}}", "clawhub.path: is not of a registry of the"),
    ("skills: {registries: {clawhub: {repositories: [a/b]}}}", "clawhub.repositories: is not of"),
    ("skills: {registries: {a: {kind: directory, path: /x, token: y}}}", "a.token: is not of a"),
    ("mcp: {servers: {a: {url: 'http://'}}}", "servers.a.url: is no address"),
    ("mcp: {servers: {a: {command: x, devices: [/dev/x]}}}", "servers.a.devices[0]: '/dev/x' is"),
)

ACCEPTED = (
    "files: {read: [/var/log/*, logs, '*.key', ~/x, /], write: ['**/.cache'], deny: [/proc]}",
    "files: {quota: auto, reserve: auto}",
    "files: {quota: 0, reserve: 0}",
    "exec: {timeout_max: 30}",
    "exec: {timeout: 1h, devices: [i2c-1, bus/usb/001/002, sys/class/gpio], deny: [.*]}",
    "web: {proxy: 'socks5h://user:pass@[::1]:1080', searxng: {base_url: 'http://board.local/x'}}",
    "web: {brave: {api_key: ''}, provider: brave}",
    "skills: {registries: {clawhub: {url: 'http://127.0.0.1:1', token: x}}}",
    "skills: {registries: {github: {token: x, repositories: [a/b]}, b: {kind: directory, path: /x}}}",
)


@pytest.fixture
def loaded(tmp_path):
    def read(line):
        path = tmp_path / "edged.yaml"
        path.write_text(f"tools:\n  {line}\n")
        return load(str(path), explicit=True)

    return read


@pytest.mark.parametrize(("line", "says"), REFUSED)
def test_what_cannot_work_stops_the_start_and_says_what_to_write(loaded, line, says):
    """README, Configuration: a mistake stops the start."""
    with pytest.raises(ConfigError) as caught:
        loaded(line)
    assert caught.value.line == 2
    assert says in str(caught.value)


@pytest.mark.parametrize("line", ACCEPTED)
def test_what_works_is_accepted(loaded, line):
    assert loaded(line).sections


def test_addresses_with_passwords_are_not_told(loaded):
    """Laws: no secret in a message."""
    with pytest.raises(ConfigError) as caught:
        loaded("web: {proxy: 'http://user:hunter2@'}")
    assert "hunter2" not in str(caught.value)
