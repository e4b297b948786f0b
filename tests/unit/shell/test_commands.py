"""A command line is taken apart as the shells do it; bash itself is asked."""

import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edged.shell.commands import parse, paths

PIECES = st.sampled_from(
    ["a", "rm", "-rf", "/x", " ", "  ", "\t", "'", '"', "\\", "\\\n", "\\n", "#", "=", "é", "$'\\x72m'"]
)  # fmt: skip


def words(text):
    return [command.words for command in parse(text).commands]


@given(st.lists(PIECES, max_size=12).map("".join))
@example('r\\m \'a b\'"c\\"d"e\\ f')
@example("a#b #c d")
@example('"a\\\nb" \\\n c')
def test_words_are_those_that_bash_sees(text):
    """bash(1), QUOTING: whatever is quoted, the words are the same."""
    done = subprocess.run(
        ["/bin/bash", "-c", f"show() {{ printf '%s\\0' \"$@\"; }}\nset -f; show x {text}\n"],
        capture_output=True,
    )
    if done.returncode or done.stderr:
        return  # not closed: no command at all
    shown = done.stdout.decode().split("\0")[:-1]
    assert [word for one in words(f"show x {text}\n") for word in one][1:] == shown


@pytest.mark.parametrize(
    ("text", "programs"),
    [
        ("a; b && c || d | e & f\ng", "a b c d e f g"),
        ("(a) ; { b; }", "a b"),
        ("if a; then b; elif c; then d; else e; fi", "a b c d e"),
        ("while a; do b; done; until c; do d; done", "a b c d"),
        ("for i in rm dd; do a; done", "a"),
        ("X=1 Y='2 3' a", "a"),
        ("! a; time b", "a b"),
        ("2>&1 a >b 2>/dev/null </c &>d", "a"),
        ("a <(b) >(c)", "b c a"),
        ("a $(b `c`)", "c b a"),
        ("a \"$(b '$(c)')\"", "b a"),
        ("a '$(b)'", "a"),
        ("a $((1 + $(b)))", "b a"),
        ("a ${x:-$(b)}", "b a"),
        ("a # b; c", "a"),
        ("cat <<E\n$(a)\nrm\nE\nb", "cat a b"),
        ("cat <<'E'\n$(a)\nE\nb", "cat b"),
        ("sh -c 'a; b'", "sh a b"),
        ('bash -lc "a" x y', "bash a"),
        ("bash script.sh -c a", "bash"),
        ("eval a b", "eval a"),
        ("env -u X A=1 sh -c a", "env a"),
        ("bash <<E\na\nE", "bash a"),
        ("sh <<< 'a; b'", "sh a b"),
        ("f() { a; }; f", "f a f"),
    ],
)  # fmt: skip
def test_every_command_is_found_at_any_depth(text, programs):
    """POSIX.1-2017, XCU 2.9, Shell Commands; bash(1), Process Substitution, Here Strings."""
    assert [one[0] for one in words(text) if one] == programs.split()


def test_nesting_beyond_the_limit_is_said_so_and_ends():
    assert parse("$(" * 10_000).too_deep
    assert not parse("$(" * 5 + "a" + ")" * 5).too_deep


def calls(text):
    """Functions entered while a text is taken apart; ends where they are far too many."""
    entered = 0

    def count(frame, event, argument):
        nonlocal entered
        entered += event == "call"
        if entered > 100_000:
            sys.setprofile(None)
            raise AssertionError(f"over {entered} calls for {len(text)} characters")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        parse(text)
    finally:
        sys.setprofile(before)
    return entered


@pytest.mark.parametrize(
    "one",
    [
        "find -exec ", "find -exec a -exec ", "find -okdir nice env A=1 ", "env ", "nice -n 5 ",
        "xargs -n 1 ", "timeout 5 find . -exec ", "a <<x;", "find -exec a {} + ", "find -exec sh ",
    ],
)  # fmt: skip
def test_work_grows_with_the_length_of_a_command_and_no_faster(one):
    """Each word is at most one command's program, each here-document one command's."""
    ten, twenty, forty = (calls(one * n + "true") for n in (10, 20, 40))
    assert forty - twenty <= 2.2 * (twenty - ten)


def test_command_to_which_many_ways_lead_is_looked_at_once():
    """Here `nice` takes `-exec` for its option, and `find` for its own."""
    ten, twenty, forty = (calls("find " + "-exec nice " * n + "true") for n in (10, 20, 40))
    assert forty - twenty <= 2.2 * (twenty - ten)


def test_here_documents_are_counted_once_however_many():
    assert calls("a <<x;" * 800) <= 2.2 * calls("a <<x;" * 400)


@pytest.mark.parametrize("one", ["find -exec ", "find -okdir ", "env ", "nice ", "xargs "])
@pytest.mark.parametrize("n", [10, 20, 40])
def test_each_program_of_a_chain_is_found_once(one, n):
    [command] = parse(one * n + "true").commands
    name = one.split()[0]
    assert [run[0] for run in command.runs] == [name] * n + ["true"]


@pytest.mark.parametrize(
    "text",
    [
        "find -exec eval " * 40,
        "find -exec " * 9_000,
        "env " * 20_000,
        "nice " * 20_000,
        "xargs " * 20_000,
        "find " + "-exec sh " * 1000 + "<<< '" + "a;" * 1000 + "'",
        'eval "$(' * 15 + "a " * 100 + ')"' * 15,
        "bash <<E\n$(" * 15 + "a " * 100 + ")\nE\n" * 15,
    ],
)
def test_what_would_be_read_over_and_over_is_too_deep(text):
    """The whole has one measure: sixteen levels that each double are 65,536 readings."""
    script = parse(text)
    assert script.too_deep
    assert sum(len(run) for one in script.commands for run in one.runs) < 65_536 + 4 * len(text)


@pytest.mark.parametrize(
    "text",
    [
        "sudo env A=1 nice -n 5 timeout 5 bash -c '" + "echo a b;" * 10_000 + "'",
        "bash <<'E'\n" + "echo a b\n" * 10_000 + "E\n",
        "find . " + "-name a -exec grep b {} + " * 2_000,
        "sh -c " * 5 + "true",
    ],
)
def test_long_command_that_is_nested_as_people_do_is_looked_at_whole(text):
    assert not parse(text).too_deep


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("find . -exec a b \\; -exec c {} + -print", ["a b", "c {}"]),
        ("find . -exec a + b {} + -x", ["a + b {}"]),
        ("find . -ok a {} + b ';' -x", ["a {} + b"]),
        ("find . -name -exec -exec a ';'", ["-exec a", "a"]),
        ("find . -exec env find -exec a ';'", ["env find -exec a", "find -exec a", "a"]),
        ("nice " * 40 + "a", ["nice " * n + "a" for n in range(39, -1, -1)]),
    ],
)
def test_commands_that_another_runs_end_where_it_says(text, runs):
    """POSIX.1-2017, XCU, find: `;` ends a command, `+` only behind `{}`, and none of -ok."""
    [command] = parse(text).commands
    assert [" ".join(run) for run in command.runs][1:] == runs


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("cat /etc/passwd 'a b' '/c d'", ["/etc/passwd", "/c d"]),
        ("ls /var/log/*.gz", ["/var/log"]),
        ("ls /*", []),
        ("a --file=/b if=/c", ["/b", "/c"]),
        ("a > /b 2>/dev/null", ["/b", "/dev/null"]),
        ("curl https://x.org/etc/passwd file:///etc/x ftp://h/y x.org/etc", []),
        ("a skills/x.js ../b ~/c $HOME/d", []),
        ("a //b/../c/", ["/c"]),
        ("sed 's/a/b/' x", []),
        ("sh -c 'cat /in'", ["/in"]),
    ],
)
def test_paths_are_whole_words_and_no_urls(text, named):
    """Faults 1203, 762 and 1042 of PicoClaw: URLs and relative paths were taken for paths."""
    assert paths(parse(text)) == named
