"""What a tool gives back: content blocks, and the one road every result takes.

`normalise` makes any outcome fit the contract (section 7): text never empty, cut
for the model with a word on what was left out, long base64 moved to media,
secrets masked. Pure but for the `keep` callable that stores media.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias

import msgspec

MAX_BYTES = 50_000
MAX_LINES = 2_000
INLINE_BASE64 = 1_024
STRUCTURED_MAX = 256 << 10
"""Bytes of an encoded structured value; a longer one is stored."""

MEDIA_MAX = 16
"""Long blocks of one result that are stored; further ones are dropped."""

BLOCKS_MAX = 256
"""Blocks of one result that are no text."""

NO_OUTPUT = "(no output)"


class Text(msgspec.Struct, tag="text", tag_field="type", omit_defaults=True, gc=False):
    """Text for the model."""

    text: str
    annotations: dict[str, Any] | None = None


class Image(msgspec.Struct, tag="image", tag_field="type", omit_defaults=True, rename="camel"):
    """A picture; `data` is base64."""

    data: str
    mime_type: str
    annotations: dict[str, Any] | None = None


class Audio(msgspec.Struct, tag="audio", tag_field="type", omit_defaults=True, rename="camel"):
    """A sound; `data` is base64."""

    data: str
    mime_type: str
    annotations: dict[str, Any] | None = None


class ResourceLink(
    msgspec.Struct, tag="resource_link", tag_field="type", omit_defaults=True, rename="camel"
):
    """A pointer to something to read on demand; `size` in bytes."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    annotations: dict[str, Any] | None = None


class Resource(msgspec.Struct, tag="resource", tag_field="type", omit_defaults=True):
    """An embedded resource, in MCP's shape."""

    resource: dict[str, Any]
    annotations: dict[str, Any] | None = None


Block: TypeAlias = Text | Image | Audio | ResourceLink | Resource


class Truncated(msgspec.Struct, frozen=True):
    """What was cut from the text for the model.

    Attributes:
        bytes: size of the whole text.
        lines: its lines.
        kept: which part stayed.
        media: where the whole text is, or empty when it could not be stored.
    """

    bytes: int
    lines: int
    kept: Literal["start", "end"]
    media: str


class Result(msgspec.Struct):
    """The result of a call as every door sends it (contract, section 7).

    `sandbox` is there only to mark what ran without one (`sandbox: none`).
    """

    content: list[Block]
    is_error: bool = False
    for_llm: str = ""
    for_user: str | None = None
    silent: bool = False
    media: list[str] = []
    async_: bool = msgspec.field(name="async", default=False)
    response_handled: bool = False
    structured: Any = None
    call_id: str = ""
    duration_ms: float = 0.0
    truncated: Truncated | None = None
    sandbox: Literal["none"] | msgspec.UnsetType = msgspec.UNSET


class Late(msgspec.Struct, frozen=True):
    """A long result that is not made yet: where long ones are stored it is, in turn."""

    make: Callable[[], Result]


def text(body: str, *, structured: Any = None, for_user: str | None = None) -> Result:
    """A plain success."""
    return Result([Text(body)], structured=structured, for_user=for_user)


def failure(body: str) -> Result:
    """A failure that the model can read and act on."""
    return Result([Text(body)], is_error=True)


def joined(content: Iterable[Block]) -> str:
    """The text that a model or a terminal is shown for some content."""
    parts = []
    for block in content:
        if isinstance(block, Text):
            parts.append(block.text)
        elif isinstance(block, ResourceLink):
            parts.append(f"[{block.description or block.name}: {block.uri}]")
        elif isinstance(block, Resource):
            parts.append(str(block.resource.get("text") or f"[{block.resource.get('uri')}]"))
        else:
            kind = "image" if isinstance(block, Image) else "audio"
            parts.append(f"[{kind}: {block.mime_type}]")
    return "\n".join(parts)


def blocks(content: object) -> list[Block]:
    """Content as a tool wrote it, checked.

    Raises:
        ValueError: says which block is wrong and what a block looks like.
    """
    if isinstance(content, str):
        return [Text(content)]
    if not isinstance(content, list):
        shape = '{"type": "text", "text": "…"}'
        raise ValueError(f"content must be a list of blocks such as {shape}")  # noqa: TRY004  a tool's data
    checked: list[Block] = []
    for index, item in enumerate(content):
        try:
            checked.append(msgspec.convert(item, Block))
        except msgspec.ValidationError as error:
            raise ValueError(f"content[{index}]: {error}") from None
    return checked


Keep = Callable[[bytes, str, str], str]
"""Stores data with its MIME type and name; returns a `media://` URL, empty on failure."""

_DATA_URL = re.compile(
    r"data:([\w.+-]+/[\w.+-]+)?(?:;[\w=.+-]+)*;base64,([A-Za-z0-9+/=_-]{1024,})"
)
_LONG_BASE64 = re.compile(r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{1022,}={0,2}(?![A-Za-z0-9+/=])")


def is_small(result: Result) -> bool:
    """Whether nothing needs to be cut or stored: the hot path's one look."""
    content = result.content
    if result.structured is not None and not _is_slight(result.structured):
        return False
    if result.for_user is not None and not _fits(result.for_user):
        return False
    if len(content) == 1 and type(content[0]) is Text:
        body = content[0].text
        return _plain(body)
    if len(content) > 16:
        return False
    for block in content:
        if type(block) is not Text and type(block) is not ResourceLink:
            return False
    return _plain(_text_of(content))


SLIGHT = 4_096
"""What `_is_slight` looks at, at most: far below `STRUCTURED_MAX` however it is encoded."""


def _is_slight(value: Any) -> bool:
    """Whether a structured value is surely short, by a look at its beginning alone."""
    room = SLIGHT
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str | bytes):
            room -= len(item)
        elif isinstance(item, dict):
            room -= 8 * len(item)
            if room >= 0:
                waiting += item
                waiting += item.values()
        elif isinstance(item, list | tuple):
            room -= 8 * len(item)
            if room >= 0:
                waiting += item
        if room < 0:
            return False
    return True


def _text_of(content: list[Block]) -> str:
    return "\n".join(b.text for b in content if isinstance(b, Text))


def _plain(body: str) -> bool:
    if len(body) < INLINE_BASE64:
        return True
    return _fits(body) and not (_DATA_URL.search(body) or _has_base64(body))


def _fits(body: str) -> bool:
    """Whether a text is within the bounds of what the model is shown."""
    size = len(body)
    if size * 4 > MAX_BYTES and len(body.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        return False
    return size < MAX_LINES or count_lines(body) <= MAX_LINES


def count_lines(body: str) -> int:
    """Lines as a person counts them: a final newline begins no further one."""
    return body.count("\n") + (not body.endswith("\n"))


def _has_base64(body: str) -> bool:
    return any(_is_base64(match.group()) for match in _LONG_BASE64.finditer(body))


def _is_base64(run: str) -> bool:
    # A long run of one letter or of hex digits is text that people print.
    return len(set(run)) > 16 and len(run) % 4 == 0 and not run.isalpha()


class _Shelf:
    """Where the long parts of one result go: so many, then no more.

    Attributes:
        media: URLs of what is stored.
        left_out: blocks that found no room.
    """

    def __init__(self, keep: Keep, media: list[str]) -> None:
        self._keep = keep
        self._tried = 0
        self.media = media
        self.left_out = 0

    @property
    def is_full(self) -> bool:
        return self._tried >= MEDIA_MAX

    def put(self, data: bytes, mime: str, name: str) -> str:
        """Store a block; empty when it could not be stored."""
        self._tried += 1
        return self.put_whole(data, mime, name)

    def put_whole(self, data: bytes, mime: str, name: str) -> str:
        """Store all of a text or value that the result has a part of; there is room for it."""
        uri = self._keep(data, mime, name)
        if uri:
            self.media.append(uri)
        return uri


def normalise(result: Result, keep: Keep, *, keep_end: bool = False) -> Result:
    """Make a result fit the contract; changes and returns `result`.

    Args:
        result: as the tool gave it.
        keep: where long base64, the whole of a cut text and a long structured value go.
        keep_end: shells keep the end of a long text, others the beginning.
    """
    if not is_small(result):
        shelf = _Shelf(keep, result.media)
        result.content = _some(result.content, shelf)
        result.content = _each(result.content, shelf, _light)
        if not _fits(joined(result.content)):
            result.content = _each(result.content, shelf, _linked)
        if not _fits(_text_of(result.content)):
            _cut(result, shelf, keep_end=keep_end)
        _cut_structured(result, shelf)
        if result.for_user is not None and not _fits(result.for_user):
            result.for_user = keep_lines(result.for_user, MAX_BYTES, MAX_LINES, keep_end=keep_end)
        if shelf.left_out:
            most = f"{MEDIA_MAX} long ones and {BLOCKS_MAX} in all"
            _note(result, f"[{shelf.left_out} blocks are left out: a result has at most {most}]")
    return complete(result)


def _some(content: list[Block], shelf: _Shelf) -> list[Block]:
    """All texts, and of the other blocks the first ones."""
    others = sum(type(block) is not Text for block in content)
    if others <= BLOCKS_MAX:
        return content
    shelf.left_out += others - BLOCKS_MAX
    kept: list[Block] = []
    room = BLOCKS_MAX
    for block in content:
        if type(block) is not Text:
            room -= 1
        if room >= 0 or type(block) is Text:
            kept.append(block)
    return kept


def _each(
    content: list[Block], shelf: _Shelf, change: Callable[[Block, _Shelf], Block | None]
) -> list[Block]:
    """The blocks changed; those without a place are counted."""
    kept = [changed for block in content if (changed := change(block, shelf)) is not None]
    shelf.left_out += len(content) - len(kept)
    return kept


def _note(result: Result, note: str) -> None:
    """A word for the model on what is not there."""
    result.content.append(Text(note))
    if result.for_llm:
        result.for_llm += f"\n{note}"


def _cut_structured(result: Result, shelf: _Shelf) -> None:
    """A long structured value becomes a medium."""
    if result.structured is None or _is_slight(result.structured):
        return
    result.structured = _encodable_value(result.structured)
    if result.structured is None:
        return
    data = msgspec.json.encode(result.structured)
    if len(data) <= STRUCTURED_MAX:
        return
    result.structured = None
    uri = shelf.put_whole(data, "application/json", "structured")
    where = uri or "it could not be stored"
    _note(result, f"[the structured result has {len(data)} bytes: {where}]")


def complete(result: Result) -> Result:
    """Text that is never empty and always encodes, and the text for the model.

    Changes and returns `result`.
    """
    content = result.content
    only = content[0] if len(content) == 1 else None
    if type(only) is Text and only.text and only.text.isascii() and result.structured is None:
        # The usual one, on the hot path.
        result.for_llm = result.for_llm or only.text
        return result
    if len(content) != 1 or type(content[0]) is not Text:
        # Providers refuse an empty text beside an image.
        content = [b for b in content if type(b) is not Text or b.text]
    elif not content[0].text:
        content = []
    for block in content:
        if type(block) is Text and not block.text.isascii():
            block.text = _encodable(block.text)
    result.content = content or [Text(NO_OUTPUT)]
    if result.structured is not None:
        result.structured = _encodable_value(result.structured)
    if not result.for_llm:
        result.for_llm = joined(result.content)
    return result


def _encodable(body: str) -> str:
    """Text without half characters: file names that are not UTF-8 come as such (PEP 383)."""
    try:
        body.encode()
    except UnicodeEncodeError:
        return body.encode("utf-8", "replace").decode()
    return body


def _encodable_value(value: Any) -> Any:
    """A structured result that every door can send; None for what is no JSON."""
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        return _mapped(value, _encodable)
    except (TypeError, ValueError, RecursionError):
        return None
    return value


def _light(block: Block, shelf: _Shelf) -> Block | None:
    """The block with its long base64 moved to media; None when there is no more room."""
    if isinstance(block, Text):
        return _light_text(block, shelf)
    if isinstance(block, Image | Audio):
        if len(block.data) < INLINE_BASE64:
            return block
        return None if shelf.is_full else _stored(block.data, block.mime_type, shelf) or block
    if isinstance(block, Resource):
        blob = block.resource.get("blob")
        if isinstance(blob, str) and len(blob) >= INLINE_BASE64:
            mime = str(block.resource.get("mimeType") or "application/octet-stream")
            return None if shelf.is_full else _stored(blob, mime, shelf) or block
    return block


def _linked(block: Block, shelf: _Shelf) -> Block | None:
    """The block; an embedded resource with a long text as a link to it, or cut, or None."""
    body = block.resource.get("text") if isinstance(block, Resource) else None
    if not isinstance(block, Resource) or not isinstance(body, str) or len(body) < INLINE_BASE64:
        return block
    if shelf.is_full:
        return None
    mime = str(block.resource.get("mimeType") or "text/plain; charset=utf-8")
    data = body.encode("utf-8", "replace")
    uri = shelf.put(data, mime, "resource")
    if not uri:
        short = keep_lines(body, INLINE_BASE64, MAX_LINES, keep_end=False)
        return Resource({**block.resource, "text": short}, block.annotations)
    name = str(block.resource.get("uri") or "resource")
    return ResourceLink(uri, name, description=name, mime_type=mime, size=len(data))


def _light_text(block: Text, shelf: _Shelf) -> Text:
    # Beyond what may be stored base64 is a text like any other, which is cut.
    def data_url(match: re.Match[str]) -> str:
        mime = match.group(1) or "application/octet-stream"
        link = None if shelf.is_full else _stored(match.group(2), mime, shelf)
        return link.uri if link else match.group()

    def run(match: re.Match[str]) -> str:
        if shelf.is_full or not _is_base64(match.group()):
            return match.group()
        link = _stored(match.group(), "application/octet-stream", shelf)
        return link.uri if link else match.group()

    body = block.text
    if len(body) < INLINE_BASE64:
        return block
    body = _LONG_BASE64.sub(run, _DATA_URL.sub(data_url, body))
    return block if body == block.text else Text(body, block.annotations)


def _stored(data: str, mime: str, shelf: _Shelf) -> ResourceLink | None:
    import binascii  # noqa: PLC0415  rare, off the start-up path

    plain = "".join(data.split()).rstrip("=").replace("-", "+").replace("_", "/")
    try:
        # Strict: what is no base64 must stay as it is, not be stored in parts.
        raw = binascii.a2b_base64(plain + "=" * (-len(plain) % 4), strict_mode=True)
    except ValueError:
        return None
    kind = mime.partition("/")[0]
    name = kind if kind in ("image", "audio", "video") else "data"
    uri = shelf.put(raw, mime, name)
    if not uri:
        return None
    return ResourceLink(uri, name, description=mime, mime_type=mime, size=len(raw))


def _cut(result: Result, shelf: _Shelf, *, keep_end: bool) -> None:
    """All text of a result as one block within the bounds, with a word on what was left out."""
    whole = _text_of(result.content)
    data = whole.encode("utf-8", "replace")
    lines = count_lines(whole)
    uri = shelf.put_whole(data, "text/plain; charset=utf-8", "output")
    kept = keep_lines(whole, MAX_BYTES, MAX_LINES, keep_end=keep_end)
    where = f"; the whole output: {uri}" if uri else ""
    note = (
        f"[{'last' if keep_end else 'first'} {count_lines(kept)} of {lines} lines, "
        f"{len(kept.encode('utf-8', 'replace'))} of {len(data)} bytes{where}]"
    )
    body = f"{note}\n{kept}" if keep_end else f"{kept}\n{note}"
    first = next(i for i, b in enumerate(result.content) if isinstance(b, Text))
    others: list[Block] = [b for b in result.content if not isinstance(b, Text)]
    others.insert(first, Text(body))
    result.content = others
    result.for_llm = ""
    result.truncated = Truncated(len(data), lines, "end" if keep_end else "start", uri)


def keep_lines(body: str, max_bytes: int, max_lines: int, *, keep_end: bool) -> str:
    """Whole lines from one end within both bounds; a single longer line is cut inside.

    Never cuts inside a character. Sizes count UTF-8 bytes. Blank lines at the kept end
    give way, so that a long line before a final newline is not lost for it; nor is one for
    a few short lines, such as an exit code.
    """
    # A character has a byte at least: what is further away is not kept, nor taken apart.
    if keep_end:
        lines = body.rstrip("\n")[-max_bytes - 2 :].split("\n")
        lines.reverse()
    else:
        lines = body.lstrip("\n")[: max_bytes + 2].split("\n")
    chosen: list[str] = []
    size = 0
    for line in lines[:max_lines]:
        size += len(line.encode("utf-8", "replace")) + 1
        if size > max_bytes + 1:
            break
        chosen.append(line)
    rest = max_bytes - sum(len(line.encode("utf-8", "replace")) + 1 for line in chosen)
    if len(chosen) < min(len(lines), max_lines) and rest > max_bytes // 2:
        data = lines[len(chosen)].encode("utf-8", "replace")
        part = data[-rest:] if keep_end else data[:rest]
        chosen.append(part.decode("utf-8", "ignore"))
    return "\n".join(reversed(chosen) if keep_end else chosen)


MASK = "[***]"
SECRET_MIN = 6
"""Characters of the shortest secret that is masked; longer than `MASK`, so that no mask
can hold, or help to spell, a secret."""

DEPTH_MAX = 100


def mask(value: Any, secrets: tuple[str, ...]) -> Any:
    """Any JSON value with every known secret of six characters or more masked."""
    worth = _worth(secrets)
    return _mapped(value, lambda text: _masked(text, worth)) if worth else value


def mask_result(result: Result, secrets: tuple[str, ...]) -> Result:
    """Mask known secrets everywhere in a result, before it is cut or stored."""
    worth = _worth(secrets)
    if not worth:
        return result

    def masked(text: str) -> str:
        return _masked(text, worth)

    for block in result.content:
        for name in block.__struct_fields__:
            value = getattr(block, name)
            if isinstance(value, str | dict):
                setattr(block, name, _mapped(value, masked))
    result.structured = _mapped(result.structured, masked)
    result.for_llm = masked(result.for_llm)
    if result.for_user is not None:
        result.for_user = masked(result.for_user)
    return result


def _worth(secrets: tuple[str, ...]) -> list[str]:
    """The secrets to mask, also as they are spelt inside JSON text; the longest first."""
    found = {s for s in secrets if len(s) >= SECRET_MIN}
    found |= {msgspec.json.encode(_encodable(s))[1:-1].decode() for s in found}
    return sorted(found, key=len, reverse=True)


def _masked(text: str, worth: list[str]) -> str:
    """One pass for each secret: linear, whatever a tool puts around a secret."""
    for secret in worth:
        text = text.replace(secret, MASK)
    # What stands around a mask may be a secret, or be one again without end.
    return MASK if any(secret in text for secret in worth) else text


def absent(value: Any, secrets: tuple[str, ...]) -> Any:
    """`mask` for short secrets too; results alone may hold a short one, by chance."""
    worth = _worth(secrets)
    short = "|".join(re.escape(s) for s in secrets if 0 < len(s) < SECRET_MIN)

    def masked(text: str) -> str:
        text = _masked(text, worth)
        return re.sub(short, MASK, text) if short else text

    return _mapped(value, masked) if secrets else value


def _mapped(value: Any, change: Callable[[str], str], depth: int = 0) -> Any:
    """A JSON value with each text in it changed; a number that is a secret is masked whole."""
    if isinstance(value, str):
        return change(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return MASK if change(str(value)) == MASK else value
    if depth == DEPTH_MAX:
        return "[nested too deeply]"
    if isinstance(value, msgspec.Struct):
        return _mapped(msgspec.to_builtins(value), change, depth)
    if isinstance(value, dict):
        return {
            change(key) if isinstance(key, str) else key: _mapped(item, change, depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_mapped(item, change, depth + 1) for item in value]
    return value
