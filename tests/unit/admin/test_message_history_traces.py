"""Trace records of a message, in order of time."""

from typing import Any, cast

import pytest

from bolide.admin import MessageNotFound
from bolide.admin.message_history import Traces
from bolide.admin.messages import Messages
from bolide.model.message import StoredMessage
from bolide.protocol.trace import TraceRecord, encode_record
from tests.support.aio import on_loop


class Found:
    """Reply of a broker with the later records first, as when their client sent sooner."""

    async def by_key(self, topic: str, key: str, **_: Any) -> list[StoredMessage]:
        consumed = [record("SubAfter", outcome="SUCCESS"), record("SubBefore", retry_times=0)]
        bodies = [*consumed, record("Pub", message_type="Normal", body_length=1, cost_ms=1)]
        return [StoredMessage(topic, body, {"KEYS": key}) for body in bodies]


def record(kind: str, **said: Any) -> bytes:
    known: dict[str, Any] = {"message_id": "ID", "time_ms": 5, "cost_ms": 0, "success": True} | said
    return encode_record(TraceRecord(kind=kind, **known)).encode()


@on_loop
async def test_what_happened_in_one_millisecond_is_told_in_its_order() -> None:
    found = await Traces(cast(Messages, Found())).of("ID")
    assert [each.record.kind for each in found] == ["Pub", "SubBefore", "SubAfter"]


@on_loop
async def test_the_key_of_a_message_is_not_its_id() -> None:
    with pytest.raises(MessageNotFound, match="id k"):
        await Traces(cast(Messages, Found())).of("k")
