"""Names of topics and groups."""

import pytest

from bolide.broker.metadata import topics
from bolide.broker.settings.config import BrokerConfig
from bolide.model.names import retry_topic
from bolide.protocol.refusals import InvalidParameter

CONFIG = BrokerConfig(broker_name="broker-a", broker_cluster_name="c1")


@pytest.mark.parametrize("name", ["T", "a-b_c|d%e", "x" * 127, "%RETRY%" + "g" * 248, "%DLQ%g"])
def test_good_topics_are_let_through(name: str) -> None:
    topics.validate_topic(name)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("", "topic is blank"),
        ("  ", "topic is blank"),
        ("a b", "'a b' contains illegal characters"),
        ("a/b", "illegal"),
        ("../x", "illegal"),
        ("T\n", "illegal"),
        ("Tö", "illegal"),
        ("x" * 128, "has 128 characters: at most 127"),
        ("%RETRY%" + "g" * 249, "has 256 characters: at most 255"),
        ("%LMQ%x", "light message queue"),
    ],
)
def test_bad_topics_are_refused_by_name(name: str, fault: str) -> None:
    with pytest.raises(InvalidParameter, match=fault):
        topics.validate_topic(name)


def test_a_group_must_leave_room_for_its_retry_topic() -> None:
    longest = "g" * 248
    topics.validate_group(longest)
    topics.validate_topic(retry_topic(longest))
    with pytest.raises(InvalidParameter, match=r"group .* has 249 characters"):
        topics.validate_group(longest + "g")


@pytest.mark.parametrize(
    "topic",
    ["TBW102", "SCHEDULE_TOPIC_XXXX", "rmq_sys_anything", "c1", "broker-a", "c1_REPLY_TOPIC"],
)
def test_system_topics_are_known_by_name_and_settings(topic: str) -> None:
    assert topics.is_system_topic(topic, CONFIG)


@pytest.mark.parametrize("topic", ["T", "%RETRY%g", "broker-b", "c2_REPLY_TOPIC", "own-trace"])
def test_other_topics_are_not_system_topics(topic: str) -> None:
    assert not topics.is_system_topic(topic, CONFIG)


def test_every_topic_that_a_broker_makes_for_itself_is_listed_as_its_own() -> None:
    """mqadmin exportMetadata leaves out what is in that list."""
    made = {each.topic_name for each in topics.system_topics(CONFIG, delay_levels=18)}
    assert made <= topics.system_topic_names(CONFIG)


def test_the_trace_topic_is_a_system_topic_where_it_is_kept() -> None:
    config = BrokerConfig(trace_topic_enable=True, msg_trace_topic_name="own-trace")
    assert topics.is_system_topic("own-trace", config)
