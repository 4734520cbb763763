"""Bodies that the gate reads: as their handlers do, and not more than it has time for."""

import json

import pytest

from bolide.auth.request_bodies import MAX_DIALECT, MAX_JSON, UnreadableBody, read_body
from bolide.protocol import fastjson
from bolide.protocol.bodies.locks import LockRequest
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame

LOCK = LockRequest(consumer_group="g", client_id="c", mq_set=[MessageQueue("T", "broker-a", 0)])
STANDARD = json.dumps(
    {
        "consumerGroup": "g",
        "clientId": "c",
        "mqSet": [{"topic": "T", "brokerName": "broker-a", "queueId": 0}],
    }
).encode()
DIALECT = STANDARD.replace(b'"consumerGroup"', b"consumerGroup")


def read(body: bytes) -> LockRequest:
    return read_body(Frame(code=RequestCode.LOCK_BATCH_MQ, body=body), LockRequest)


def padded(body: bytes, size: int) -> bytes:
    """The same JSON with that many bytes."""
    return body[:-1] + b" " * (size - len(body)) + b"}"


@pytest.mark.parametrize("body", [STANDARD, DIALECT, fastjson.encode(LOCK)])
def test_a_body_is_read_in_all_spellings_that_its_handler_reads(body: bytes) -> None:
    assert read(body) == LOCK == fastjson.decode(body, LockRequest)


def test_the_last_of_two_equal_keys_counts_here_as_for_the_handler() -> None:
    for body in (STANDARD, DIALECT):
        twice = body[:-1] + b', "consumerGroup": "other"}'
        assert read(twice).consumer_group == "other"
        assert fastjson.decode(twice, LockRequest).consumer_group == "other"


def test_a_large_body_must_be_standard_json() -> None:
    assert read(padded(STANDARD, MAX_JSON)) == LOCK
    assert read(padded(DIALECT, MAX_DIALECT)) == LOCK
    with pytest.raises(UnreadableBody, match="must be standard JSON of the expected shape"):
        read(padded(DIALECT, MAX_DIALECT + 1))
    with pytest.raises(UnreadableBody, match=f"over the limit of {MAX_JSON}; send several"):
        read(padded(STANDARD, MAX_JSON + 1))


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"\xff", b'{"mqSet": 5}', b"[" * 5000, b'{"a":' * 5000]
)
def test_what_cannot_be_read_is_refused(body: bytes) -> None:
    with pytest.raises(UnreadableBody, match="cannot be read"):
        read(body)
