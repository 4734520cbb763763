"""Names with a meaning."""

from bolide.model import names


def test_clients_may_send_to_the_model_but_not_to_what_the_broker_writes() -> None:
    assert names.is_sendable("TBW102")
    assert names.is_sendable("T")
    assert not names.is_sendable("SCHEDULE_TOPIC_XXXX")
    assert not names.is_sendable("RMQ_SYS_TRANS_HALF_TOPIC")


def test_a_retry_topic_tells_its_group() -> None:
    assert names.retry_topic("g") == "%RETRY%g"
    assert names.group_of_retry_topic("%RETRY%g") == "g"
    assert names.is_retry_topic("%RETRY%g")
    assert not names.is_retry_topic("%DLQ%g")
    assert names.is_dead_letter_topic(names.dead_letter_topic("g"))
