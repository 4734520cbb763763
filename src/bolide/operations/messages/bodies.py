"""Bodies for people: what they look like, cut to a size that a page can show."""

import base64
from functools import lru_cache

import msgspec

from bolide.model.message import CompressionType, StoredMessage, SysFlag
from bolide.operations.messages.views import Body, BodyKind

PREVIEW_LENGTH = 160
"""Characters of a body in a list."""
SHOWN_BYTES = 64 * 1024
"""Bytes of a body in the view of one message."""
DUMPED_BYTES = 4 * 1024
_SNIFFED = 4 * 1024
_LARGEST_JSON = 16 * 1024 * 1024
"""A body over this is called text, if it is; parsing it takes too long."""
_COMPRESSION_SHIFT = 8
_COMPRESSION_BITS = int(SysFlag.COMPRESSION_TYPE) >> _COMPRESSION_SHIFT
_BIDI = (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C)


@lru_cache(maxsize=1)
def _pictures() -> dict[int, str]:
    """What stands for characters that terminals and pages obey instead of showing them."""
    pictures = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"}
    pictures |= {code: f"\\x{code:02x}" for code in range(0x80, 0xA0)}
    pictures |= {code: f"\\u{code:04x}" for code in (*_BIDI, 0x2028, 0x2029, 0xFEFF)}
    pictures[0x7F] = "\u2421"
    return pictures


def printable(text: str) -> str:
    """The text with control characters shown as pictures; line ends and tabs stay.

    Escape sequences, overrides of the writing direction and lone surrogates become visible.
    """
    shown = text.replace("\r\n", "\n").translate(_pictures())
    return shown.encode("utf-8", "backslashreplace").decode()


def preview_of(body: bytes, length: int = PREVIEW_LENGTH) -> str:
    """The beginning of a body on one line."""
    text = _text_of(body[: length * 4], may_be_cut=True)
    if text is None:
        return body[: length // 4].hex(" ")
    return printable(" ".join(text[:length].split()))


def kind_of(body: bytes) -> BodyKind:
    """What a body looks like, from its beginning and its end: it is not parsed."""
    if not body:
        return BodyKind.EMPTY
    if _text_of(body[:_SNIFFED], may_be_cut=len(body) > _SNIFFED) is None:
        return BodyKind.BINARY
    start, end = body[:64].lstrip()[:1], body[-64:].rstrip()[-1:]
    return BodyKind.JSON if (start, end) in {(b"{", b"}"), (b"[", b"]")} else BodyKind.TEXT


def body_of(message: StoredMessage, *, limit: int = SHOWN_BYTES) -> Body:
    """The body of a message, cut to `limit` bytes."""
    whole = message.body
    part = whole[:limit]
    text = _text_of(part, may_be_cut=len(whole) > limit)
    kind = kind_of(whole)
    if kind is BodyKind.JSON and not is_json(whole):
        kind = BodyKind.TEXT
    problem = None
    if message.sys_flag & SysFlag.COMPRESSED:
        problem = "the body cannot be decompressed: it is damaged, or its codec is not installed"
    return Body(
        kind=kind if text is not None or not whole else BodyKind.BINARY,
        size=len(whole),
        text=text,
        base64=base64.b64encode(part).decode(),
        hex_dump=hex_dump(whole[:DUMPED_BYTES]),
        is_cut=len(whole) > limit,
        compression=_compression_of(message.sys_flag),
        problem=problem,
    )


def is_json(body: bytes) -> bool:
    """Whether a body is a JSON document, that is not nested too deeply for a parser."""
    if len(body) > _LARGEST_JSON:
        return False
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
    return True


def hex_dump(data: bytes) -> str:
    """Lines of sixteen bytes, as `hexdump -C` prints them."""
    lines = []
    for start in range(0, len(data), 16):
        row = data[start : start + 16]
        left, right = row[:8].hex(" "), row[8:].hex(" ")
        letters = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        lines.append(f"{start:08x}  {left:<23}  {right:<23}  |{letters}|")
    return "\n".join(lines)


def _text_of(data: bytes, *, may_be_cut: bool) -> str | None:
    """The text in UTF-8; None if it is binary."""
    if b"\x00" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        if may_be_cut and exc.start >= len(data) - 3 and exc.reason == "unexpected end of data":
            return data[: exc.start].decode()
        return None


def _compression_of(sys_flag: int) -> str | None:
    """The codec named by the bits that stay after decompression; old clients set none."""
    kind = sys_flag >> _COMPRESSION_SHIFT & _COMPRESSION_BITS
    if kind in {each.value for each in CompressionType}:
        return CompressionType(kind).name
    return "ZLIB" if sys_flag & SysFlag.COMPRESSED else None
