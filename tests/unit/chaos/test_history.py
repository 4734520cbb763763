"""Events are kept, written and read again."""

from pathlib import Path

import pytest

from bolide.chaos.history import (
    Delivered,
    Event,
    Fault,
    History,
    Kept,
    Kind,
    Mastership,
    Outcome,
    Sent,
    body_of,
    id_of,
)

EVENTS: list[Event] = [
    Sent(
        id="a", kind=Kind.PLAIN, key="k", number=1, began=0.5, ended=0.75,
        outcome=Outcome.ACKNOWLEDGED, queue="broker-a/1", offset=7,
    ),
    Delivered(id="a", kind=Kind.PLAIN, at=1.0, queue="broker-a/1", offset=7),
    Kept(id="a", kind=Kind.PLAIN, queue="broker-a/1", offset=7),
    Fault(nemesis="kill", targets=("broker-a-0",), round=1, began=1.0, ended=2.0, back_after=0.5),
    Mastership(group="broker-a", at=0.0, member="broker-a-0"),
]  # fmt: skip


def test_a_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    with History(file) as written:
        for event in EVENTS:
            written.record(event)

    found = History.read(file)

    assert [*found.sent, *found.delivered, *found.kept, *found.faults, *found.masters] == EVENTS
    assert file.read_text().startswith('{"type":"sent","id":"a"')


def test_times_count_from_the_start() -> None:
    times = iter((10.0, 12.5))

    assert History(clock=lambda: next(times)).now() == 2.5


def test_a_body_proves_which_message_it_is() -> None:
    body = body_of("plain-0-1-17")

    assert id_of(body) == "plain-0-1-17"
    assert len(body) > 64


@pytest.mark.parametrize(
    "body", [b"", b"hello", body_of("a").replace(b"a", b"b"), body_of("a")[:-1]]
)
def test_a_damaged_body_is_none_of_ours(body: bytes) -> None:
    assert id_of(body) == ""
