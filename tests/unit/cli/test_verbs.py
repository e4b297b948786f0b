"""The table of verbs: help, exit codes, faults in one form (contract, section 2)."""

import errno
import io
import re
import shlex

import pytest

from edged import __main__, __version__
from edged.cli import VERBS, complain, load, overview, run
from edged.cli.faults import cannot, unwritable
from edged.cli.parser import Parser


def parser_of(verb):
    module = load(verb)
    parser = Parser(verb, VERBS[verb], module.EXAMPLE)
    module.options(parser)
    return parser, module


@pytest.mark.parametrize("verb", VERBS)
def test_help_fits_80_columns_and_has_an_example(verb):
    parser, _ = parser_of(verb)
    text = parser.format_help()
    assert [line for line in text.splitlines() if len(line) > 80] == []
    assert "\nexample:\n" in text
    assert text.startswith(f"usage: edged {verb} ")


@pytest.mark.parametrize("verb", [v for v in VERBS if v != "mcp"])
def test_examples_are_command_lines_that_parse(verb):
    parser, module = parser_of(verb)
    for line in module.EXAMPLE.splitlines():
        words = shlex.split(re.split(r" [>|&]", line)[0])
        assert words[:2] == ["edged", verb]
        parser.parse(words[2:])


def test_overview_names_every_verb_within_80_columns():
    lines = overview().splitlines()
    assert max(map(len, lines)) <= 80
    for verb in VERBS:
        assert any(line.split()[:1] == [verb] for line in lines)


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["help"]])
def test_no_verb_prints_the_overview(words, capsys):
    assert run(words) == 0
    assert capsys.readouterr().out == overview()


def test_help_of_a_verb_may_be_asked_for_by_a_word(capsys):
    assert run(["help", "call"]) == 0
    assert capsys.readouterr().out.startswith("usage: edged call ")
    assert run(["help", "cal"]) == 2
    assert "did you mean 'call'?" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["tools --enable", "grant --forget"])
def test_option_without_its_value_says_which(words, capsys):
    assert run(words.split()) == 2
    option = words.split()[1]
    assert re.search(rf"{option}: [A-Z|]+ is missing: see", capsys.readouterr().err)


def test_version_is_printed(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"edged {__version__}\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["cal"], "unknown verb 'cal': did you mean 'call'?"),
        (
            ["xyzzy"],
            "unknown verb 'xyzzy': see edged --help; a tool is called by edged call xyzzy",
        ),
        (["cal", "name=Ada"], "a tool is called by edged call cal"),
        (["tools", "foo"], "what is 'foo', did you mean edged describe foo?"),
        (["--json", "tools"], "the verb comes first"),
        (["tools", "--jsn"], "what is '--jsn', did you mean --json?: see edged tools --help"),
        (["tools", "--zzzz=1"], "what is '--zzzz=1': see edged tools --help"),
        (["log", "extra"], "what is 'extra': see edged log --help"),
        (["tools", "--format", "xml"], "argument --format: 'xml' is not known: choose one of"),
        (["tools", "--format", "opnai"], "'opnai' is not known: did you mean openai?"),
        (["new-tool", "x", "--language", "bsh"], "'bsh' is not known: did you mean bash?"),
        (["agents", "rename", "a", "b"], "'rename' is not known: choose one of list, show,"),
        (["agents", "remov", "a"], "'remov' is not known: choose one of"),
        (["token", "ad", "x"], "argument action: 'ad' is not known: did you mean add?"),
        (["tools", "--enable", "a", "--disable", "b"], "not allowed with"),
        (["tools", "--all", "--format", "mcp"], "--all and --format"),
        (["describe"], "TOOL is missing: see edged describe --help"),
        (["call"], "TOOL is missing: see edged call --help"),
        (["log", "--limit", "x"], "--limit: must be a whole number from 0 to 999999999, not x"),
        (["new-tool", "gpio"], "gpio is the name of a built-in tool: choose another"),
        (["new-tool", "echo"], "echo is the name of a built-in tool: choose another"),
        (
            ["status", "--timeout", "soon"],
            "argument --timeout: must be more than 0 and at most 86400 seconds, not soon",
        ),
        (["status", "--timeout", "0"], "must be more than 0 and at most 86400 seconds, not 0"),
        (["status", "--timeout", "nan"], "must be more than 0 and at most 86400 seconds, not nan"),
        (["log", "--limit", "-1"], "--limit: must be a whole number from 0 to 999999999, not -1"),
        (
            ["log", "--limit", "9" * 10],
            "must be a whole number from 0 to 999999999, not 9999999999",
        ),
        (["status", "--timeout", "5"], "--timeout says how long to wait: give --wait-ready too"),
        (["new-tool", "x", "--directory", ""], "--directory is empty: name one"),
        (["grant", "", "once"], "an argument is empty: name one (perhaps a variable of the shell"),
        (["agents", "run", "", "look"], "an argument is empty: name one"),
        (["tools", "--disable", ""], "--disable is empty: name one"),
        (["status", "--socket", ""], "--socket is empty: name one"),
        ([""], "an argument is empty"),
        (["token", "add"], "token add needs a name"),
        (["token", "list", "x"], "token list takes no name"),
        (["token", "revoke", "x", "--role", "owner"], "go with edged token add"),
        (["new-tool", "Bad-Name"], "is no tool name"),
        (["new-tool", "a" * 41], "is no tool name"),
        (["completion", "tcsh"], "'tcsh' is not known: choose one of bash, zsh, fish"),
        (["tools", "--socket", "/s", "--url", "http://x"], "name one of them"),
        (["tools", "--url", "http://x"], "a URL needs a token"),
        (
            ["tools", "--url", "http://x", "--token-file", "/none"],
            "--token-file: cannot read /none: No such file",
        ),
        (["tools", "--url", "http://x", "--token-file", "/dev/null"], "/dev/null is empty"),
    ],
)
def test_wrong_usage_is_exit_code_2_with_what_to_do(words, says, capsys, monkeypatch):
    monkeypatch.delenv("EDGED_TOKEN", raising=False)
    assert run(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("edged: ")
    assert says in err


@pytest.mark.parametrize(
    "words",
    [
        ["\udcff"],
        ["describe", "\udcff"],
        ["tools", "--disable", "a\udcff"],
        ["token", "add", "\udcff\udcfe"],
        ["check-tool", "dir\udcff"],
        ["serve", "--data", "\udcff", "--help"],
    ],
)
def test_bytes_that_are_no_utf8_are_wrong_usage_in_every_argument(words, capsys):
    """Python hands them on as half characters (PEP 383), and JSON can carry none."""
    assert run(words) == 2
    err = capsys.readouterr().err
    assert err.startswith("edged: ")
    assert r"\xff" in err
    assert err.endswith(" is not UTF-8 text: convert it (iconv -t UTF-8)\n")


def test_long_and_odd_arguments_are_shown_short_and_safe(capsys):
    assert run(["describe", "\x1b[2J\udcff" + "x" * 1_000]) == 2
    err = capsys.readouterr().err
    assert r"\x1b[2J\xff" in err
    assert len(err) < 140


@pytest.mark.parametrize(
    "words",
    [
        ["tools"],
        ["describe", "x"],
        ["call", "x"],
        ["log"],
        ["status"],
        ["token"],
        ["sync", "--socket", "SOCKET"],
    ],
)
def test_no_daemon_is_exit_code_3_with_what_to_do(words, capsys, monkeypatch, tmp_path):
    path = str(tmp_path / "none.sock")
    monkeypatch.setenv("EDGED_SOCKET", path)
    monkeypatch.delenv("EDGED_URL", raising=False)
    assert run([path if word == "SOCKET" else word for word in words]) == 3
    err = capsys.readouterr().err
    assert err == f"edged: no daemon answers at {path}: start it with edged serve\n"


def test_url_of_nobody_is_exit_code_3(capsys, monkeypatch):
    monkeypatch.setenv("EDGED_TOKEN", "t")
    # Port 1 (tcpmux) is nobody's.
    monkeypatch.setenv("EDGED_URL", "http://127.0.0.1:1")
    assert run(["tools"]) == 3
    assert "no daemon answers at http://127.0.0.1:1" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["ftp://x", "127.0.0.1:8420", "http://x:port", "http://"])
def test_address_that_is_none_says_how_one_looks(url, capsys, monkeypatch):
    """Wrong usage, and found before a token is asked for."""
    monkeypatch.delenv("EDGED_TOKEN", raising=False)
    assert run(["tools", "--url", url]) == 2
    assert "write one such as http://127.0.0.1:8420" in capsys.readouterr().err


def test_interrupt_is_exit_code_130(monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(load("doctor"), "run", interrupted)
    assert run(["doctor"]) == 130


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], {}),
        (["--socket", "a"], {"socket": "a"}),
        (["--socket=a", "--http", "off"], {"socket": "a", "http": "off"}),
        (["--socket"], None),
        (["--socket="], None),
        (["--socket", "--http"], None),
        (["--help"], None),
        (["--sock", "a"], None),
        (["a"], None),
    ],
)
def test_short_road_takes_plain_options_only(words, found):
    """All else is the parser's, which has the words for it."""
    assert __main__.plain(words, ("socket", "http")) == found


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (PermissionError(errno.EACCES, "x", "/f"), "cannot use /f: Permission denied: check its"),
        (OSError(errno.ENOSPC, "x"), "cannot write the output: No space left on device: free"),
        (OSError(errno.ENOTCONN, "not connected"), "not connected"),
        (OSError("odd"), "odd"),
        (OSError(), "OSError"),
    ],
)
def test_error_of_the_system_is_said_in_words(error, says, capsys, monkeypatch):
    """Contract, section 2: what went wrong, what to do."""

    def fails(_):
        raise error

    monkeypatch.setattr(load("doctor"), "run", fails)
    assert run(["doctor"]) == 1
    assert capsys.readouterr().err.startswith(f"edged: {says}")


def test_file_that_cannot_be_made_has_its_reason(tmp_path):
    assert unwritable(str(tmp_path / "new" / "deeper")) == 0
    (tmp_path / "file").touch()
    assert unwritable(str(tmp_path / "file" / "below")) == errno.ENOTDIR
    assert cannot("write", "/f", errno.EROFS, "do") == "cannot write /f: Read-only file system: do"
    assert cannot("write", "/f", OSError("odd")) == "cannot write /f: odd"


def test_long_fault_is_broken_at_spaces_on_a_terminal(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("COLUMNS", "40")
    assert complain("word " * 20 + "\n  second line", 1) == 1
    lines = screen.getvalue().splitlines()
    assert max(map(len, lines)) <= 40
    assert lines[-1] == "  second line"
