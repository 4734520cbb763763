from types import SimpleNamespace

import msgspec

from bolide.model.message_queue import MessageQueue
from bolide.spark.progress import lag, positions

A, B = (MessageQueue("orders", "broker-a", number) for number in range(2))
OURS = {
    "description": "RocketMQSource",
    "startOffset": {"orders": {"broker-a": {"0": 1, "1": 2}}},
    "endOffset": {"orders": {"broker-a": {"0": 5, "1": 7}}},
    "latestOffset": {"orders": {"broker-a": {"0": 9, "1": 7}}},
}
OTHER = {"description": "RateStream", "endOffset": 4, "latestOffset": 6}


def test_lag_is_what_lies_between_the_end_of_a_batch_and_that_of_the_queue() -> None:
    assert lag({"sources": [OURS, OTHER]}) == {A: 4, B: 0}


def test_positions_are_where_the_last_batch_ended() -> None:
    assert positions({"sources": [OTHER, OURS]}) == {A: 5, B: 7}


def test_offsets_may_be_texts_and_progress_an_object_of_spark() -> None:
    text = {key: msgspec.json.encode(value).decode() for key, value in OURS.items()}
    progress = SimpleNamespace(json=msgspec.json.encode({"sources": [text]}).decode())

    assert lag(progress) == {A: 4, B: 0}


def test_a_query_without_progress_and_a_batch_that_was_replayed_have_no_lag() -> None:
    assert lag(None) == {}
    assert lag({"sources": [OURS | {"latestOffset": None}]}) == {A: 0, B: 0}
