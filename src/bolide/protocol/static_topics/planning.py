"""Plans for static topics: where logical queues are created, and to which brokers they move.

The rules are those of RocketMQ's `TopicQueueMappingUtils`, so that both tools can work on the
same topic in turn. A plan is a new mapping for each broker, with a higher epoch.
"""

import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, MutableMapping
from dataclasses import dataclass

import msgspec

from bolide.protocol.bodies.queues import QueueMappingDetail, QueueMappingItem
from bolide.protocol.bodies.topics import MappedTopicConfig, MappingPlan
from bolide.protocol.static_topics.positions import (
    UNPLACED,
    BadMapping,
    check_items,
    leads,
    logical_offset,
    next_block,
)

CREATE, REMAP = "CREATE_OR_UPDATE", "REMAPPING"
"""Types of plans."""

_EPOCH_STEP = 1000

Configs = Mapping[str, MappedTopicConfig]


@dataclass(frozen=True, slots=True)
class LedQueue:
    """A logical queue as its leading broker knows it."""

    mapping: QueueMappingDetail
    items: list[QueueMappingItem]

    @property
    def broker(self) -> str:
        return self.mapping.bname


# ---- checks


def mapping_of(broker: str, config: MappedTopicConfig) -> QueueMappingDetail:
    """The mapping of a topic at a broker. Raises BadMapping for a topic that is not static."""
    if config.mapping_detail is None:
        raise BadMapping(
            f"topic {config.topic_name} at broker {broker} is not a static topic: delete it first,"
            " or choose another name"
        )
    return config.mapping_detail


def check_agreement(topic: str, configs: Configs) -> tuple[int, int]:
    """Check that all brokers have the same state of a topic; returns epoch and number of queues.

    Raises:
        BadMapping: they differ, which a plan that was carried out in part leaves behind.
    """
    states = set()
    for broker, config in configs.items():
        mapping = mapping_of(broker, config)
        if mapping.bname != broker:
            raise BadMapping(f"the mapping at broker {broker} is one of broker {mapping.bname}")
        if mapping.dirty:
            raise BadMapping(f"the mapping at broker {broker} is dirty")
        if not config.topic_name == mapping.topic == topic:
            raise BadMapping(f"the mapping at broker {broker} is one of topic {mapping.topic}")
        states.add((mapping.scope, mapping.epoch, mapping.total_queues))
    if len(states) != 1:
        raise BadMapping(
            f"the brokers disagree on scope, epoch and number of queues of {topic}:"
            f" {sorted(states)}; repeat the last change from its file, with mapFile and"
            " forceReplace=true"
        )
    ((_, epoch, total),) = states
    return epoch, total


def led_by(mappings: Iterable[QueueMappingDetail], *, complete: bool = True) -> dict[int, LedQueue]:
    """The logical queues and their leaders.

    Args:
        complete: refuse missing queues and queues with two leaders. Otherwise the leader with the
            highest epoch counts.
    """
    found: dict[int, LedQueue] = {}
    newest_first = sorted(mappings, key=lambda mapping: -mapping.epoch)
    for mapping in newest_first:
        for number, items in mapping.hosted_queues.items():
            check_items(items)
            if not leads(mapping, items):
                continue
            if number not in found:
                found[number] = LedQueue(mapping, items)
            elif complete:
                raise BadMapping(
                    f"queue {number} of {mapping.topic} has two leaders, {mapping.bname} and"
                    f" {found[number].broker}"
                )
    if complete:
        total = max((mapping.total_queues for mapping in newest_first), default=0)
        if set(found) != set(range(total)):
            raise BadMapping(f"of {total} logical queues only {sorted(found)} have a leader")
    _check_physical_queues(found)
    return dict(sorted(found.items()))


def _check_physical_queues(queues: Mapping[int, LedQueue]) -> None:
    """Raise BadMapping if two items have the same physical queue."""
    owners: dict[tuple[str, int], int] = {}
    for number, led in queues.items():
        for item in led.items:
            place = item.bname, item.queue_id
            if place in owners:
                raise BadMapping(
                    f"the logical queues {owners[place]} and {number} share queue {item.queue_id}"
                    f" of broker {item.bname}"
                )
            owners[place] = number


def _check_counts(configs: Configs) -> None:
    """Raise BadMapping unless every item is in a queue that its broker has."""
    for broker, config in configs.items():
        if config.read_queue_nums < config.write_queue_nums:
            raise BadMapping(f"broker {broker} has fewer queues to read than to write")
        for items in mapping_of(broker, config).hosted_queues.values():
            for item in items:
                if item.start_offset != 0:
                    raise BadMapping(f"an item at broker {item.bname} does not start at 0")
                if item.bname not in configs:
                    raise BadMapping(f"broker {item.bname} has messages, but is not known")
                if item.queue_id >= configs[item.bname].write_queue_nums:
                    raise BadMapping(f"broker {item.bname} has no queue {item.queue_id}")


def check_plan(topic: str, configs: Configs) -> dict[int, LedQueue]:
    """Check a plan as a whole; returns its queues. Raises BadMapping."""
    check_agreement(topic, configs)
    queues = led_by(_mappings(configs))
    _check_counts(configs)
    return queues


def _mappings(configs: Configs) -> list[QueueMappingDetail]:
    return [config.mapping_detail for config in configs.values() if config.mapping_detail]


# ---- plans


def plan_creation(
    topic: str,
    total: int,
    *,
    brokers: Collection[str],
    known: Configs,
    now: int,
    chooser: random.Random | None = None,
) -> MappingPlan:
    """Plan a new static topic, or more queues for one.

    Args:
        brokers: the brokers to use, besides those that have queues of the topic.
        known: the topic at the brokers that have it; unchanged.
        now: milliseconds since 1970, for the epoch.

    Raises:
        BadMapping: the topic is not static or has as many queues, or its mappings are broken.
    """
    configs = msgspec.convert(msgspec.to_builtins(dict(known)), dict[str, MappedTopicConfig])
    epoch, queues = now - _EPOCH_STEP, dict[int, LedQueue]()
    if configs:
        epoch, _ = check_agreement(topic, configs)
        queues = check_plan(topic, configs)
    if total <= len(queues):
        raise BadMapping(
            f"topic {topic} has {len(queues)} queues: a static topic can only get more, not {total}"
        )
    loads = Counter(led.broker for led in queues.values())
    targets = sorted({*brokers, *loads})
    (chooser or random.Random()).shuffle(targets)  # noqa: S311  to spread load
    for number in range(len(queues), total):
        broker = min(targets, key=lambda name: loads[name])
        loads[broker] += 1
        config = _grown(configs, topic, broker)
        item = QueueMappingItem(
            gen=0, queue_id=config.write_queue_nums - 1, bname=broker, logic_offset=0
        )
        mapping_of(broker, config).hosted_queues[number] = [item]
    epoch = _renew(configs, epoch, total, now)
    check_plan(topic, configs)
    return MappingPlan(topic=topic, type=CREATE, epoch=epoch, broker_config_map=configs)


def plan_remapping(
    topic: str, *, brokers: Collection[str], known: Configs, now: int
) -> MappingPlan:
    """Plan to have all queues of a static topic led by `brokers`, evenly; few of them move.

    Raises:
        BadMapping: the topic is not static, or its mappings are broken.
    """
    configs = msgspec.convert(msgspec.to_builtins(dict(known)), dict[str, MappedTopicConfig])
    if not configs:
        raise BadMapping(f"no broker has topic {topic}: create it with updateStaticTopic")
    epoch, total = check_agreement(topic, configs)
    queues = check_plan(topic, configs)
    moves = _moves(queues, brokers)
    taken = set[str]()
    for number, target in moves.items():
        led = queues[number]
        taken.add(led.broker)
        config = _grown(configs, topic, target)
        item = QueueMappingItem(
            gen=led.items[-1].gen + 1,
            queue_id=config.write_queue_nums - 1,
            bname=target,
            logic_offset=UNPLACED,
        )
        items = [*led.items, item]
        for broker in (target, led.broker):
            mapping_of(broker, configs[broker]).hosted_queues[number] = items
    epoch = _renew(configs, epoch, total, now)
    after = check_plan(topic, configs)
    if stray := {led.broker for led in after.values()} - set(brokers):
        raise BadMapping(f"brokers {sorted(stray)} would still lead queues")
    return MappingPlan(
        topic=topic,
        type=REMAP,
        epoch=epoch,
        broker_config_map=configs,
        broker_to_map_in=sorted(set(moves.values())),
        broker_to_map_out=sorted(taken),
    )


def _moves(queues: Mapping[int, LedQueue], brokers: Collection[str]) -> dict[int, str]:
    """The logical queues that change their leader, with the new one.

    A broker either gains queues or loses some, never both.
    """
    before = Counter(led.broker for led in queues.values())
    share, rest = divmod(len(queues), len(brokers))
    busiest = sorted(brokers, key=lambda name: (-before[name], name))
    room = {name: share + (place < rest) for place, name in enumerate(busiest)}
    waiting = []
    for number, led in queues.items():
        if room.get(led.broker, 0) > 0:
            room[led.broker] -= 1
        else:
            waiting.append(number)
    free = (name for name in sorted(room) for _ in range(room[name]))
    return dict(zip(waiting, free, strict=True))


def _grown(
    configs: MutableMapping[str, MappedTopicConfig], topic: str, broker: str
) -> MappedTopicConfig:
    """The configuration of a topic at a broker, with one physical queue more."""
    if broker not in configs:
        configs[broker] = unused_at(broker, topic, 0, 0)
    config = configs[broker]
    config.write_queue_nums += 1
    config.read_queue_nums += 1
    return config


def unused_at(broker: str, topic: str, epoch: int, total: int) -> MappedTopicConfig:
    """A static topic at a broker without any of its queues, which tells clients of the others."""
    mapping = QueueMappingDetail(topic=topic, bname=broker, epoch=epoch, total_queues=total)
    return MappedTopicConfig(
        topic_name=topic, read_queue_nums=0, write_queue_nums=0, mapping_detail=mapping
    )


def _renew(configs: Configs, epoch: int, total: int, now: int) -> int:
    """Give all mappings a new epoch and return it."""
    epoch = max(epoch + _EPOCH_STEP, now)
    for mapping in _mappings(configs):
        mapping.epoch, mapping.total_queues = epoch, total
    return epoch


# ---- carrying out a remapping


def place_leaders(plan: MappingPlan, broker: str, ends: Mapping[int, int]) -> None:
    """Give the queues that leave a broker their place at the new leaders.

    Args:
        ends: the max offset of each physical queue of the broker, which takes no more messages.

    Raises:
        BadMapping: the end of a queue is missing.
    """
    configs = plan.broker_config_map
    for number, items in mapping_of(broker, configs[broker]).hosted_queues.items():
        if len(items) < 2 or items[-1].logic_offset > 0 or items[-2].bname != broker:
            continue
        old, new = items[-2:]
        end = ends.get(old.queue_id)
        if end is None or end < old.start_offset:
            raise BadMapping(
                f"broker {broker} does not tell where its queue {old.queue_id} of {plan.topic} ends"
            )
        new.logic_offset = next_block(logical_offset(old, end))
        mapping_of(new.bname, configs[new.bname]).hosted_queues[number] = items
