"""Typed headers: conversion between a struct and the fields of a frame.

A header class declares its fields in Python's spelling; the wire spelling is the same name in
camel case unless `msgspec.field(name=…)` overrides it. A field without a default is required.
"""

from collections.abc import Mapping
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
        try:
            return msgspec.convert(fields or {}, cls, strict=False)
        except (msgspec.ValidationError, UnicodeError) as exc:
            raise BadHeader(cls, str(exc)) from exc

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


def _text(value: object) -> str:
    if value is True:
        return "true"
    if value is False:
        return "false"
    return str(value)
