"""The frame: one request, one-way request or response between two peers (`RemotingCommand`)."""

from enum import IntEnum
from typing import Final

import msgspec

from bolide.version import ROCKETMQ_VERSION


class HeaderEncoding(IntEnum):
    """How a frame's header is written; the top byte of the header word."""

    JSON = 0
    ROCKETMQ = 1


class FrameFlag:
    """Kind of a frame. Bit 0 is tested first: both peers number their own requests.

    Plain numbers: the bits are tested for every frame, and an enum's operators are slow.
    """

    RESPONSE: Final = 1
    ONE_WAY: Final = 2


class Language(IntEnum):
    """Language of a peer (`LanguageCode`): a name in a JSON header, a number in a binary one."""

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12
    NODE_JS = 13


class Frame(msgspec.Struct, kw_only=True):
    """One decoded frame. `fields` are RocketMQ's extFields: the typed header, flattened."""

    code: int = 0
    fields: dict[str, str] | None = msgspec.field(name="extFields", default=None)
    flag: int = 0
    language: str = "PYTHON"
    opaque: int = 0
    remark: str | None = None
    version: int = ROCKETMQ_VERSION
    body: bytes = b""
    encoding: HeaderEncoding = HeaderEncoding.JSON

    @property
    def is_response(self) -> bool:
        return bool(self.flag & FrameFlag.RESPONSE)

    @property
    def is_one_way(self) -> bool:
        return bool(self.flag & FrameFlag.ONE_WAY)
