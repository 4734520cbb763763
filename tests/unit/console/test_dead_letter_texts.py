"""What the page of a dead letter says of the copies of its message."""

from bolide.console.languages import Language, translator
from bolide.console.pages.dead_letters.detail import attempt_text
from bolide.operations.dead_letters.views import Attempt


def test_the_retries_of_a_copy_are_not_sent_again() -> None:
    history = [
        Attempt(topic="Orders", tries_before=0, stored_ms=1, offset_message_id="a"),
        Attempt(topic="%RETRY%g", tries_before=1, stored_ms=2, offset_message_id="b"),
        Attempt(topic="Orders", tries_before=0, stored_ms=3, offset_message_id="c", is_resent=True),
        Attempt(
            topic="%RETRY%g", tries_before=1, stored_ms=4, offset_message_id="d", is_resent=True
        ),
    ]
    t = translator(Language.ENGLISH)
    assert [attempt_text(t, each, is_first=n == 0) for n, each in enumerate(history)] == [
        "sent to Orders",
        "try 2 from %RETRY%g",
        "sent again to Orders",
        "try 2 of the copy",
    ]
