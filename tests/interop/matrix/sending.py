"""Cells of sending: every way to send, and what is then found in the queues."""

import msgspec

from tests.interop.matrix.cell import SECOND, Seen, bodies, cell, in_queues, numbered
from tests.interop.matrix.facts import Message, Sent


class Sends(msgspec.Struct):
    sent: list[Sent]
    stored: list[Message]
    failures: list[str] = []


class Batch(msgspec.Struct):
    sent: Sent
    stored: list[Message]


class Stored(msgspec.Struct):
    stored: list[Message]


def check_places(sends: Sends) -> None:
    """Every message is where its send result says, and the queues have no gap."""
    assert {sent.status for sent in sends.sent} == {"SEND_OK"}
    assert {sent.id: (sent.queue, sent.offset) for sent in sends.sent} == {
        message.id: message.place for message in sends.stored
    }
    assert len({sent.offset_id for sent in sends.sent}) == len(sends.sent)
    for messages in in_queues(sends.stored).values():
        assert [message.offset for message in messages] == list(range(len(messages)))


@cell(queues=0)
def sync(seen: Seen) -> None:
    """Synchronous sends, to a topic that is made by the first."""
    sends = seen.told(Sends)
    check_places(sends)
    assert {sent.queue for sent in sends.sent} == set(range(4))
    stored = {message.id: message for message in sends.stored}
    for n, sent in enumerate(sends.sent):
        message = stored[sent.id]
        assert message.body == f"message {n} Grüße" + " and so on" * (1000 if n == 3 else 0)
        assert (message.tags, message.keys) == (f"tag{n}", f"key{n} all")
        assert message.properties["number"] == str(n)
        assert message.properties["sign"] == "ü € 😀"
        assert 0 <= message.stored - message.born < 10 * SECOND


@cell("async")
def asynchronous(seen: Seen) -> None:
    """Asynchronous sends."""
    sends = seen.told(Sends)
    assert not sends.failures
    check_places(sends)
    assert sorted(bodies(sends.stored)) == sorted(numbered(12))


@cell()
def one_way(seen: Seen) -> None:
    """One-way sends."""
    stored = seen.told(Stored).stored
    assert sorted(bodies(stored)) == sorted(numbered(12))


@cell()
def batch(seen: Seen) -> None:
    """A batch."""
    told = seen.told(Batch)
    assert told.sent.status == "SEND_OK"
    assert bodies(told.stored) == numbered(12)
    assert told.sent.id.split(",") == [message.id for message in told.stored]
    assert len(set(told.sent.offset_id.split(","))) == 12
    assert [message.place for message in told.stored] == [(told.sent.queue, n) for n in range(12)]
    assert [message.tags for message in told.stored] == [f"tag{n}" for n in range(12)]


@cell()
def selector(seen: Seen) -> None:
    """Queues chosen by a selector."""
    sends = seen.told(Sends)
    check_places(sends)
    assert [sent.queue for sent in sends.sent] == [n % 4 for n in range(12)]
    for queue, messages in in_queues(sends.stored).items():
        assert bodies(messages) == [f"message {n}" for n in range(queue, 12, 4)]
