"""Properties added to every message, and fields of every answer."""

import pytest

from bolide.broker.produce.addressing import BrokerProperties, is_stored_as_is
from bolide.broker.settings.config import BrokerConfig
from bolide.model.properties import INTERPRETED_PREFIXES
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


ID = "UNIQ_KEY\x017F00000112345678ABCDEF0000010000\x02"


@pytest.mark.parametrize(
    "name",
    ["DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TRAN_MSG", "POP_CK",
     "INNER_NUM", "MSG_REGION", "TRACE_ON", "CLUSTER", "__STARTDELIVERTIME", "BOLIDE_CRON",
     *INTERPRETED_PREFIXES],
)  # fmt: skip
def test_a_property_string_with_a_name_that_the_broker_interprets_is_not_stored_as_is(
    name: str,
) -> None:
    for properties in (f"{name}\x011\x02", f"{ID}{name}\x011\x02{ID}", f"{ID}{name}\x011", name):
        assert not is_stored_as_is(properties)


@pytest.mark.parametrize("prefix", INTERPRETED_PREFIXES)
def test_such_a_name_is_one_only_where_a_name_begins(prefix: str) -> None:
    for properties in (f"X{prefix}\x011\x02", f"{ID}a\x01{prefix}\x02", f"{ID}a\x01{prefix}"):
        assert is_stored_as_is(properties)


@pytest.mark.parametrize(
    "properties", ["", ID, ID[:-1], "junk", "\x02\x02", "TAGS\x01a\x02KEYS\x01k"]
)
def test_a_property_string_of_other_names_is_stored_as_is(properties: str) -> None:
    assert is_stored_as_is(properties)
