"""Cells of messages that belong to more than their topic: transactions, requests, traces."""

from collections.abc import Iterable

import msgspec

from tests.interop.matrix.cell import Seen, bodies, cell
from tests.interop.matrix.facts import Message, Sent


class Half(msgspec.Struct):
    status: str
    id: str


class Transactions(msgspec.Struct):
    sent: list[Half]
    checked: list[str]
    deliveries: list[Message]


@cell()
def transaction(seen: Seen) -> None:
    """Transactions: commit, roll back, and tell when asked."""
    told = seen.told(Transactions)
    assert {sent.status for sent in told.sent} == {"SEND_OK"}
    # A broker may ask for what has just ended, too, and Apache's then delivers it twice.
    assert set(told.checked) >= {"unknown 0", "unknown 1"}
    assert set(bodies(told.deliveries)) == {"commit 0", "commit 1", "unknown 0"}
    assert seen.broker != "ours" or len(told.deliveries) == 3
    ids = {sent.id for sent in told.sent}
    for message in told.deliveries:
        assert message.id in ids
        assert (message.topic, message.tags) == (seen.topic, "tag")


class ReplyPusher(msgspec.Struct):
    reply: str
    colour: str
    later: str
    timed_out: bool


@cell()
def request(seen: Seen) -> None:
    """Request and reply: at once, later, and never."""
    assert seen.told(ReplyPusher) == ReplyPusher("re: first", "red", "re: second", timed_out=True)


class Traced(msgspec.Struct):
    sent: Sent
    traces: list[Message]


@cell(beside="traces")
def trace(seen: Seen) -> None:
    """Trace of a message in a topic of its own."""
    told = seen.told(Traced)
    traces = contexts(told.traces)
    published, before, after = (traces[kind] for kind in ("Pub", "SubBefore", "SubAfter"))
    assert published[3:8] == [f"{seen.group}_producers", seen.topic, told.sent.id, "tag", "key"]
    assert published[9] == str(len("message"))
    assert published[12:14] == [told.sent.offset_id, "true"]
    assert (before[3], before[5]) == (seen.group, told.sent.id)
    assert after[1] == before[4]
    assert (after[2], after[4]) == (told.sent.id, "true")


def contexts(traces: Iterable[Message]) -> dict[str, list[str]]:
    """What was traced, by kind: fields stand apart by 0x01, contexts by 0x02."""
    texts = [text for message in traces for text in message.body.split("\x02") if text]
    return {fields[0]: fields for fields in (text.split("\x01") for text in texts)}
