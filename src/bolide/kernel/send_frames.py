"""Fast encoding of plain sends and decoding of their replies, for producers.

The encoded bytes are those that `protocol.framing` writes for the same request. Only replies to
successfully stored messages are decoded here; all other frames are left to `protocol.framing`.
`_send_frames` is the compiled version.
"""

import struct
from collections.abc import Container, Mapping
from typing import Annotated, NamedTuple

import msgspec

from bolide.kernel.signatures import SigningKey
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import FrameFlag
from bolide.protocol.signature import SIGNATURE
from bolide.version import ROCKETMQ_VERSION

_PREFIX = struct.Struct(">II")
_MAX_JSON_HEADER = (
    1024 * 1024
)  # larger values have an encoding byte other than JSON's 0, or are over the limit

_text = msgspec.json.Encoder().encode


class Credentials(NamedTuple):
    """Who signs requests, and with what."""

    fields: Mapping[str, str]
    """The access key, and a security token if there is one."""
    secret: bytes


class SendTemplate:
    """The parts that all plain sends of a producer to one queue have in common.

    Args:
        common: producer group and topic fields, by their short names.
        credentials: if given, requests are signed.
    """

    __slots__ = ("_credentials", "_head", "_key", "_queue", "_signed")

    def __init__(
        self,
        common: Mapping[str, str],
        queue_id: int,
        broker_name: str,
        credentials: Credentials | None = None,
    ) -> None:
        self._head, self._queue = template_parts(common, queue_id, broker_name)
        self._key = None
        if credentials is not None:
            self._key = SigningKey(credentials.secret)
            self._credentials = credentials_part(credentials)
            self._signed = signed_parts(common, queue_id, broker_name, credentials)

    def write(
        self,
        opaque: int,
        born_timestamp: int,
        flag: int,
        properties: str,
        body: bytes,
        *,
        one_way: bool = False,
    ) -> bytes:
        """Return the complete frame.

        Raises:
            UnicodeEncodeError: the properties contain a lone surrogate.
        """
        header = b"%b%d%b%b%b%d%b%b%d%b" % (
            self._head,
            flag,
            MIDDLE,
            _text(properties),
            self._queue,
            born_timestamp,
            self._signature(born_timestamp, flag, properties, body),
            ONE_WAY if one_way else ANSWERED,
            opaque,
            END,
        )
        size = len(header)
        return b"".join((_PREFIX.pack(4 + size + len(body), size), header, body))

    def _signature(self, born_timestamp: int, flag: int, properties: str, body: bytes) -> bytes:
        """The fields of the signature, if requests are signed."""
        if self._key is None:
            return b""
        first, last = self._signed
        content = b"%b%d%d%b%b%b" % (first, born_timestamp, flag, properties.encode(), last, body)
        return self._credentials + self._key.sign(content)


# Constant bytes between the parts of a request that differ per message.
MIDDLE = b'","j":"0","i":'
ANSWERED = b'"},"flag":0,"language":"PYTHON","opaque":'
ONE_WAY = ANSWERED.replace(b'"flag":0', b'"flag":%d' % FrameFlag.ONE_WAY)
END = b',"serializeTypeCurrentRPC":"JSON","version":%d}' % ROCKETMQ_VERSION


def template_parts(
    common: Mapping[str, str], queue_id: int, broker_name: str
) -> tuple[bytes, bytes]:
    """Return the constant bytes before a message's flag, and those before its born timestamp."""
    head = _text({**common, "f": "0", "h": ""}).removesuffix(b'"}')
    queue = _text({"e": str(queue_id), "n": broker_name, "g": ""})[1:-2]
    return b'{"code":%d,"extFields":%b' % (RequestCode.SEND_MESSAGE_V2, head), b"," + queue


def credentials_part(credentials: Credentials) -> bytes:
    """The bytes between the born timestamp and the signature."""
    fields = _text({**credentials.fields, SIGNATURE: ""}).removesuffix(b'"}')
    return b'",' + fields.removeprefix(b"{")


def signed_parts(
    common: Mapping[str, str], queue_id: int, broker_name: str, credentials: Credentials
) -> tuple[bytes, bytes]:
    """The values that are signed before those of a message's own fields, g to i, and after them."""
    fields = {**common, **credentials.fields, "e": str(queue_id), "n": broker_name}
    fields |= {"f": "0", "j": "0"}
    before = "".join(fields[name] for name in sorted(fields) if name < "g")
    after = "".join(fields[name] for name in sorted(fields) if name > "i")
    return before.encode(), after.encode()


SendAnswer = tuple[int, str, int, int, str | None, str, bool]
"""Opaque, offset id, queue id, queue offset, transaction id, region, and whether tracing is on."""

_Int = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Fields(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of `SendReply` that the reply to a plain send has."""

    msgId: str  # noqa: N815  wire names, as below
    queueId: _Int  # noqa: N815
    queueOffset: _Long  # noqa: N815
    transactionId: str | None = None  # noqa: N815
    MSG_REGION: str = "DefaultRegion"
    TRACE_ON: bool = True


class _Header(msgspec.Struct):
    code: _Int
    extFields: _Fields  # noqa: N815
    flag: _Int = 0
    opaque: _Int = 0
    language: str | None = None
    remark: str | None = None
    version: _Int = 0


_decode = msgspec.json.Decoder(_Header, strict=False).decode


def read_answers(
    data: bytes, position: int, wanted: Container[int]
) -> tuple[int, list[SendAnswer]]:
    """Decode consecutive success replies from `position` on whose opaque is in `wanted`.

    Returns:
        The position of the first frame that is not such a reply, and the replies.
    """
    found: list[SendAnswer] = []
    while len(data) - position >= _PREFIX.size:
        length, header_size = _PREFIX.unpack_from(data, position)
        end = position + 4 + length
        if end > len(data) or header_size + 4 != length or header_size > _MAX_JSON_HEADER:
            break
        try:
            header = _decode(data[position + _PREFIX.size : end])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            break
        if header.code or not header.flag & 1 or header.opaque not in wanted:
            break
        fields = header.extFields
        found.append(
            (
                header.opaque, fields.msgId, fields.queueId, fields.queueOffset,
                fields.transactionId, fields.MSG_REGION, fields.TRACE_ON,
            )
        )  # fmt: skip
        position = end
    return position, found
