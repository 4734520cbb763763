"""What may be done next with each key: nothing overtakes what is before it."""

from bolide.client.consumer.handlers.key_scheduler import (
    CallHandler,
    DeadLetterParked,
    KeyScheduler,
    ParkKeyAgain,
    ParkMessage,
    ReplayParked,
    RewriteParked,
    SkipParked,
    order_key,
)
from bolide.client.consumer.parking.parked_keys import ParkedKeys, ParkedMessage
from bolide.client.consumer.parking.records import Kind, ParkRecord
from bolide.model.message import StoredMessage


def message(offset: int, key: str = "a", **properties: str) -> StoredMessage:
    return StoredMessage("T", b"", {"__SHARDINGKEY": key} | properties, queue_offset=offset)


def parked(*offsets: int, resumed: bool = False, dead_through: int = -1) -> ParkedKeys:
    keys = ParkedKeys()
    for park_offset, offset in enumerate(offsets):
        keys.apply(record(Kind.PARK, offset, error="why", since_ms=7), park_offset, 0)
    if resumed:
        keys.apply(record(Kind.RESUME, dead_through), len(offsets), 0)
    return keys


def record(kind: Kind, offset: int = -1, key: str = "a", **more: object) -> ParkRecord:
    values = {"epoch": "1", "key": key, "offset": offset} | more
    return ParkRecord(kind=kind, topic="T", queue_id=0, **values)  # type: ignore[arg-type]


def lanes(keys: ParkedKeys | None = None, horizon: int = 100, *pulled: int) -> KeyScheduler:
    made = KeyScheduler(keys or ParkedKeys(), lambda: horizon)
    made.add(map(message, pulled))
    return made


def test_the_key_is_the_sharding_key_or_else_the_first_of_the_keys() -> None:
    assert order_key(message(0, "a", KEYS="b c")) == "a"
    assert order_key(StoredMessage("T", b"", {"KEYS": "b c"})) == "b"
    assert order_key(StoredMessage("T", b"", {})) == ""


def test_a_key_is_ready_once_and_again_when_something_came() -> None:
    made = lanes(None, 100, 1, 2)
    assert made.ready() == ["a"]
    made.begin("a")
    made.add([message(3)])
    assert made.ready() == []
    made.end("a")
    assert made.ready() == ["a"]


def test_a_flowing_key_is_consumed_in_runs() -> None:
    made = lanes(None, 100, 1, 2, 3)
    step = made.next("a", 2)
    assert isinstance(step, CallHandler)
    assert [each.queue_offset for each in step.messages] == [1, 2]
    made.done("a", 2)
    made.set_poison("a", "bad")
    head = made.next("a", 2)
    assert isinstance(head, ParkMessage)
    assert (head.message.queue_offset, head.error, head.since_ms) == (3, "bad", None)


def test_of_a_parked_key_everything_is_set_aside_that_is_not_yet() -> None:
    made = lanes(parked(1), 100, 1, 2)
    known = made.next("a", 1)
    assert isinstance(known, SkipParked)
    made.done("a", 1)
    new = made.next("a", 1)
    assert isinstance(new, ParkMessage)
    assert (new.error, new.since_ms) == ("why", 7)


def test_a_key_that_resumes_takes_what_comes_again_in_its_place() -> None:
    made = lanes(parked(2, 4, resumed=True, dead_through=2), 100, 1, 2, 3, 5)
    taken = []
    while (step := made.next("a", 9)) is not None:
        taken.append(step)
        if isinstance(step, CallHandler | SkipParked):
            made.done("a", len(step.messages) if isinstance(step, CallHandler) else 1)
        elif isinstance(step, DeadLetterParked | ReplayParked):
            made.parked.apply(record(Kind.DONE, step.entry.queue_offset), 9, 0)
    assert [type(step) for step in taken] == [
        CallHandler,
        SkipParked,
        DeadLetterParked,
        CallHandler,
        ReplayParked,
        CallHandler,
    ]
    consumed = [m.queue_offset for s in taken if isinstance(s, CallHandler) for m in s.messages]
    assert consumed == [1, 3, 5]


def test_a_key_that_resumes_waits_until_all_before_it_was_pulled() -> None:
    reached = 1
    made = KeyScheduler(parked(1, resumed=True), lambda: reached)
    assert made.ready() == ["a"]
    assert made.next("a", 1) is None
    reached = 2
    assert made.next("a", 1) == ReplayParked(ParkedMessage(1, 0, 0))


def test_one_that_fails_while_it_resumes_is_parked_again_before_all_else() -> None:
    made = lanes(parked(2, resumed=True), 100, 1)
    made.set_poison("a", "again")
    assert made.next("a", 1) == ParkKeyAgain("again")
    made.parked.apply(record(Kind.BLOCK, error="again"), 9, 0)
    made.clear_poison("a")
    assert isinstance(made.next("a", 1), ParkMessage)


def test_what_is_old_is_written_again_with_what_was_decided() -> None:
    made = lanes(parked(2, 4, resumed=True, dead_through=2))
    made.request_rewrite(["a", "gone"])
    assert made.next("a", 1) == RewriteParked([ParkedMessage(2, 0, 0), ParkedMessage(4, 1, 0)], 2)
    assert made.next("gone", 1) is None
    made.rewritten("a")
    assert made.next("a", 1) == DeadLetterParked(ParkedMessage(2, 0, 0))


def test_what_failed_for_good_is_not_forgotten_between_two_steps() -> None:
    made = lanes(parked(2, resumed=True))
    made.begin("a")
    made.set_poison("a", "again")
    made.end("a")
    assert made.ready() == ["a"]
    assert made.next("a", 1) == ParkKeyAgain("again")


def test_what_was_written_unheard_of_does_not_park_its_key_again() -> None:
    keys = ParkedKeys()
    made = KeyScheduler(keys, lambda: 100)
    made.add([message(1)])
    made.begin("a")
    made.set_poison("a", "why")
    assert made.next("a", 1) == ParkMessage(message(1), "why", None)
    keys.apply(record(Kind.PARK, 1, error="why", since_ms=7), 0, 0)
    assert made.next("a", 1) == SkipParked(message(1))
    made.done("a", 1)
    assert made.next("a", 1) is None
    keys.apply(record(Kind.RESUME), 1, 0)
    assert made.next("a", 1) == ReplayParked(ParkedMessage(1, 0, 0))


def test_a_key_with_much_to_catch_up_with_does_not_hold_up_the_queue() -> None:
    keys = parked(1, 2, 3, resumed=True)
    assert lanes(keys, 500, 4).next("a", 1) == ReplayParked(ParkedMessage(1, 0, 0))
    made = lanes(keys, 505, 4)
    assert made.next("a", 1) == ParkMessage(message(4), "why", 7)
    keys.apply(record(Kind.PARK, 4), 4, 0)
    assert made.next("a", 1) == SkipParked(message(4))
    made.done("a", 1)
    assert made.next("a", 1) == ReplayParked(ParkedMessage(1, 0, 0))
    found = keys.find("a")
    assert found is not None
    assert found.is_resuming
