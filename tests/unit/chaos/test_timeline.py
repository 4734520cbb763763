"""The picture of a run is valid SVG that shows faults, sends and failovers."""

from xml.etree import ElementTree as ET

from bolide.chaos.history import Fault, History, Kind, Mastership, Outcome, Sent
from bolide.chaos.timeline import failovers, lanes, nice_step, timeline_svg

SVG = "{http://www.w3.org/2000/svg}"


def fault(began: float, ended: float, name: str = "kill") -> Fault:
    return Fault(nemesis=name, targets=("broker-a-0",), round=1, began=began, ended=ended)


def master(at: float, member: str | None) -> Mastership:
    return Mastership(group="broker-a", at=at, member=member)


def test_faults_sends_and_failovers_are_drawn() -> None:
    history = History()
    for number in range(100):
        is_failed = 40 <= number < 50
        history.record(
            Sent(
                id=str(number), kind=Kind.PLAIN, key="", number=number, began=number / 10,
                ended=number / 10,
                outcome=Outcome.UNKNOWN if is_failed else Outcome.ACKNOWLEDGED,
            )
        )  # fmt: skip
    history.record(fault(4.0, 5.0, "kill+cut"))
    for each in (master(0, "broker-a-0"), master(6, "broker-a-1")):
        history.record(each)

    root = ET.fromstring(timeline_svg(history, "seed <1> & more"))

    texts = [each.text for each in root.iter(f"{SVG}text")]
    assert "seed <1> & more" in texts
    assert "kill+cut" in texts
    assert "broker-a-1" in texts
    points = next(iter(root.iter(f"{SVG}polyline"))).get("points", "").split()
    assert len(points) == 9  # whole seconds
    red = [each for each in root.iter(f"{SVG}rect") if each.get("fill") == "#e0523f"]
    assert len(red) == 1


def test_an_empty_history_is_drawn() -> None:
    ET.fromstring(timeline_svg(History(), ""))


def test_faults_that_overlap_have_lanes_of_their_own() -> None:
    found = lanes([fault(0, 5), fault(1, 2), fault(50, 51)])

    assert [lane for lane, _ in found] == [0, 1, 0]


def test_a_failover_is_a_change_from_one_member_to_another() -> None:
    story = [master(0, "a"), master(1, None), master(2, "a"), master(3, "b"), master(4, None)]

    assert [each.at for each in failovers(story)] == [3]


def test_ticks_are_round_numbers() -> None:
    assert nice_step(5) == 1
    assert nice_step(100) == 10
    assert nice_step(1800) == 200
    assert nice_step(1e6) == 2000
