"""JSON bodies decoded into a struct column of declared types.

Arrow's JSON reader is three times as fast as decoding body by body, but it fails for a whole block
if one body does not match, and it supports fewer types. Blocks of bodies are therefore tried with
Arrow first; a block that Arrow rejects is decoded body by body with msgspec.
"""

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, TypedDict

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

_BLOCK_SIZE = 1000
"""Bodies per block."""
_NOT_JSON = (b"NaN", b"Inf")
"""Not valid in JSON, but accepted by Arrow's reader."""
_FAST_TYPES = (
    pa.types.is_boolean,
    pa.types.is_signed_integer,
    pa.types.is_float64,
    pa.types.is_string,
)


def decode_values(bodies: pa.Array, kind: pa.StructType) -> pa.StructArray:
    """One struct per body; null if a body is not a JSON object or does not match the columns.

    Missing fields are null, fields without a column are ignored. Times without a zone are UTC,
    binary columns are base64.
    """
    is_fast = _is_fast(kind)
    blocks = []
    for start in range(0, len(bodies), _BLOCK_SIZE):
        block = bodies.slice(start, _BLOCK_SIZE)
        found = _decode_together(block, kind) if is_fast else None
        blocks.append(_decode_each(block, kind) if found is None else found)
    return pa.concat_arrays(blocks) if blocks else pa.array([], kind)


# A block at a time, by Arrow


@lru_cache(maxsize=64)
def _is_fast(kind: pa.DataType) -> bool:
    """Whether Arrow and msgspec decode the type to the same values."""
    if pa.types.is_struct(kind):
        return all(_is_fast(field.type) for field in kind)
    if pa.types.is_list(kind):
        return _is_fast(kind.value_type)
    return any(is_it(kind) for is_it in _FAST_TYPES)


def _decode_together(bodies: pa.Array, kind: pa.StructType) -> pa.StructArray | None:
    """Decode with Arrow; None unless every body is exactly one matching object.

    A body that begins and ends with a brace yields at least one row and cannot extend into the
    next line, so an equal number of rows and bodies means one row per body.
    """
    braced = pc.and_(pc.starts_with(bodies, b"{"), pc.ends_with(bodies, b"}"))
    if bodies.null_count or not pc.all(braced).as_py():
        return None
    lines = b"\n".join(bodies.to_pylist())
    if any(word in lines for word in _NOT_JSON):
        return None
    try:
        lines.decode()  # Arrow does not validate UTF-8
        table = pj.read_json(
            pa.BufferReader(lines),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(lines) + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=pa.schema(list(kind)), unexpected_field_behavior="ignore"
            ),
        )
    except (UnicodeDecodeError, pa.ArrowInvalid):
        return None
    if table.num_rows != len(bodies):
        return None
    arrays = [table.column(field.name).combine_chunks() for field in kind]
    found = pa.StructArray.from_arrays(arrays, fields=list(kind))
    return None if _has_infinity(found) else found


def _has_infinity(found: pa.Array) -> bool:
    """Whether the array contains infinity, which Arrow yields for numbers out of range."""
    if pa.types.is_struct(found.type):
        return any(map(_has_infinity, found.flatten()))
    if pa.types.is_list(found.type):
        return _has_infinity(found.flatten())
    return pa.types.is_float64(found.type) and bool(pc.any(pc.is_inf(found)).as_py())


# Body by body, by msgspec


def _decode_each(bodies: pa.Array, kind: pa.StructType) -> pa.StructArray:
    read = _reader(kind)
    rows = [read(body) for body in bodies.to_pylist()]
    try:
        return pa.array(rows, kind)
    except (pa.ArrowException, ValueError, OverflowError):  # such as a decimal with more digits
        return pa.array([row if _fits(row, kind) else None for row in rows], kind)


def _fits(row: object, kind: pa.StructType) -> bool:
    try:
        pa.array([row], kind)
    except (pa.ArrowException, ValueError, OverflowError):
        return False
    return True


@lru_cache(maxsize=64)
def _reader(kind: pa.StructType) -> Callable[[bytes | None], Any]:
    decode = msgspec.json.Decoder(_python_type(kind)).decode

    def read(body: bytes | None) -> Any:
        try:
            return None if body is None else decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    return read


def _python_type(kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        fields = {field.name: _python_type(field.type) | None for field in kind}
        # Workaround: msgspec finds non-ASCII field names only after it has encoded them once.
        msgspec.json.encode(list(fields))
        return TypedDict("Object", fields, total=False)  # type: ignore[operator]
    if pa.types.is_list(kind):
        return list[_python_type(kind.value_type) | None]  # type: ignore[misc]
    if pa.types.is_map(kind):
        return dict[str, _python_type(kind.item_type) | None]  # type: ignore[misc]
    if pa.types.is_signed_integer(kind):
        most = 1 << (kind.bit_width - 1)
        return Annotated[int, msgspec.Meta(ge=-most, le=most - 1)]
    for is_it, python in _PYTHON_TYPES:
        if is_it(kind):
            return python
    raise TypeError(f"JSON cannot be decoded to {kind}")


_PYTHON_TYPES = (
    (pa.types.is_boolean, bool),
    (pa.types.is_floating, float),
    (pa.types.is_string, str),
    (pa.types.is_binary, bytes),
    (pa.types.is_date, date),
    (pa.types.is_timestamp, datetime),
    (pa.types.is_decimal, Decimal),
)
