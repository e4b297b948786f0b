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
        raise ValueError('content must be a list of blocks such as {"type": "text", "text": "…"}')
    checked: list[Block] = []
    for index, item in enumerate(content):
        try:
            checked.append(msgspec.convert(item, Block))
        except msgspec.ValidationError as error:
            raise ValueError(f"content[{index}]: {error}") from None
    return checked


Keep = Callable[[bytes, str, str], str]
"""Stores data with its MIME type and name; returns a `media://` URL, empty on failure."""

_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)?(?:;[\w=.+-]+)*;base64,([A-Za-z0-9+/=_-]{1024,})")
_LONG_BASE64 = re.compile(r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{1022,}={0,2}(?![A-Za-z0-9+/=])")


def is_small(result: Result) -> bool:
    """Whether nothing needs to be cut or stored: the hot path's one look."""
    for block in result.content:
        if type(block) is Text:
            size = len(block.text)
            if size >= INLINE_BASE64 and not _plain(block.text, size):
                return False
        elif type(block) is not ResourceLink:
            return False
    return len(result.content) <= 16


def _plain(body: str, size: int) -> bool:
    if size * 4 > MAX_BYTES and len(body.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        return False
    if size >= MAX_LINES and body.count("\n") >= MAX_LINES:
        return False
    return not (_DATA_URL.search(body) or _looks_base64(body))


def _looks_base64(body: str) -> bool:
    match = _LONG_BASE64.search(body)
    return match is not None and _is_base64(match.group())


def _is_base64(run: str) -> bool:
    # A long run of one letter or of hex digits is text that people print.
    return len(set(run)) > 16 and len(run) % 4 == 0 and not run.isalpha()


def normalise(result: Result, keep: Keep, *, keep_end: bool = False) -> Result:
    """Make a result fit the contract; changes and returns `result`.

    Args:
        result: as the tool gave it.
        keep: where long base64 and the whole of a cut text go.
        keep_end: shells keep the end of a long text, others the beginning.
    """
    if not is_small(result):
        result.content = [_light(block, keep, result.media) for block in result.content]
        _cut(result, keep, keep_end=keep_end)
    return complete(result)


def complete(result: Result) -> Result:
    """Text that is never empty, and the text for the model; changes and returns `result`."""
    if not any(type(b) is not Text or b.text for b in result.content):
        result.content = [Text(NO_OUTPUT)]
    if not result.for_llm:
        only = result.content[0]
        simple = len(result.content) == 1 and type(only) is Text
        result.for_llm = only.text if simple and type(only) is Text else joined(result.content)
    return result


def _light(block: Block, keep: Keep, media: list[str]) -> Block:
    """The block with its long base64 moved to media."""
    if isinstance(block, Text):
        return _light_text(block, keep, media)
    if isinstance(block, Image | Audio):
        if len(block.data) < INLINE_BASE64:
            return block
        return _stored(block.data, block.mime_type, keep, media) or block
    if isinstance(block, Resource):
        blob = block.resource.get("blob")
        if isinstance(blob, str) and len(blob) >= INLINE_BASE64:
            mime = str(block.resource.get("mimeType") or "application/octet-stream")
            return _stored(blob, mime, keep, media) or block
    return block


def _light_text(block: Text, keep: Keep, media: list[str]) -> Text:
    def data_url(match: re.Match[str]) -> str:
        mime = match.group(1) or "application/octet-stream"
        link = _stored(match.group(2), mime, keep, media)
        return link.uri if link else match.group()

    def run(match: re.Match[str]) -> str:
        if not _is_base64(match.group()):
            return match.group()
        link = _stored(match.group(), "application/octet-stream", keep, media)
        return link.uri if link else match.group()

    body = block.text
    if len(body) < INLINE_BASE64:
        return block
    body = _LONG_BASE64.sub(run, _DATA_URL.sub(data_url, body))
    return block if body == block.text else Text(body, block.annotations)


def _stored(data: str, mime: str, keep: Keep, media: list[str]) -> ResourceLink | None:
    import binascii  # noqa: PLC0415  rare, off the start-up path

    try:
        raw = binascii.a2b_base64(data.replace("-", "+").replace("_", "/") + "==")
    except binascii.Error:
        return None
    kind = mime.split("/")[0]
    name = f"{kind if kind in ('image', 'audio', 'video') else 'data'}"
    uri = keep(raw, mime, name)
    if not uri:
        return None
    media.append(uri)
    return ResourceLink(uri, name, description=mime, mime_type=mime, size=len(raw))


def _cut(result: Result, keep: Keep, *, keep_end: bool) -> None:
    texts = [b for b in result.content if isinstance(b, Text)]
    whole = "\n".join(b.text for b in texts)
    data = whole.encode("utf-8", "replace")
    lines = whole.count("\n") + 1
    if len(data) <= MAX_BYTES and lines <= MAX_LINES:
        return
    uri = keep(data, "text/plain; charset=utf-8", "output")
    kept = keep_lines(whole, MAX_BYTES, MAX_LINES, keep_end=keep_end)
    shown = kept.count("\n") + 1 if kept else 0
    where = f"; the whole output: {uri}" if uri else ""
    note = (
        f"[{'last' if keep_end else 'first'} {shown} of {lines} lines, "
        f"{len(kept.encode('utf-8', 'replace'))} of {len(data)} bytes{where}]"
    )
    body = f"{note}\n{kept}" if keep_end else f"{kept}\n{note}"
    first = next(i for i, b in enumerate(result.content) if isinstance(b, Text))
    others: list[Block] = [b for b in result.content if not isinstance(b, Text)]
    others.insert(min(first, len(others)), Text(body))
    result.content = others
    result.for_llm = ""
    result.truncated = Truncated(len(data), lines, "end" if keep_end else "start", uri)
    if uri:
        result.media.append(uri)


def keep_lines(body: str, max_bytes: int, max_lines: int, *, keep_end: bool) -> str:
    """Whole lines from one end within both bounds; a single longer line is cut inside.

    Never cuts inside a character. Sizes count UTF-8 bytes.
    """
    lines = body.split("\n")
    chosen: list[str] = []
    size = 0
    for line in reversed(lines) if keep_end else lines:
        size += len(line.encode("utf-8", "replace")) + 1
        if size > max_bytes + 1 or len(chosen) == max_lines:
            break
        chosen.append(line)
    if chosen:
        return "\n".join(reversed(chosen) if keep_end else chosen)
    line = lines[-1] if keep_end else lines[0]
    data = line.encode("utf-8", "replace")
    part = data[-max_bytes:] if keep_end else data[:max_bytes]
    return part.decode("utf-8", "ignore")


MASK = "[secret]"


def mask(value: Any, secrets: tuple[str, ...]) -> Any:
    """Any JSON value with every known secret of six characters or more masked."""
    if isinstance(value, str):
        for secret in secrets:
            if secret in value:
                value = value.replace(secret, MASK)
        return value
    if isinstance(value, list):
        return [mask(item, secrets) for item in value]
    if isinstance(value, dict):
        return {mask(key, secrets): mask(item, secrets) for key, item in value.items()}
    return value


def mask_result(result: Result, secrets: tuple[str, ...]) -> Result:
    """Mask known secrets everywhere in a result, before it is cut or stored."""
    worth = tuple(s for s in secrets if len(s) >= 6)
    if not worth:
        return result
    plain = msgspec.to_builtins(result.content)
    if any(secret in str(plain) or secret in str(result.structured) for secret in worth):
        result.content = msgspec.convert(mask(plain, worth), list[Block])
    result.structured = mask(result.structured, worth)
    result.for_llm = mask(result.for_llm, worth)
    result.for_user = mask(result.for_user, worth)
    return result
