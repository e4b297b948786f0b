"""What people see: aligned, within the terminal, without control characters."""

import pytest

from edged import wording
from edged.cli import show


@pytest.fixture
def columns(monkeypatch):
    def set_width(count):
        monkeypatch.setenv("COLUMNS", str(count))

    set_width(80)
    return set_width


@pytest.fixture
def terminal(monkeypatch):
    """Standard output is one, without colours."""
    monkeypatch.setattr(show, "is_terminal", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")


def test_table_is_aligned_and_within_the_width(capsys, columns, terminal):
    columns(40)
    show.table(("NAME", "ABOUT"), [("a", "short"), ("longer", "much " * 20), ("x", "")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "NAME    ABOUT"
    assert lines[1] == "a       short"
    assert lines[2].startswith("longer  much much")
    assert lines[2].endswith("…")
    assert lines[3] == "x"
    assert all(len(line) <= 40 for line in lines)


def test_width_is_80_where_there_is_no_terminal(monkeypatch, capsys):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert show.width() == 80


@pytest.mark.parametrize(("said", "is_"), [("0", 80), ("wide", 80), ("5", 20), ("132", 132)])
def test_width_follows_columns_within_reason(said, is_, columns, capsys):
    columns(said)
    assert show.width() == is_


def test_what_goes_to_a_file_is_whole_and_aligned(capsys, columns):
    """`grep` looks for the end of a line too."""
    columns(40)
    rows = [("a", "outcome " * 3, "much " * 20), ("longer", "x", "y")]
    show.table(("NAME", "OUTCOME", "ABOUT"), rows)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == f"a       {'outcome ' * 3} {('much ' * 20).strip()}"
    assert lines[2] == f"longer  x{' ' * 24}y"
    assert show.Columns(("NAME", "OUTCOME", "ABOUT"), rows).lines(rows[0]) == lines[1:2]


def test_first_column_stays_whole_and_the_widest_give_way(columns, terminal):
    name, path = "n" * 30, "/p" * 40
    made = show.Columns(("NAME", "STATUS", "SOURCE", "ABOUT"), [(name, "enabled", path, "why")])
    line = made.line((name, "enabled", path, "why"))
    assert line.startswith(name)
    assert "enabled" in line
    assert line.endswith("why")
    assert len(line) <= 80


def test_column_that_stays_whole_and_a_short_last_one_leave_the_cutting_to_others(
    columns, terminal
):
    """Half a time is none."""
    columns(80)
    rows = [("1f0c9a2e", "n" * 40, "2026-12-01 09:00 -05", "0 9 * * 1-5", "waiting")]
    header = ("ID", "NAME", "NEXT", "SCHEDULE", "STATE")
    line = show.Columns(header, rows, whole=("NEXT",)).line(rows[0])
    assert line.endswith("…  2026-12-01 09:00 -05  0 9 * * 1-5  waiting")
    assert len(line) == 80
    columns(50)
    line = show.Columns(header, rows, whole=("NEXT",)).line(rows[0])
    assert "  2026-12-01 09:00 -05  " in line


def test_wide_characters_count_twice_and_marks_not_at_all(columns):
    """Unicode Standard Annex 11; combining marks take no cell."""
    assert show.cells("温度") == 4
    assert show.cells("é") == 1
    assert show.cut("温度温度", 5) == "温度…"
    assert show.cut("abc", 3) == "abc"


def test_control_characters_of_a_tool_never_reach_the_terminal(columns):
    """ECMA-48: an escape sequence could rewrite what was shown before."""
    assert wording.safe("a\x1b[2Jb\x07\nc\td") == "a\\x1b[2Jb\\x07\nc\td"
    assert wording.one_line("a\n\x1b[1m b") == "a \\x1b[1m b"
    assert wording.safe("plain\ntext") == "plain\ntext"


def test_colour_is_for_terminals_only(monkeypatch, capsys):
    assert show.paint("x", "red") == "x"
    monkeypatch.setattr(show, "is_terminal", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert show.paint("x", "red") == "\033[31mx\033[0m"
    assert show.paint("x", "") == "x"
    monkeypatch.setenv("TERM", "dumb")
    assert show.paint("x", "red") == "x"


def test_no_color_is_respected(monkeypatch):
    """no-color.org: any value that is not empty."""
    monkeypatch.setattr(show, "is_terminal", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert show.paint("x", "red") == "x"


def test_last_column_can_be_shown_whole(columns, terminal, capsys):
    columns(40)
    row = ("input", "string", "what " * 12)
    lines = show.Columns(("INPUT", "TYPE", "ABOUT"), [row]).lines(row)
    show.table(("INPUT", "TYPE", "ABOUT"), [row], whole=True)
    assert capsys.readouterr().out.splitlines()[1:] == lines
    assert len(lines) > 1
    assert all(len(line) <= 40 for line in lines)
    assert "".join(lines).count("what") == 12
    assert lines[1].startswith(" " * 15 + "what")


def test_facts_leave_out_what_is_empty_and_keep_lines_together(capsys):
    show.facts([("a", "1"), ("none", ""), ("long name", "2\n3")])
    assert capsys.readouterr().out == "a          1\nlong name  2\n           3\n"


def test_facts_are_broken_at_spaces_within_the_width(capsys, columns):
    columns(30)
    show.facts([("name", "word word " * 3 + "word word"), ("b", "x" * 40 + "\n  kept  as it is")])
    assert capsys.readouterr().out.splitlines() == [
        "name  word word word word word",
        "      word word word",
        f"b     {'x' * 40}",
        "        kept  as it is",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.97, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (303, "5 min 3 s"),
        (3600, "1 h"),
        (3_903, "1 h 5 min"),
        (3_601, "1 h"),
        (90_061, "1 d 1 h"),
        (86_400 * 400, "400 d"),
    ],
)
def test_times_are_said_in_their_two_largest_units(seconds, text):
    assert show.duration(seconds) == text


def test_prose_is_broken_at_spaces_on_a_terminal_and_whole_elsewhere(capsys, columns, monkeypatch):
    columns(24)
    text = "It waters.\n  - when the soil is dry\x1b\n"
    show.prose(text, "  ")
    assert capsys.readouterr().out == "  It waters.\n    - when the soil is dry\\x1b\n\n"
    monkeypatch.setattr(show, "is_terminal", lambda: True)
    show.prose(text, "  ")
    assert capsys.readouterr().out == "  It waters.\n    - when the soil is\n    dry\\x1b\n\n"


def test_no_facts_print_nothing(capsys):
    show.facts([("a", "")])
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (256 << 20, "256 MiB"), (3 << 30, "3 GiB")],
)
def test_bytes_are_written_in_the_unit_that_fits(count, text):
    assert show.size(count) == text


def test_one_json_document_is_printed(capsys):
    show.json({"a": [1, "ü"]})
    assert capsys.readouterr().out == '{\n  "a": [\n    1,\n    "ü"\n  ]\n}\n'
    show.json_line({"a": 1})
    assert capsys.readouterr().out == '{"a":1}\n'
