"""Typed headers: conversion between a struct and the fields of a frame.

A header class declares its fields in Python's spelling; the wire spelling is the same name in
camel case unless `msgspec.field(name=…)` overrides it. A field without a default is required.

Texts are read as Java reads them where that is harmless: a boolean is false unless it says true, or
1 as some clients write it, and an empty number counts as absent. A text that is no number is
refused; Java takes it for zero.
"""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Self

import msgspec

from bolide.protocol.errors import ProtocolError

Int = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""A Java int on the wire."""

Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A Java long on the wire."""


class BadHeader(ProtocolError):
    """A field of a header is missing or does not parse; the text names it."""

    def __init__(self, header: type["Header"], reason: str) -> None:
        super().__init__(f"{header.__name__}: {reason}")


class Header(msgspec.Struct, frozen=True, rename="camel"):
    """Base of all typed headers."""

    @classmethod
    def from_fields(cls, fields: Mapping[str, str] | None) -> Self:
        """Build the header from a frame's fields; unknown fields are ignored."""
        given = fields or {}
        try:
            return msgspec.convert(given, cls, strict=False)
        except (msgspec.ValidationError, UnicodeError) as exc:
            plain = _plain_texts(given, cls)
            if plain == given:
                raise BadHeader(cls, str(exc)) from exc
        return cls.from_fields(plain)

    def to_fields(self) -> dict[str, str]:
        """Flatten to wire names and texts, omitting absent values."""
        return {
            wire: _text(value)
            for name, wire in zip(
                self.__struct_fields__, self.__struct_encode_fields__, strict=True
            )
            if (value := getattr(self, name)) is not None
        }


class NoHeader(Header, frozen=True):
    """Header of requests and responses without fields."""


def _plain_texts(fields: Mapping[str, str], header: type[Header]) -> dict[str, str]:
    """Rewrite what only Java reads: texts of booleans, and empty numbers, which are left out."""
    kinds = _kinds(header)
    return {
        name: _boolean(text) if kinds.get(name) is bool else text
        for name, text in fields.items()
        if text or kinds.get(name) is not int
    }


@cache
def _kinds(header: type[Header]) -> dict[str, type]:
    """Wire names of a header's booleans and numbers."""
    kinds = {msgspec.inspect.BoolType: bool, msgspec.inspect.IntType: int}
    return {
        field.encode_name: kind
        for field in msgspec.structs.fields(header)
        for each in _alternatives(msgspec.inspect.type_info(field.type))
        if (kind := kinds.get(type(each)))
    }


def _alternatives(kind: msgspec.inspect.Type) -> tuple[msgspec.inspect.Type, ...]:
    return kind.types if isinstance(kind, msgspec.inspect.UnionType) else (kind,)


def _boolean(text: str) -> str:
    return "true" if text.lower() in {"true", "1"} else "false"


def _text(value: object) -> str:
    if value is True:
        return "true"
    if value is False:
        return "false"
    return str(value)
