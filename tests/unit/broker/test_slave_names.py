from typing import NamedTuple

import pytest

from bolide.broker.metrics.slave_names import names_of_slaves


class Link(NamedTuple):
    host: str
    peer: str
    broker_id: int = -1


A, B, C = Link("10.0.0.1", "10.0.0.1:4001"), Link("10.0.0.1", "10.0.0.1:4002"), Link("h", "h:4003")
AT = {1: "10.0.0.1:10911", 2: "10.0.0.1:20911"}


@pytest.mark.parametrize(
    ("slaves", "members", "names"),
    [
        ([A], {1: AT[1]}, [AT[1]]),
        ([A], {}, [A.host]),  # no NameServer answers
        ([A], AT, [A.host]),  # one of two: which one is not known
        ([A, B], AT, [A.peer, B.peer]),
        ([A, B, C], AT | {3: "h:10911"}, [A.peer, B.peer, "h:10911"]),
        ([A._replace(broker_id=2), B._replace(broker_id=1)], AT, [AT[2], AT[1]]),
        ([C._replace(broker_id=1)], AT, [AT[1]]),  # it advertises another address
    ],
)
def test_slaves_have_names_of_their_own(
    slaves: list[Link], members: dict[int, str], names: list[str]
) -> None:
    assert names_of_slaves(slaves, members) == names
