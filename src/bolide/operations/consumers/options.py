"""The settings of a consumer group: as operations show and take them, and as brokers keep them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from bolide.operations.errors import BadInput
from bolide.protocol.bodies.groups import (
    CustomizedRetry,
    ExponentialRetry,
    GroupConfig,
    RetryPolicy,
    RetryPolicyType,
)

_MAX_RETRY_QUEUES = 256


class RetryKind(StrEnum):
    """How long a failed message waits before its next delivery."""

    DEFAULT = "default"
    """The broker's delays, which grow from 10 s to 2 h."""
    DELAYS = "delays"
    EXPONENTIAL = "exponential"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryDelays:
    """The waits between the deliveries of a failed message; only for pop and ordered consumers on
    RocketMQ, which uses delay levels for others."""

    kind: RetryKind = RetryKind.DEFAULT
    delays_ms: list[int] | None = None
    """With `delays`: one for each delivery; the last one goes on."""
    initial_ms: int | None = None
    """With `exponential`, as the next two."""
    max_ms: int | None = None
    multiplier: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """The settings of a group at one broker."""

    broker: str
    can_consume: bool
    """False pauses the group: pulls and pops are refused, messages are kept."""
    can_start_at_min: bool
    """Whether a new member may start with the oldest message (`consumeFromMinEnable`)."""
    can_broadcast: bool
    is_ordered: bool
    """Whether pops are delivered in the order of the queue."""
    retry_queues: int
    max_retries: int
    """Deliveries after the first one, before a message becomes a dead letter; -1 means no limit."""
    retry_delays: RetryDelays
    consume_timeout_minutes: int
    notifies_members: bool
    """Whether members are told at once when others come or go."""
    broker_id: int
    """Id of the broker to read from; 0 is the master."""
    slow_broker_id: int
    """Id of the broker to read from when far behind."""
    attributes: dict[str, str]


_FIELDS = {
    "can_consume": "consume_enable",
    "can_start_at_min": "consume_from_min_enable",
    "can_broadcast": "consume_broadcast_enable",
    "is_ordered": "consume_message_orderly",
    "retry_queues": "retry_queue_nums",
    "max_retries": "retry_max_times",
    "consume_timeout_minutes": "consume_timeout_minute",
    "notifies_members": "notify_consumer_ids_changed_enable",
    "broker_id": "broker_id",
    "slow_broker_id": "which_broker_when_consume_slowly",
}


def changed(before: GroupConfig, wanted: Mapping[str, object]) -> GroupConfig:
    changes: dict[str, object] = {
        _FIELDS[name]: value
        for name, value in wanted.items()
        if name in _FIELDS and value is not None
    }
    delays, attributes = wanted.get("retry_delays"), wanted.get("attributes")
    if isinstance(delays, RetryDelays):
        changes["group_retry_policy"] = retry_policy(delays)
    if isinstance(attributes, dict):
        merged = before.attributes | attributes
        changes["attributes"] = {n: value for n, value in merged.items() if value is not None}
    return msgspec.structs.replace(before, **changes)


def with_removals(before: GroupConfig, after: GroupConfig) -> GroupConfig:
    """The new settings, with the removal of attributes that they no longer have."""
    removed = {f"-{name}": "" for name in before.attributes.keys() - after.attributes.keys()}
    return msgspec.structs.replace(after, attributes=after.attributes | removed)


def check_settings(config: GroupConfig) -> None:
    if not 0 < config.retry_queue_nums <= _MAX_RETRY_QUEUES:
        raise BadInput("retry_queues", f"use a number from 1 to {_MAX_RETRY_QUEUES}")
    if config.retry_max_times < -1:
        raise BadInput("max_retries", "use 0 or more, or -1 for no limit")
    if config.consume_timeout_minute < 1:
        raise BadInput("consume_timeout_minutes", "use 1 or more")
    for name, value in (
        ("broker_id", config.broker_id),
        ("slow_broker_id", config.which_broker_when_consume_slowly),
    ):
        if value < 0:
            raise BadInput(name, "use 0 or more")


def retry_policy(delays: RetryDelays) -> RetryPolicy:
    if delays.kind is RetryKind.EXPONENTIAL:
        known = ExponentialRetry()
        policy = ExponentialRetry(
            initial=known.initial if delays.initial_ms is None else delays.initial_ms,
            max=known.max if delays.max_ms is None else delays.max_ms,
            multiplier=known.multiplier if delays.multiplier is None else delays.multiplier,
        )
        if not 0 < policy.initial <= policy.max or policy.multiplier < 1:
            reason = "exponential delays need 0 < initial_ms <= max_ms, and a multiplier from 1 on"
            raise BadInput("retry_delays", reason)
        return RetryPolicy(type=RetryPolicyType.EXPONENTIAL, exponential_retry_policy=policy)
    if delays.kind is RetryKind.DELAYS:
        if not delays.delays_ms or min(delays.delays_ms) <= 0:
            raise BadInput("retry_delays", "give delays_ms, each of them more than 0")
        custom = CustomizedRetry(next=delays.delays_ms)
        return RetryPolicy(customized_retry_policy=custom)
    return RetryPolicy()


def _delays(policy: RetryPolicy) -> RetryDelays:
    if policy.type is RetryPolicyType.EXPONENTIAL:
        steps = policy.exponential_retry_policy or ExponentialRetry()
        return RetryDelays(
            kind=RetryKind.EXPONENTIAL,
            initial_ms=steps.initial,
            max_ms=steps.max,
            multiplier=steps.multiplier,
        )
    custom = policy.customized_retry_policy
    if custom is not None and custom.next:
        return RetryDelays(kind=RetryKind.DELAYS, delays_ms=custom.next)
    return RetryDelays()


def settings_view(broker: str, config: GroupConfig) -> GroupSettings:
    return GroupSettings(
        broker=broker,
        can_consume=config.consume_enable,
        can_start_at_min=config.consume_from_min_enable,
        can_broadcast=config.consume_broadcast_enable,
        is_ordered=config.consume_message_orderly,
        retry_queues=config.retry_queue_nums,
        max_retries=config.retry_max_times,
        retry_delays=_delays(config.group_retry_policy),
        consume_timeout_minutes=config.consume_timeout_minute,
        notifies_members=config.notify_consumer_ids_changed_enable,
        broker_id=config.broker_id,
        slow_broker_id=config.which_broker_when_consume_slowly,
        attributes=dict(sorted(config.attributes.items())),
    )
