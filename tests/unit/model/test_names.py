"""Names with a meaning."""

from bolide.model import names


def test_clients_may_send_to_the_model_but_not_to_what_the_broker_writes() -> None:
    assert names.is_sendable("TBW102")
    assert names.is_sendable("T")
    assert not names.is_sendable("SCHEDULE_TOPIC_XXXX")
    assert not names.is_sendable("RMQ_SYS_TRANS_HALF_TOPIC")


def test_what_the_broker_itself_reads_is_not_for_clients_to_send() -> None:
    for topic in (names.revive_topic("any"), names.POP_JOURNAL_TOPIC, names.TIMER_TOPIC):
        assert not names.is_sendable(topic)
        assert names.is_internal(topic)
    for topic in (names.TRACE_TOPIC, names.reply_topic("any"), "%RETRY%g", "rmq_sys_other"):
        assert names.is_sendable(topic)
        assert not names.is_internal(topic)


def test_a_retry_topic_tells_its_group() -> None:
    assert names.retry_topic("g") == "%RETRY%g"
    assert names.group_of_retry_topic("%RETRY%g") == "g"
    assert names.is_retry_topic("%RETRY%g")
    assert not names.is_retry_topic("%DLQ%g")
    assert names.is_dead_letter_topic(names.dead_letter_topic("g"))
