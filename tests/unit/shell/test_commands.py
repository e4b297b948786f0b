"""A command line is taken apart as the shells do it; bash itself is asked."""

import subprocess

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
