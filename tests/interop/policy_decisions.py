"""Sends the cases of `policy_cases` to a broker and reads from its answers what it decided."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from itertools import count, groupby
from typing import NamedTuple

from bolide.protocol.codes import RequestCode as Code
from bolide.protocol.codes import ResponseCode
from bolide.protocol.frame import Frame, HeaderEncoding
from bolide.protocol.framing import encode_frame
from bolide.protocol.message_id import OffsetId
from tests.interop.exchanges import Exchange
from tests.interop.policy_cases import (
    HALF_QUEUE_OFFSET,
    MESSAGE_ID,
    POSITION,
    ROOT,
    SEND_V2,
    Case,
    cases,
    preparation,
    signed,
)
from tests.support.wire import RawPeer

_PREPARED = "4"
"""The system flag of a half message."""
_UNANSWERED_AFTER = 2.0

DENIALS = (
    "username cannot be null.",
    "is not found.",
    "is disabled.",
    "check signature failed.",
    "has no permission to access",
    "parse authorization context error.",
)

SENDS_AND_PULLS = frozenset({
    Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, Code.SEND_REPLY_MESSAGE,
    Code.SEND_REPLY_MESSAGE_V2, Code.END_TRANSACTION, Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE,
})  # fmt: skip
"""They are asked with binary headers as well."""


class Verdict(NamedTuple):
    denied: bool
    code: int | None
    """None: there was no answer."""
    remark: str


Verdicts = Mapping[str, Verdict]


async def decide(address: str, *encodings: HeaderEncoding) -> list[Verdicts]:
    """What a broker decides in every case, for each encoding of the header in turn.

    All is asked on one connection, each request in all encodings before the next one: what was
    prepared for the first serves the further ones.
    """
    found: list[dict[str, Verdict]] = [{} for _ in encodings]
    async with await RawPeer.connect(address) as peer:
        asker = Asker(peer)
        for code, fields, body in preparation():
            made = await asker.ask_as_root(Frame(code=code, fields=fields, body=body))
            assert made.code == ResponseCode.SUCCESS, (fields, made.remark)
        for _, group in groupby(cases(), key=lambda case: case.exchange.name):
            together = list(group)
            has_binary = together[0].exchange.code in SENDS_AND_PULLS
            for verdicts, encoding in zip(found, encodings, strict=True):
                if has_binary or encoding is HeaderEncoding.JSON:
                    verdicts.update(await asker.ask_all(together, encoding))
    return list(found)


class Asker:
    """A connection on which the requests of several identities are sent at once."""

    def __init__(self, peer: RawPeer) -> None:
        self._peer = peer
        self._numbers = count(1)

    async def ask_as_root(self, frame: Frame) -> Frame:
        frame.opaque = next(self._numbers)
        await self._peer.send(encode_frame(signed(frame, ROOT)))
        while (answer := await self._peer.frame()).opaque != frame.opaque or not answer.is_response:
            pass  # the broker also asks and notifies its clients
        return answer

    async def ask_all(self, together: Sequence[Case], encoding: HeaderEncoding) -> Verdicts:
        """The answers come in any order, and some never."""
        waiting: dict[int, Case] = {}
        frames = []
        for case in together:
            frame = await self._frame(case.exchange)
            frame.encoding = encoding
            frame.opaque = next(self._numbers)
            waiting[frame.opaque] = case
            frames.append(encode_frame(signed(frame, case.identity)))
        await self._peer.send(b"".join(frames))
        found: dict[str, Verdict] = {}
        try:
            while waiting:
                async with asyncio.timeout(_UNANSWERED_AFTER):
                    answer = await self._peer.frame()
                if answer.is_response and answer.opaque in waiting:
                    found[waiting.pop(answer.opaque).name] = _verdict(answer)
        except TimeoutError:
            found |= {case.name: Verdict(False, None, "") for case in waiting.values()}
        return found

    async def _frame(self, exchange: Exchange) -> Frame:
        now = int(time.time() * 1000)
        values = {"{now}": str(now), "{later}": str(now + 3_600_000)}
        if {POSITION, MESSAGE_ID} & set(exchange.fields.values()):
            values |= await self._message(exchange.code)
        fields = {name: _filled_in(text, values) for name, text in exchange.fields.items()}
        return Frame(code=exchange.code, fields=fields, body=exchange.body)

    async def _message(self, code: int) -> dict[str, str]:
        """Send a message, or a half, and say where it lies."""
        fields = dict(SEND_V2)
        if code in {Code.END_TRANSACTION, Code.RESUME_CHECK_HALF_MESSAGE}:
            fields |= {"f": _PREPARED, "i": fields["i"] + "TRAN_MSG\x01true\x02PGROUP\x01p\x02"}
        sent = await self.ask_as_root(
            Frame(code=Code.SEND_MESSAGE_V2, fields=fields, body=b"to be found")
        )
        assert sent.code == ResponseCode.SUCCESS, sent.remark
        answer = sent.fields or {}
        return {
            MESSAGE_ID: answer["msgId"],
            POSITION: str(OffsetId.decode(answer["msgId"]).physical_offset),
            HALF_QUEUE_OFFSET: answer["queueOffset"],
        }


def _filled_in(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(name, value)
    return text


def _verdict(answer: Frame) -> Verdict:
    remark = answer.remark or ""
    is_denial = any(text in remark for text in DENIALS)
    return Verdict(answer.code == ResponseCode.NO_PERMISSION and is_denial, answer.code, remark)
