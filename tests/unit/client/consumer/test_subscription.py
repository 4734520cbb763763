"""What a consumer wants of a topic."""

import pytest

from bolide.client.consumer.subscription import Filter, Sql
from bolide.protocol.tags import BadTagExpression, tags_code


def test_tags_are_matched_by_their_text() -> None:
    wanted = Filter.of("T", "A || B", 1)
    assert [wanted.matches(tags) for tags in ("A", "B", "C", None)] == [True, True, False, False]


def test_all_is_all() -> None:
    assert Filter.of("T", "*", 1).matches(None)


def test_sql_leaves_the_judgement_to_the_broker() -> None:
    wanted = Filter.of("T", Sql("a > 1"), 1)
    assert wanted.matches("anything")
    assert not wanted.is_by_tags


def test_a_heartbeat_tells_tags_their_hashes_and_the_version() -> None:
    told = Filter.of("T", "B || A", 17).subscription()
    assert (told.topic, told.sub_string, told.expression_type) == ("T", "B || A", "TAG")
    assert (told.tags_set, told.sub_version) == (["A", "B"], 17)
    assert told.code_set == sorted([tags_code("A"), tags_code("B")])


def test_a_heartbeat_tells_an_sql_expression_as_it_is() -> None:
    told = Filter.of("T", Sql("a > 1"), 1).subscription()
    assert (told.sub_string, told.expression_type, told.tags_set) == ("a > 1", "SQL92", [])


def test_an_expression_that_names_no_tag_is_refused() -> None:
    with pytest.raises(BadTagExpression):
        Filter.of("T", "||", 1)
