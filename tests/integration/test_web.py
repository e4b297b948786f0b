"""Search and fetch through a daemon: its doors, its sandbox, its data directory."""

import contextlib
import http.server
import json
import re
import socket
import socketserver
import ssl
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

SPECIFICATION = (Path(__file__).parents[1] / "data" / "tools-api.md").read_text()
PATH = "/api/tools/web-search-config"
HTML = "<!doctype html><title>Pump</title><main><h1>Pump</h1><p>Runs at <b>12 V</b>.</main>"
HUGE = "<i>" * 700_000
RESULT = (
    '<div class="result"><a class="result__a" href="https://a.example/">A</a>'
    '<a class="result__snippet">About a</a></div>'
)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = self.path.partition("?")[0]
        self.server.asked.append(self.path)
        body = {"/page": HTML, "/huge": HUGE, "/html/": RESULT}.get(path, "none").encode()
        self.send_response(200 if path != "/none" else 404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def site():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.asked, server.url = [], f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def daemon(site, serving):
    free = f"duckduckgo: {{base_url: '{site.url}'}}, sogou: {{enabled: false}}"
    config = f"tools: {{web: {{private_host_whitelist: [127.0.0.1], {free}}}}}"
    with serving(config=config) as made:
        yield made


def example(title):
    block = SPECIFICATION.split(title)[1].split("```json")[1].split("```")[0]
    return json.loads(re.sub(r"(?<!:)//[^\n]*", "", block))


def test_a_page_is_read_in_a_sandbox_and_an_agent_gets_its_text(daemon, site):
    result = daemon.call("web_fetch", url=f"{site.url}/page")
    assert result.for_llm.endswith("Title: Pump\n\n# Pump\n\nRuns at **12 V**.")
    assert (result.structured["status"], result.structured["extractor"]) == (200, "markdown")


def test_a_page_that_eats_memory_ends_its_sandbox_and_not_the_daemon(daemon, site):
    """Issue 4, part 5: parsing is bounded in time and memory."""
    result = daemon.call("web_fetch", url=f"{site.url}/huge")
    assert result.is_error
    assert "too much to read" in result.for_llm
    assert "Runs at" in daemon.call("web_fetch", url=f"{site.url}/page").for_llm


def test_that_is_told_alike_where_no_control_group_holds_it(site, serving):
    """Then the process's own limit ends it, as Python tells it: a MemoryError."""
    config = "sandbox: {limits: rlimits}\ntools: {web: {private_host_whitelist: [127.0.0.1]}}"
    with serving(config=config) as daemon:
        result = daemon.call("web_fetch", url=f"{site.url}/huge")
    assert "too much to read: over the memory" in result.for_llm


def test_the_boards_own_network_is_out_of_reach(daemon, site):
    """Picoclaw #3077: by address and by name, the daemon's own door among them."""
    before = len(site.asked)
    port = site.url.rpartition(":")[2]
    for url in (f"http://127.0.0.2:{port}/", f"http://[::1]:{port}/", "http://169.254.169.254/"):
        result = daemon.call("web_fetch", url=url)
        assert result.is_error
        assert "private_host_whitelist" in result.for_llm
    assert len(site.asked) == before


def test_a_search_goes_through_the_free_provider(daemon):
    result = daemon.call("web_search", query="a", provider="brave")
    assert result.structured["provider"] == "duckduckgo"
    assert result.structured["results"] == [
        {"title": "A", "url": "https://a.example/", "snippet": "About a"}
    ]
    assert "brave: has no key" in result.for_llm


def shape(value):
    """Names and kinds, without the values."""
    if isinstance(value, dict):
        return {name: shape(one) for name, one in value.items()}
    return [shape(value[0])] if isinstance(value, list) else type(value)


def test_the_specifications_configuration_is_accepted_and_answered_in_its_shape(daemon):
    """spec/tools-api.md, Web Search Configuration: both examples as they stand there."""
    shown, sent = example("#### Get Web Search Config"), example("#### Update Web Search Config")
    status, before = daemon.http(PATH)
    assert status == 200
    status, after = daemon.http(PATH, sent, method="PUT")
    assert (status, after) == (200, daemon.http(PATH)[1])
    assert after["provider"] == after["current_service"] == "brave"
    assert after["settings"]["brave"] == shown["settings"]["brave"]
    for answer in (before, after):
        reduced = {**answer, "settings": {"brave": answer["settings"]["brave"]}}
        assert shape(reduced) == shape(shown)
    brave = next(row for row in after["providers"] if row["id"] == "brave")
    assert brave == shown["providers"][0]
    daemon.http(PATH, {"provider": "auto", "settings": {"brave": {"api_keys": []}}}, method="PUT")
    assert daemon.http(PATH)[1] == before


def test_keys_are_in_no_answer_and_in_a_file_that_others_cannot_read(daemon):
    body = {"settings": {"kagi": {"api_keys": ["kagi-key-0123"]}}}
    assert "kagi-key" not in json.dumps(daemon.http(PATH, body, method="PUT"))
    file = daemon.data / "state" / "web-search-keys.json"
    assert "kagi-key-0123" in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    shown = daemon.edged("config", "--explain", "--config", daemon.config, "--data", daemon.data)
    assert "kagi-key" not in shown.stdout
    assert re.search(r"api_keys: .*web-search-keys\.json", shown.stdout)
    assert "kagi-key" not in (daemon.data / "state" / "web-search.json").read_text()
    daemon.http(PATH, {"settings": {"kagi": {"api_keys": []}}}, method="PUT")


@pytest.mark.parametrize(
    "body",
    [{"provider": "google"}, {"settings": {"brave": {"max_results": 0}}}, {"unknown": 1},
     {"settings": {"brave": {"api_key": 3}}}, {"settings": {"x": {}}}, {"proxy": "ftp://x"}],
)  # fmt: skip
def test_what_is_wrong_is_refused_and_changes_nothing(daemon, body):
    before = daemon.http(PATH)
    status, problem = daemon.http(PATH, body, method="PUT")
    assert (status, problem["code"]) == (400, "invalid_arguments")
    assert daemon.http(PATH) == before


def test_agents_neither_see_nor_change_the_configuration(daemon):
    """Contract, section 4."""
    token = daemon.cli("token", "add", "web-agent", "--role", "agent").stdout.strip()
    for body, method in ((None, "GET"), ({"provider": "x"}, "PUT")):
        status, problem = daemon.http(PATH, body, token=token, method=method)
        assert (status, problem["code"]) == (403, "denied")


def test_the_command_line_shows_and_changes_it(daemon, site):
    shown = daemon.cli("web-search").stdout
    assert re.search(
        r"^duckduckgo +DuckDuckGo +ready +none needed +10 +first$", shown, re.MULTILINE
    )
    assert re.search(r"^brave +Brave Search +not ready +missing", shown, re.MULTILINE)
    done = daemon.cli("web-search", "brave", "--key-file", "-", "--first", stdin="one\ntwo\n")
    assert re.search(r"^brave +Brave Search +ready +set +10 +first$", done.stdout, re.MULTILINE)
    over_http = ("--url", daemon.url, "--token-file", str(daemon.data / "token"))
    done = daemon.edged("web-search", "brave", "--disable", "--json", *over_http)
    assert json.loads(done.stdout)["settings"]["brave"]["enabled"] is False
    assert daemon.cli("web-search", "nowhere", "--enable").returncode == 1
    assert daemon.cli("web-search", "brave").returncode == 2
    assert daemon.cli("web-search", "--max-results", "3").returncode == 2
    body = {"provider": "auto", "settings": {"brave": {"enabled": True, "api_keys": []}}}
    daemon.http(PATH, body, method="PUT")


def test_what_an_owner_set_outlives_the_daemon(serving):
    body = {"provider": "kagi", "settings": {"kagi": {"api_key": "k", "max_results": 7}}}
    with serving() as daemon:
        _, set_ = daemon.http(PATH, body, method="PUT")
        daemon.stop()
        daemon.start()
        assert daemon.http(PATH)[1] == set_


def test_the_section_switches_search_off_and_says_so(serving):
    """tools.web.enabled; web_fetch has its own switch (spec/tools-api.md, config keys)."""
    with serving(config="tools: {web: {enabled: false}, web_fetch: {enabled: false}}") as daemon:
        rows = {row["name"]: row for row in daemon.http("/api/tools")[1]["tools"]}
        for name, key in (("web_search", "web"), ("web_fetch", "web_fetch")):
            assert (rows[name]["status"], rows[name]["config_key"]) == ("disabled", key)
            assert rows[name]["category"] == "web"
        assert daemon.http(PATH)[1]["current_service"] == ""


class Connect(socketserver.StreamRequestHandler):
    """A proxy that makes tunnels (RFC 9110, section 9.3.6)."""

    def handle(self):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.rfile.read(1)
        target = head.split()[1].decode()
        self.server.asked.append(target)
        host, _, port = target.rpartition(":")
        with socket.create_connection((host, int(port))) as there:
            self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            back = threading.Thread(target=self.copy, args=(there, self.connection))
            back.start()
            self.copy(self.connection, there)
            back.join()

    @staticmethod
    def copy(source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


@pytest.fixture
def secure(tmp_path):
    """An HTTPS server whose certificate is for `localhost`, and that certificate."""
    names = {kind: str(tmp_path / kind) for kind in ("key", "cert")}
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
    options = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    files = ("-keyout", names["key"], "-out", names["cert"])
    subprocess.run(
        ["openssl", "req", "-x509", *options, *subject, *files], check=True, capture_output=True
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(names["cert"], names["key"])
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.asked, server.cert = [], names["cert"]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_through_a_proxys_tunnel_the_certificate_is_still_the_names(serving, secure):
    """Picoclaw #3078: the proxy is asked for the checked address, TLS for the name."""
    port = secure.server_address[1]
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Connect) as proxy:
        proxy.asked = []
        thread = threading.Thread(target=proxy.serve_forever, daemon=True)
        thread.start()
        web = f"private_host_whitelist: [127.0.0.0/8], proxy: 'http://127.0.0.1:{proxy.server_address[1]}'"
        with serving(config=f"tools: {{web: {{{web}}}}}", SSL_CERT_FILE=secure.cert) as daemon:
            good = daemon.call("web_fetch", url=f"https://localhost:{port}/page")
            assert "Runs at" in good.for_llm
            assert proxy.asked == [f"127.0.0.1:{port}"]
            bad = daemon.call("web_fetch", url=f"https://127.0.0.1:{port}/page")
            assert bad.is_error
            assert "certificate" in bad.for_llm.lower()
            assert len(secure.asked) == 1
        proxy.shutdown()
        thread.join()


def test_nothing_of_the_web_is_imported_before_it_is_used():
    """Architecture: start-up and idle cost are features."""
    code = (
        "import sys, edged.daemon, edged.tools.web; "
        "print([n for n in sys.modules if n.startswith(('edged.web.', 'aiohttp', 'justhtml', "
        "'pypdf', 'python_socks'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
