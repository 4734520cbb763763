"""Attributes of topics."""

import pytest

from bolide.broker.metadata.topic_attributes import changed_attributes, parse_changes
from bolide.protocol.refusals import InvalidParameter


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        (None, {}),
        ("", {}),
        ("+message.type=FIFO", {"+message.type": "FIFO"}),
        (
            "+message.type=FIFO, -cleanup.policy",
            {"+message.type": "FIFO", "-cleanup.policy": ""},
        ),
        ("+message.type=", {"+message.type": ""}),
    ],
)
def test_changes_are_read(text: str | None, changes: dict[str, str]) -> None:
    assert parse_changes(text) == changes


@pytest.mark.parametrize("text", ["+message.type", "+a=1,+a=2"])
def test_changes_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(InvalidParameter, match=r"write \+name=value or -name"):
        parse_changes(text)


def test_changes_apply_to_the_current_attributes() -> None:
    current = {"message.type": "NORMAL", "queue.type": "SimpleCQ"}
    assert changed_attributes(current, {"+message.type": "FIFO"}) == {
        "message.type": "FIFO",
        "queue.type": "SimpleCQ",
    }
    assert changed_attributes(current, {"-message.type": ""}) == {"queue.type": "SimpleCQ"}
    assert changed_attributes(current, {}) == current
    assert changed_attributes({}, {"+dedup.window": "10m"}) == {"dedup.window": "10m"}
    for policy in ("DELETE", "COMPACTION"):
        changes = {"+cleanup.policy": policy}
        assert changed_attributes(None, changes) == {"cleanup.policy": policy}
    for time in ("-1", "0", "9223372036854775807"):
        assert changed_attributes({}, {"+reserve.time": time}) == {"reserve.time": time}


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"message.type": "FIFO"}, "'message.type' is not known"),
        ({"+colour": "red"}, "write a sign and one of"),
        ({"": "x"}, "not known"),
        ({"+message.type": "ODD"}, "cannot be 'ODD'"),
        ({"+message.type": "LITE"}, "LITE is not supported"),
        ({"+queue.type": "BatchCQ", "+dedup.window": "60"}, "not for topics with queue.type"),
        (
            {"+queue.type": "BatchCQ", "+cleanup.policy": "COMPACTION"},
            "'cleanup.policy' is not for",
        ),
        ({"+cleanup.policy": "COMPACT"}, "'cleanup.policy' cannot be 'COMPACT': it is one of"),
        ({"+reserve.time": "-2"}, "'reserve.time' cannot be '-2': it is a number from -1"),
        ({"+reserve.time": "9223372036854775808"}, "it is a number from -1 to 9223372036854775807"),
        ({"+reserve.time": "1 h"}, "it is a number"),
        ({"+dedup.window": "8d"}, "'dedup.window' cannot be '8d': .* 1s to 7d"),
        ({"-message.type": ""}, "is not set"),
    ],
)
def test_changes_that_cannot_be_made_are_refused(changes: dict[str, str], fault: str) -> None:
    with pytest.raises(InvalidParameter, match=fault):
        changed_attributes(None, changes)


def test_a_fixed_attribute_cannot_be_changed() -> None:
    with pytest.raises(InvalidParameter, match=r"'queue.type' cannot be changed"):
        changed_attributes({}, {"+queue.type": "SimpleCQ"})
    with pytest.raises(InvalidParameter, match=r"'queue.type' cannot be changed"):
        changed_attributes({"queue.type": "SimpleCQ"}, {"-queue.type": ""})
    kept = {"queue.type": "SimpleCQ"}
    assert changed_attributes(kept, {"+queue.type": "SimpleCQ"}) == kept


@pytest.mark.parametrize("change", ["-queue.type", "-cleanup.policy", "+queue.type"])
def test_a_fixed_attribute_of_an_existing_topic_stays(change: str) -> None:
    current = {"queue.type": "BatchCQ", "cleanup.policy": "DELETE"}
    value = "SimpleCQ" if change == "+queue.type" else current[change[1:]]
    with pytest.raises(InvalidParameter, match="cannot be changed once the topic exists"):
        changed_attributes(current, {change: value})
    assert changed_attributes(current, {"+queue.type": "BatchCQ"}) == current
