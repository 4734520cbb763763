"""Properties added to every message, and fields of every answer."""

import pytest

from bolide.broker.produce.addressing import BrokerProperties
from bolide.broker.settings.config import BrokerConfig
from bolide.protocol.property_string import decode_properties

MARKS = BrokerProperties.of(
    BrokerConfig(broker_cluster_name="c1", region_id="r1", trace_on=False, broker_ip1="10.0.0.1")
)
WRITTEN = {"MSG_REGION": "r1", "TRACE_ON": "false", "CLUSTER": "c1"}


def test_region_trace_switch_and_cluster_are_written_on_a_message() -> None:
    assert MARKS.properties == decode_properties(MARKS.suffix) == WRITTEN


def test_an_answer_contains_region_and_trace_switch() -> None:
    assert MARKS.answer.to_fields() == {"MSG_REGION": "r1", "TRACE_ON": "false"}


@pytest.mark.parametrize(
    "properties", ["", "TAGS\x01a\x02", "TAGS\x01a", "TAGS\x01a\x02KEYS\x01k", "junk"]
)
def test_marks_stand_behind_the_properties_however_these_end(properties: str) -> None:
    marked = MARKS.add_to(properties)
    assert marked.startswith(properties)
    assert decode_properties(marked) == decode_properties(properties) | WRITTEN
