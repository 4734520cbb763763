"""What is wrong with a group, from what its members report."""

from bolide.admin.consumer_status import GroupStatus
from bolide.protocol.bodies.consumers import HeldQueue, RunningConsumer
from bolide.protocol.bodies.heartbeat import Subscription
from bolide.protocol.bodies.message_queue import MessageQueue

NOW = 1_000_000.0
QUEUE = MessageQueue("Orders", "broker-a", 0)


def member(
    tags: str = "*", held: HeldQueue | None = None, *, ordered: bool = False, push: bool = True
) -> RunningConsumer:
    return RunningConsumer(
        properties={
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY" if push else "CONSUME_ACTIVELY",
            "PROP_CONSUMEORDERLY": str(ordered).lower(),
        },
        subscription_set=[Subscription(topic="Orders", sub_string=tags)],
        mq_table={QUEUE: held} if held is not None else {},
    )


def status(**members: RunningConsumer) -> GroupStatus:
    return GroupStatus([], members)


def problems(held: HeldQueue, *, ordered: bool = False, push: bool = True) -> list[str]:
    one = member(held=held, ordered=ordered, push=push)
    return [each.text for each in status(one=one).problems(NOW)]


def test_members_that_subscribe_differently_are_named() -> None:
    (difference,) = status(one=member("a"), two=member("b"), three=member("a")).differences()

    assert difference.topic == "Orders"
    assert difference.expressions == {"one": "TAG a", "two": "TAG b", "three": "TAG a"}
    assert status(one=member("a"), two=member("a")).differences() == []
    assert status(one=member("a"), two=member("b", push=False)).differences() == []


def test_a_topic_that_only_one_member_subscribes_to_is_a_difference() -> None:
    other = member()
    other.subscription_set.append(Subscription(topic="Refunds"))

    (difference,) = status(one=member(), two=other).differences()

    assert difference.expressions == {"one": None, "two": "TAG *"}


def test_a_queue_whose_messages_wait_for_a_minute_is_a_problem() -> None:
    stalled_ms = int(NOW * 1000) - 60_001
    held = HeldQueue(cached_msg_count=1, last_consume_timestamp=stalled_ms)

    assert problems(held) == ["can't consume for a while, maybe blocked, 60001ms"]
    assert problems(HeldQueue(last_consume_timestamp=stalled_ms)) == []
    assert problems(held, push=False) == []


def test_an_ordered_queue_that_is_not_locked_is_a_problem() -> None:
    held = HeldQueue(last_lock_timestamp=int(NOW * 1000) - 5)

    assert problems(held, ordered=True) == ["can't lock for a while, 5ms"]
    locked = HeldQueue(locked=True, droped=True, try_unlock_times=2)
    assert problems(locked, ordered=True) == ["unlock 2 times, still failed"]
    assert problems(HeldQueue(locked=True), ordered=True) == []
