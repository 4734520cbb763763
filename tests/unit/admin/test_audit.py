from typing import Any

import pytest

from bolide.admin.audit import matches
from bolide.protocol.bodies.audit import AuditRecord


def record(**given: Any) -> AuditRecord:
    fields: dict[str, Any] = {
        "time": 1,
        "server": "broker-a",
        "peer": "10.0.0.9:1",
        "request": "X",
        "code": 0,
    }
    return AuditRecord(**fields | given)


@pytest.mark.parametrize(
    ("given", "wanted", "is_it"),
    [
        ({"user": "alice"}, {"user": "alice"}, True),
        ({"user": "bob"}, {"user": "alice"}, False),
        ({}, {"user": "alice"}, False),
        ({"target": {"topic": "Orders"}}, {"target": "Orders"}, True),
        ({"target": {"topics": ["A", "Orders"]}}, {"target": "Orders"}, True),
        ({"target": {"topic": "Order"}}, {"target": "Orders"}, False),
        ({"target": {"odd": {"a": 1}}}, {"target": "Orders"}, False),
        ({"before": {"fileReservedTime": "72"}}, {"target": "fileReservedTime"}, True),
        ({"after": {"Orders": None}, "user": "alice"}, {"target": "Orders", "user": "bob"}, False),
    ],
)
def test_records_are_chosen_by_user_and_target(
    given: dict[str, Any], wanted: dict[str, str], is_it: bool
) -> None:
    assert matches(record(**given), **wanted) is is_it
