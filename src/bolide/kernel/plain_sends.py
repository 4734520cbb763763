"""Plain sends as they lie in the bytes received: what the broker's fast path reads.

A send is plain if it is a SEND_MESSAGE_V2 or SEND_BATCH_MESSAGE, its header JSON or binary, whose
properties ask for nothing: no delay, timer or retry, and none of the marks that a broker sets
itself; a single one may be of a transaction, see `plain_ends`. Whatever is not plain takes the
ordinary way; that must give the same answer to a plain one, byte for byte.
"""

import re
import struct
from typing import Annotated, NamedTuple

import msgspec

from bolide.kernel.plain_ends import wishes_half
from bolide.protocol import binary_fields
from bolide.protocol.errors import ProtocolError
from bolide.protocol.frame import HeaderEncoding

_CODES = {310: False, 320: True}
"""SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE, and whether that is a batch."""
_CODE = re.compile(b"3[12]0")
_BINARY_CODES = [struct.pack(">H", code) for code in _CODES]
_PREFIX = struct.Struct(">II")
_MAX_JSON_HEADER = 1024 * 1024  # the encoding byte of JSON is 0: a larger word is not for us

_WISHES = (
    "DELAY|TIMER_|TRAN_MSG|POP_CK|INNER_|MSG_REGION|TRACE_ON|CLUSTER|__STARTDELIVERTIME|BOLIDE_"
)
# To be looked for in properties with a \x02 before the first too: `re` looks for one character
# much faster than for one of two cases.
_ASKS = re.compile(f"\x02(?:{_WISHES})")
_WISH = re.compile(_WISHES)
_UNIQUE_IDS = "\x02UNIQ_KEY"
_UNIQUE_ID = re.compile("\x02UNIQ_KEY\x01([0-9A-Za-z._-]{1,128})(?:\x02|\\Z)")
_NOT_PLAIN_FLAGS = ~0x705
"""All but the bits that say how the body is compressed, and the one of half messages."""
_PREPARED = 0x4

_Int = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


# What nobody asks about is read all the same, and unknown fields are for the ordinary way: a
# request that it would refuse for one of them must not slip through here.


class _Fields(msgspec.Struct, forbid_unknown_fields=True):
    """The one-letter names of `SendHeader`."""

    b: str
    e: _Int
    f: _Int
    g: _Long
    h: _Int
    a: str
    c: str
    d: _Int
    i: str = ""
    j: _Int = 0
    k: bool = False
    l: _Int = 0  # noqa: E741  the wire's own name
    m: bool = False
    n: str = ""


class _Header(msgspec.Struct):
    code: _Int
    extFields: _Fields  # noqa: N815  the wire's own name
    flag: _Int = 0
    language: str = ""
    opaque: _Int = 0
    remark: str | None = None
    version: _Int = 0


_decode = msgspec.json.Decoder(_Header, strict=False).decode


class PlainSend(NamedTuple):
    """A send as it lies in a buffer."""

    end: int
    """Where the next frame begins."""
    opaque: int
    one_way: bool
    topic: str
    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    properties: str
    unique_id: str
    """Empty for a batch: its messages have their own."""
    body: bytes
    is_batch: bool = False
    is_binary: bool = False
    """How its header is written, and how it is to be answered."""
    is_half: bool = False
    """It waits for the end of its transaction."""
    group: str = ""


def read_plain_send(data: bytes, position: int) -> PlainSend | None:
    """The plain send that lies whole at `position`, or None if something else does."""
    if len(data) - position < _PREFIX.size:
        return None
    length, header_size = _PREFIX.unpack_from(data, position)
    is_binary = header_size >> 24 == HeaderEncoding.ROCKETMQ
    if is_binary:
        header_size &= 0xFFFFFF
    end = position + 4 + length
    body_at = position + _PREFIX.size + header_size
    if end > len(data) or header_size > _MAX_JSON_HEADER or body_at >= end:
        return None
    try:
        header = (_read_binary if is_binary else _read_json)(data[position + 8 : body_at])
    except (ProtocolError, ValueError, RecursionError):  # msgspec's errors are ValueErrors
        return None
    return _plain(header, end, data[body_at:end], is_binary) if header else None


def _read_json(header: bytes) -> _Header | None:
    # Most other requests end here, not decoded.
    return _decode(header) if _CODE.search(header) else None


def _read_binary(header: bytes) -> _Header | None:
    if header[:2] not in _BINARY_CODES:
        return None
    frame = binary_fields.decode(header)
    if frame.remark or frame.version < 0:
        return None
    fields = msgspec.convert(frame.fields or {}, _Fields, strict=False)
    return _Header(frame.code, fields, flag=frame.flag, opaque=frame.opaque)


def _plain(header: _Header, end: int, body: bytes, is_binary: bool) -> PlainSend | None:
    fields, properties = header.extFields, header.extFields.i
    if _CODES.get(header.code) is not fields.m or header.flag & 1 or fields.k or fields.j:
        return None
    if fields.f & _NOT_PLAIN_FLAGS or fields.e < 0:
        return None
    is_half, marked = False, f"\x02{properties}"
    if _ASKS.search(marked):
        is_half = not fields.m and _is_plain_half(fields)
        if not is_half:
            return None
    elif fields.f & (~0 if fields.m else _PREPARED):
        return None
    unique_id = "" if fields.m else _unique_id(marked)
    if unique_id is None:
        return None
    return PlainSend(
        end, header.opaque, bool(header.flag & 2), fields.b, fields.e, fields.f, fields.g,
        fields.h, properties, unique_id, body, fields.m, is_binary, is_half,
        fields.a if is_half else "",
    )  # fmt: skip


def _is_plain_half(fields: _Fields) -> bool:
    if not fields.a or "\x01" in fields.a or "\x02" in fields.a:
        return False
    return wishes_half(fields.i, _WISH)


def _unique_id(marked: str) -> str | None:
    found = _UNIQUE_ID.search(marked)
    return found[1] if found is not None and marked.count(_UNIQUE_IDS) == 1 else None


def asks_for_nothing(properties: str) -> bool:
    """Whether a property string can be stored as it is."""
    return not _ASKS.search(f"\x02{properties}")
