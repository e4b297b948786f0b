"""Keys are what the terminal's own description says (terminfo(5), entry `xterm`)."""

import curses

import pytest

from edged.shell.keys import encode

curses.setupterm("xterm", 1)


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        *(("up", "kcuu1"), ("down", "kcud1"), ("left", "kcub1"), ("right", "kcuf1")),
        *(("home", "khome"), ("end", "kend"), ("pageup", "kpp"), ("pagedown", "knp")),
        *(("insert", "kich1"), ("delete", "kdch1"), ("btab", "kcbt")),
        *((f"f{n}", f"kf{n}") for n in range(1, 13)),
        *(("shift-left", "kLFT"), ("shift-right", "kRIT"), ("shift-home", "kHOM")),
    ],
)
def test_key_is_what_terminfo_says(name, capability):
    """Cursor keys of terminfo are those of application mode (DECCKM)."""
    assert encode(name, application=True) == curses.tigetstr(capability)


@pytest.mark.parametrize(
    ("keys", "data"),
    [
        ("ctrl-c", b"\x03"),
        ("c-c", b"\x03"),
        ("C-D", b"\x04"),
        ("ctrl-[", b"\x1b"),
        ("ctrl-space", b"\0"),
        ("ctrl-?", b"\x7f"),
        ("alt-x", b"\x1bx"),
        ("m-X", b"\x1bx"),
        ("shift-a", b"A"),
        ("shift-tab", b"\x1b[Z"),
        ("ctrl-right", b"\x1b[1;5C"),
        ("up,up,enter", b"\x1b[A\x1b[A\r"),
        ("l,s,comma,enter", b"ls,\r"),
        ("-", b"-"),
        ("é", "é".encode()),
        (["l", ",", "tab"], b"l,\t"),
        ("space,backspace,escape", b" \x7f\x1b"),
    ],
)
def test_keys_of_other_kinds(keys, data):
    """The ctlseqs of xterm, PC-Style Function Keys; facts of PicoClaw, 4, for the names."""
    assert encode(keys) == data


@pytest.mark.parametrize("keys", ["ctrl-", "ctrl-é", "hyper-x", "enterr", "", "ctrl-f99", "a,,b"])
def test_unknown_key_is_refused_with_those_that_there_are(keys):
    """Facts of PicoClaw, 4: `ctrl-` with nothing after it was a crash."""
    with pytest.raises(ValueError, match="is no key: there are enter, tab"):
        encode(keys)
