"""Names of keys as the bytes that a terminal sends for them (xterm's control sequences).

Pure. A key list is names separated by commas; a single character stands for itself.
"""

from __future__ import annotations

from collections.abc import Sequence

ESCAPE = "\x1b"
_NAMED = {
    "enter": "\r",
    "return": "\r",
    "tab": "\t",
    "btab": f"{ESCAPE}[Z",
    "escape": ESCAPE,
    "esc": ESCAPE,
    "space": " ",
    "comma": ",",
    "backspace": "\x7f",
    "insert": f"{ESCAPE}[2~",
    "delete": f"{ESCAPE}[3~",
    "pageup": f"{ESCAPE}[5~",
    "pagedown": f"{ESCAPE}[6~",
    "pgup": f"{ESCAPE}[5~",
    "pgdn": f"{ESCAPE}[6~",
}
_CURSOR = {"up": "A", "down": "B", "right": "C", "left": "D", "home": "H", "end": "F"}
_FUNCTION = {f"f{n}": f"{ESCAPE}O{'PQRS'[n - 1]}" for n in range(1, 5)} | {
    f"f{n}": f"{ESCAPE}[{code}~"
    for n, code in zip(range(5, 13), (15, 17, 18, 19, 20, 21, 23, 24), strict=True)
}
_MODIFIERS = {"ctrl": 4, "c": 4, "alt": 2, "meta": 2, "m": 2, "shift": 1, "s": 1}
"""By their bit in xterm's modifier number less one."""
_SHIFT, _ALT, _CTRL = 1, 2, 4

NAMES = (
    "enter, tab, btab, escape, space, comma, backspace, up, down, left, right, home, end, "
    "pageup, pagedown, insert, delete, f1 to f12, ctrl-x, alt-x, shift-x"
)


def encode(keys: str | Sequence[str], *, application: bool = False) -> bytes:
    """The bytes of a list of keys.

    Args:
        keys: `up,enter`, or a list of names.
        application: whether the program asked for application cursor keys (DECCKM).

    Raises:
        ValueError: an unknown name; says which there are.
    """
    names = keys.split(",") if isinstance(keys, str) else keys
    return "".join(_key(name, application=application) for name in names).encode()


def _key(name: str, *, application: bool) -> str:
    if len(name) == 1:
        return name
    word, bits = name.strip().lower(), 0
    while "-" in word[:-1]:
        prefix, _, rest = word.partition("-")
        if prefix not in _MODIFIERS or not rest:
            break
        bits |= _MODIFIERS[prefix]
        word = rest
    code = _modified(word, bits, application=application)
    if code is None:
        shown = name.strip()[:40]
        raise ValueError(f"{shown!r} is no key: there are {NAMES}; action write sends text")
    return code


def _modified(word: str, bits: int, *, application: bool) -> str | None:
    if word in _CURSOR:
        if bits:
            return f"{ESCAPE}[1;{bits + 1}{_CURSOR[word]}"
        return f"{ESCAPE}{'O' if application else '['}{_CURSOR[word]}"
    if word == "tab" and bits == _SHIFT:
        return _NAMED["btab"]
    code = _NAMED.get(word) or _FUNCTION.get(word) or (word if len(word) == 1 else None)
    if code is None:
        return None
    if len(code) > 1:
        return code if not bits else _with_number(code, bits)
    if bits & _SHIFT:
        code = code.upper()
    if bits & _CTRL:
        control = _control(code)
        if control is None:
            return None
        code = control
    return ESCAPE + code if bits & _ALT else code


def _with_number(code: str, bits: int) -> str | None:
    """`CSI 5 ~` with its modifiers, `CSI 5 ; 3 ~`; `SS3 P` becomes `CSI 1 ; 3 P`."""
    if code.endswith("~"):
        return f"{code[:-1]};{bits + 1}~"
    return f"{ESCAPE}[1;{bits + 1}{code[-1]}" if code[1] == "O" else None


def _control(char: str) -> str | None:
    if char == "?":
        return "\x7f"
    if char == " ":
        return "\0"
    upper = char.upper()
    return chr(ord(upper) - 64) if "@" <= upper <= "_" else None
