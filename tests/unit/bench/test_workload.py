from bolide.bench.workload import Workload, filler_properties, message_maker, random_body
from tests.support.clock import FakeClock


def test_bodies_have_the_size_asked_for() -> None:
    message = message_maker(Workload(size=300, topic="T"))()

    assert (message.topic, len(message.body), dict(message.properties)) == ("T", 300, {})
    assert random_body(40) != random_body(40)


def test_a_message_that_never_differs_is_made_once() -> None:
    make = message_maker(Workload())

    assert make() is make()


def test_tags_take_turns_and_keys_are_the_second() -> None:
    clock = FakeClock(1234.9)
    make = message_maker(Workload(tag_count=2, keys=True), clock)

    first, second, third = make(), make(), make()

    assert [m.tags for m in (first, second, third)] == ["tag0", "tag1", "tag0"]
    assert first.keys == ("1234",)


def test_a_delayed_message_has_its_level() -> None:
    assert message_maker(Workload(delay_level=3))().delay_level == 3


def test_properties_are_a_little_over_the_size_asked_for() -> None:
    found = filler_properties(100)
    size = sum(map(len, [*found.keys(), *found.values()]))

    assert 100 <= size < 120
    assert filler_properties(0) == {}
