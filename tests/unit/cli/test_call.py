"""`edged call`: how words become arguments, and results become text and files."""

import base64
import io
import os
import resource
import signal
from binascii import b2a_base64

import msgspec
import pytest

from edged.cli import call, run, save
from edged.client import Medium
from edged.errors import NotFoundError, UnknownToolError
from edged.results import Audio, Image, Resource, ResourceLink, Result, Text, Truncated


class FakeClient:
    """Remembers what it was asked; `media` by URL."""

    def __init__(self, result=None, schema=None, media=None):
        self.result = result or Result([Text("done")])
        self.schema = schema
        self.media = media or {}
        self.called = []
        self.asked = []

    def request(self, method, params=None):
        self.asked.append((method, params))
        if self.schema is None:
            raise UnknownToolError(params["name"])
        return {"schema": self.schema}

    def call(self, name, arguments, **options):
        self.called.append((name, arguments, options))
        if options["on_update"]:
            options["on_update"]([Text("half\nway")])
        return self.result

    def medium(self, uri):
        if uri not in self.media:
            raise NotFoundError("no medium: it expired")
        return self.media[uri]


@pytest.fixture
def daemon(monkeypatch):
    """Let the verb connect to a client that is made for the test."""

    def use(**facts):
        client = FakeClient(**facts)
        monkeypatch.setattr(call, "connect", lambda _: client)
        return client

    return use


def test_pairs_are_sent_as_text(daemon):
    """Contract, section 2: a value is text, taken as the input's declared type."""
    client = daemon()
    assert run(["call", "t", "a=1", "b=x=y", "c="]) == 0
    assert client.called[0][:2] == ("t", {"a": "1", "b": "x=y", "c": ""})
    assert client.asked == []


def test_lists_and_objects_are_read_where_the_schema_wants_them(daemon):
    schema = {
        "properties": {
            "names": {"type": "array"},
            "text": {"type": "string"},
            "maybe": {"anyOf": [{"type": "object"}, {"type": "null"}]},
            "either": {"anyOf": [{"type": "array"}, {"type": "string"}]},
            "data": {"anyOf": [{"type": "array"}, {"type": "string"}, {"type": "object"}]},
        }
    }
    client = daemon(schema=schema)
    words = ['names=["a"]', "text=[1]", 'maybe={"a":1}', "either=[1]", "new={}"]
    words += ['data={"hex":"0102"}']
    assert run(["call", "t", *words]) == 0
    assert client.called[0][1] == {
        "names": ["a"],
        "text": "[1]",
        "maybe": {"a": 1},
        "either": [1],
        "data": {"hex": "0102"},
        "new": "{}",
    }


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "array"}, "data: begins like JSON and is none: Input data was truncated"),
        (
            {"anyOf": [{"type": "array"}, {"type": "string"}]},
            "text that begins so goes with --args",
        ),
    ],
)
def test_what_begins_like_a_list_and_is_none_is_not_sent_as_text(daemon, capsys, schema, says):
    """A chip would be sent the brackets."""
    client = daemon(schema={"properties": {"data": schema}})
    assert run(["call", "t", "data=[1,"]) == 2
    assert says in capsys.readouterr().err
    assert client.called == []


def test_unknown_tool_is_left_to_the_call(daemon):
    client = daemon()
    assert run(["call", "t", "a=[1]"]) == 0
    assert client.called[0][1] == {"a": "[1]"}


def test_object_is_sent_as_it_was_written(daemon):
    client = daemon()
    assert run(["call", "t", "--args", ' {"n": 1.50} ']) == 0
    assert bytes(client.called[0][1]) == b'{"n": 1.50}'


def test_files_are_read_where_they_are_named(daemon, tmp_path):
    client = daemon()
    (tmp_path / "text").write_bytes(b"line\r\n")
    (tmp_path / "args").write_text('{"a": 2}')
    assert run(["call", "t", f"a=@{tmp_path}/text"]) == 0
    assert run(["call", "t", "--args", f"@{tmp_path}/args"]) == 0
    assert client.called[0][1] == {"a": "line\r\n"}
    assert msgspec.json.decode(client.called[1][1]) == {"a": 2}


@pytest.mark.parametrize("text", ["@daily", "@all come", "@a/b\nc", "@" + "long" * 100, "@@", "@"])
def test_text_that_begins_with_an_at_is_written_with_two(text, daemon):
    client = daemon()
    assert run(["call", "t", f"a=@{text}"]) == 0
    assert client.called[0][1] == {"a": text}


def test_file_whose_name_begins_with_an_at_is_read(daemon, tmp_path, monkeypatch):
    client = daemon()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "@daily").write_text("of the file")
    assert run(["call", "t", "a=@@daily"]) == 0
    assert client.called[0][1] == {"a": "of the file"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["a"], "'a' is no input: write key=value"),
        (["=a"], "'=a' is no input"),
        (["a=1", "a=1"], "a is given twice"),
        (["a=1", "--args", "{}"], "'a=1': --args gives the inputs already: use one"),
        (["--args", "{}", "a=1"], "'a=1': --args gives the inputs already: use one"),
        (['{"a": 1}'], "inputs as a JSON object go with --args"),
        (["a=@/none"], "a: cannot read /none: No such file or directory: name a text file"),
        (["a=@daily"], "after the @, or write @@daily for the text @daily"),
        (["--args", "@@daily"], "--args: cannot read @daily: No such file"),
        (["--args", " "], "--args is empty: give an object"),
        (["--args", "@/dev/null"], "--args @/dev/null is empty: give an object"),
        (["--output", "/dev/null/x"], "cannot write /dev/null/x: Not a directory: name another"),
        (["a=@BINARY"], "is not UTF-8 text"),
        (["--args", "{"], "--args: not JSON"),
        (["--args", "[1]"], "--args: must be an object"),
        (["--args", "-"], "--args -: standard input is not UTF-8 text"),
        (["a=\udcff"], r"a=\xff is not UTF-8 text: convert it"),
        (["--args", '{"a": "\udcff"}'], r'"\xff"} is not UTF-8 text'),
        (["--timeout", "0"], "argument --timeout"),
    ],
)
def test_wrong_arguments_are_exit_code_2_before_anything_is_sent(
    words, says, daemon, tmp_path, capsys, monkeypatch
):
    client = daemon()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"a": "\xff"}')))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    words = [word.replace("BINARY", str(tmp_path / "binary")) for word in words]
    assert run(["call", "t", *words]) == 2
    assert says in capsys.readouterr().err
    assert client.called == []


def test_options_reach_the_call(daemon):
    client = daemon()
    run(["call", "t", "--timeout", "2.5"])
    assert client.called[0][2] == {"on_update": None, "timeout_s": 2.5}


def test_text_goes_out_and_updates_beside_it(daemon, capsys):
    daemon(result=Result([Text("one"), Text("two\n"), Text("")]))
    assert run(["call", "t", "--stream"]) == 0
    out, err = capsys.readouterr()
    assert out == "one\ntwo\n\n"
    assert err == "half way\n"


def test_failure_goes_to_standard_error_with_exit_code_1(daemon, capsys):
    daemon(result=Result([Text("times must be 1")], is_error=True))
    assert run(["call", "t"]) == 1
    assert capsys.readouterr() == ("", "times must be 1\n")


def test_json_is_the_whole_result(daemon, capsys):
    """Contract, section 7."""
    daemon(result=Result([Text("x")], call_id="c-1"))
    assert run(["call", "t", "--json"]) == 0
    found = msgspec.json.decode(capsys.readouterr().out)
    assert found["content"] == [{"type": "text", "text": "x"}]
    assert found["call_id"] == "c-1"
    assert found["async"] is False


def test_pictures_are_saved_and_their_paths_printed(daemon, capsys, tmp_path):
    data = base64.b64encode(b"\x89PNG").decode()
    content = [
        Text("see"),
        Image(data, "image/png"),
        Image(data, "image/png"),
        Audio("no base64!", "audio/wav"),
        ResourceLink("media://1", "image"),
        ResourceLink("media://gone", "image"),
        ResourceLink("https://example.org/x", "page"),
        Resource({"uri": "x:y", "text": "embedded"}),
    ]
    media = {"media://1": Medium(b"GIF", "image/gif", "image")}
    daemon(result=Result(content, media=["media://1"]), media=media)
    assert run(["call", "camera", "--output", str(tmp_path / "new" / "out")]) == 0
    out, err = capsys.readouterr()
    directory = tmp_path / "new" / "out"
    assert out.splitlines() == [
        "see",
        f"{directory}/camera.png",
        f"{directory}/camera-2.png",
        "[audio: audio/wav]",
        f"{directory}/image.gif",
        "[media://gone: no medium: it expired]",
        "[page: https://example.org/x]",
        "embedded",
    ]
    assert err == ""
    assert (directory / "camera-2.png").read_bytes() == b"\x89PNG"
    assert (directory / "image.gif").read_bytes() == b"GIF"


CUT = Truncated(900, 3, "start", "media://1")
WHOLE = {"media://1": Medium("all\nthe tëxt\n".encode(), "text/plain; charset=utf-8", "output")}


class Terminal(io.StringIO):
    """A standard output that is a terminal."""

    def isatty(self):
        return True


def test_whole_of_a_cut_output_goes_to_a_file_or_a_pipe(daemon, capsys, tmp_path, monkeypatch):
    """The cut is for a model; who redirects wants what the tool said."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    content = [ResourceLink("https://x", "page"), Text("part\n[first 1 of 3 lines]")]
    daemon(result=Result(content, media=["media://1"], truncated=CUT), media=WHOLE)
    assert run(["call", "t"]) == 0
    assert capsys.readouterr() == ("[page: https://x]\nall\nthe tëxt\n", "")
    assert os.listdir(tmp_path) == []


def test_json_with_a_directory_saves_there_too(daemon, capsys, tmp_path):
    content = [Text("part"), Image(b2a_base64(b"\x89PNG", newline=False).decode(), "image/png")]
    daemon(result=Result(content, media=["media://1"], truncated=CUT), media=WHOLE)
    assert run(["call", "t", "--json", "--output", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert msgspec.json.decode(out)["truncated"]["media"] == "media://1"
    assert err == f"edged: whole output: {tmp_path}/output.txt\n"
    assert (tmp_path / "output.txt").read_bytes() == WHOLE["media://1"].data
    assert (tmp_path / "t.png").read_bytes() == b"\x89PNG"


def test_failure_is_readable_on_a_terminal(daemon, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    text = "no sensor 'nope': there is cellar, greenhouse and the one on the roof"
    daemon(result=Result([Text(text)], is_error=True))
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    assert run(["call", "t"]) == 1
    lines = terminal.getvalue().splitlines()
    assert max(map(len, lines)) <= 40
    assert " ".join(lines) == text


def test_whole_of_a_long_failure_goes_to_standard_error(daemon, capsys):
    content = [Text("part")]
    result = Result(content, is_error=True, media=["media://1"], truncated=CUT)
    daemon(result=result, media=WHOLE)
    assert run(["call", "t"]) == 1
    assert capsys.readouterr() == ("", "all\nthe tëxt\n")


@pytest.mark.parametrize(
    ("truncated", "err"),
    [
        (CUT, "edged: the whole output is not to be had: no medium: it expired\n"),
        (Truncated(900, 3, "start", ""), ""),
    ],
)
def test_cut_text_is_shown_where_the_whole_is_gone(truncated, err, daemon, capsys):
    """Media expire, and a full store keeps none."""
    media = ["media://1"] if truncated.media else []
    daemon(result=Result([Text("part")], media=media, truncated=truncated))
    assert run(["call", "t"]) == 0
    assert capsys.readouterr() == ("part\n", err)


@pytest.mark.parametrize("directory", [True, False])
def test_cut_text_is_shown_on_a_terminal_and_the_whole_is_saved(
    directory, daemon, capsys, tmp_path, monkeypatch
):
    """So it is where a directory for long outputs is named."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    daemon(result=Result([Text("part")], media=["media://1"], truncated=CUT), media=WHOLE)
    terminal = Terminal()
    if not directory:
        monkeypatch.setattr("sys.stdout", terminal)
    assert (
        run(["call", "t", *(["--output", str(tmp_path / "edged-own")] if directory else [])]) == 0
    )
    (path,) = tmp_path.glob("edged-*/output.txt")
    out, err = capsys.readouterr()
    assert (out + terminal.getvalue(), err) == ("part\n", f"edged: whole output: {path}\n")


def test_nothing_is_left_behind_where_nothing_could_be_saved(
    daemon, capsys, tmp_path, monkeypatch
):
    """A full disk (here RLIMIT_FSIZE): no half of a file, no empty directory."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    saver = save.Saver(FakeClient(), "t", None)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limit[1]))
    try:
        assert saver.file(b"x" * 100, "image/png", "plot") == ""
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)
    assert "plot.png: File too large: choose another place with --output" in saver.faults[0]
    assert os.listdir(tmp_path) == []


def test_rest_of_a_result_is_shown_where_a_file_cannot_be_saved(
    daemon, capsys, tmp_path, monkeypatch
):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    picture = Image(base64.b64encode(b"\x89PNG").decode(), "image/png")
    daemon(result=Result([Text("one"), picture, Text("two")]))
    assert run(["call", "t"]) == 1
    out, err = capsys.readouterr()
    assert out == "one\n[image: image/png]\ntwo\n"
    assert err.startswith(f"edged: cannot write {tmp_path}/none/edged-")
    assert err.endswith(": No such file or directory: choose another place with --output\n")


def test_endless_output_of_a_failure_is_saved_and_not_shown(daemon, capsys, tmp_path, monkeypatch):
    """An endless printer is stopped at 64 MiB; nobody reads all that."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    cut = Truncated(call.FAILURE_MAX + 1, 9, "end", "media://1")
    result = Result([Text("part")], is_error=True, media=["media://1"], truncated=cut)
    daemon(result=result, media=WHOLE)
    assert run(["call", "t"]) == 1
    (path,) = tmp_path.glob("edged-*/output.txt")
    assert capsys.readouterr() == ("", f"part\nedged: whole output: {path}\n")


@pytest.mark.parametrize(
    "words", [["--timeout", "5", "a=1"], ["a=1", "--timeout", "5"], ["a=1", "--json", "b=2"]]
)
def test_options_may_stand_among_the_inputs(words, daemon):
    client = daemon()
    assert run(["call", "t", *words]) == 0
    assert client.called[0][1]["a"] == "1"


def test_whole_of_a_cut_output_is_saved_too(daemon, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    media = {"media://1": Medium(b"all", "text/plain; charset=utf-8", "output")}
    daemon(result=Result([Text("part")], media=["media://1", "https://x"]), media=media)
    assert run(["call", "t"]) == 0
    out, err = capsys.readouterr()
    (path,) = tmp_path.glob("edged-*/output.txt")
    assert out == "part\n"
    assert err == f"edged: whole output: {path}\n"
    assert path.read_text() == "all"
    assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("name", "mime", "file"),
    [
        ("plot", "image/png", "plot.png"),
        ("plot.png", "image/png", "plot.png"),
        ("plot.svg", "image/png", "plot.svg.png"),
        ("data.tar", "application/x-tar", "data.tar"),
        ("data", "application/x-unknown", "data.bin"),
        ("../../etc/passwd", "text/plain", "passwd.txt"),
        (".bashrc", "text/plain", "bashrc.txt"),
        ("..", "text/plain", "file.txt"),
        ("a b\x1b[1m", "text/plain", "a_b__1m.txt"),
        ("x.\x1b", "application/x-unknown", "x.bin"),
        ("", "image/png", "t.png"),
    ],
)
def test_names_from_the_daemon_are_safe_in_a_directory(name, mime, file, tmp_path):
    saver = save.Saver(FakeClient(), "t", str(tmp_path))
    assert saver.file(b"", mime, name) == str(tmp_path / file)


@pytest.mark.parametrize("verb", ["call", "describe"])
def test_name_that_nobody_knows_is_explained_by_the_directories(verb, monkeypatch, capsys):
    class Unknowing(FakeClient):
        def request(self, method, params=None):
            if method == "edged/tools/state":
                return {"tools": [{"name": "other", "source": "/d/mine"}]}
            raise UnknownToolError(params["name"])

        def call(self, name, arguments, **options):
            raise UnknownToolError(name)

    monkeypatch.setattr(f"edged.cli.{verb}.connect", lambda _: Unknowing())
    assert run([verb, "mine"]) == 1
    assert capsys.readouterr().err == (
        "edged: no tool named 'mine': the tool in /d/mine is named 'other'\n"
    )
