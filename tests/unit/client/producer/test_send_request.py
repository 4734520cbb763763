"""Which messages a batch may have."""

import pytest

from bolide.client.producer.send_request import check_batch
from bolide.model.message import Message
from bolide.model.message_checks import InvalidMessage


def test_messages_with_a_priority_are_sent_one_by_one() -> None:
    batch = [Message("T", b"1"), Message("T", b"2", priority=0)]
    with pytest.raises(InvalidMessage, match="one by one") as refused:
        check_batch(batch, 1000)
    assert refused.value.field == "priority"
    check_batch(batch[:1], 1000)
