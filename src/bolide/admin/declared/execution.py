"""Carries out a plan: one change after the other, until one fails."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, TypeVar

import msgspec

from bolide.admin.access import acl_of
from bolide.admin.client import AdminClient
from bolide.admin.declared.changes import Action, Change, attribute_changes
from bolide.admin.declared.cluster import group_fields, topic_fields
from bolide.admin.declared.fields import ATTRIBUTES, POLICIES, WRITE_QUEUES, Fields, Kind
from bolide.admin.errors import AttributeUnknown
from bolide.errors import BolideError
from bolide.protocol.bodies.access import PolicyEntry
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.refusals import (
    GroupNotFound,
    InvalidParameter,
    NoPermission,
    RequestCodeNotSupported,
    ServerError,
)

T = TypeVar("T")

_CUSTOM = "Custom"
_TYPE = "type"
_ORDER = "order"
_IN_LISTS = (Kind.TOPICS, Kind.GROUPS)
_BATCH = 100
_FOR_ONE_OF_THEM = (
    RequestCodeNotSupported,
    InvalidParameter,
    ServerError,
    NoPermission,
    AttributeUnknown,
    GroupNotFound,
)
"""Why a broker may refuse a list that has one bad item, or all lists."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a plan."""

    done: tuple[Change, ...]
    failed: tuple[tuple[Change, BolideError], ...] = ()
    left: tuple[Change, ...] = ()
    """Not tried after a failure."""


async def carry_out(
    admin: AdminClient,
    cluster: str,
    changes: Sequence[Change],
    *,
    keep_going: bool = False,
    on_done: Callable[[Change], object] = lambda _: None,
) -> Outcome:
    """Make the changes; nothing is undone after a failure, since applying again goes on.

    Args:
        keep_going: try the other changes after one has failed.
        on_done: called after each change that was made.
    """
    work = _Execution(admin, cluster, changes)
    done: list[Change] = []
    failed: list[tuple[Change, BolideError]] = []
    batches = _batches(changes)
    for at, batch in enumerate(batches):
        later = [each for rest in batches[at + 1 :] for each in rest]
        try:
            rest = {each.name: each for each in await work.make_together(batch)}
        except BolideError as exc:
            failed += [(each, exc) for each in batch]
            if not keep_going:
                return Outcome(tuple(done), tuple(failed), tuple(later))
            continue
        for place, change in enumerate(batch):
            try:
                if change.name in rest:
                    await work.make(rest[change.name])
            except BolideError as exc:
                failed.append((change, exc))
                if not keep_going:
                    left = [*batch[place + 1 :], *later]
                    return Outcome(tuple(done), tuple(failed), tuple(left))
            else:
                done.append(change)
                on_done(change)
    return Outcome(tuple(done), tuple(failed))


def _batches(changes: Sequence[Change]) -> list[list[Change]]:
    """Changes that one request can make, together: topics or groups of one broker.

    A broker writes its table once for each request.
    """
    found: list[list[Change]] = []
    for _, run in groupby(changes, key=lambda each: (each.kind, _deletes(each))):
        by_broker: dict[str, list[Change]] = {}
        for change in run:
            by_broker.setdefault(change.address, []).append(change)
        for some in by_broker.values():
            size = _BATCH if some[0].kind in _IN_LISTS and not _deletes(some[0]) else 1
            found += [some[at : at + size] for at in range(0, len(some), size)]
    return found


def _deletes(change: Change) -> bool:
    return change.action is Action.DELETE


def _is_made(change: Change, now: Fields | None) -> bool:
    return now is not None and all(now[name] == value for name, value in change.after.items())


class _Execution:
    """The requests for each kind of object."""

    def __init__(self, admin: AdminClient, cluster: str, changes: Iterable[Change]) -> None:
        self._admin = admin
        self._cluster = cluster
        self._without_order: dict[str, set[str]] = {}
        for each in changes:
            if each.kind is Kind.TOPICS and each.before.get(_ORDER) and not each.after.get(_ORDER):
                self._without_order.setdefault(each.name, set()).add(each.broker)
        self._deleted: set[str] = set()

    async def make(self, change: Change) -> None:
        make = {
            Kind.TOPICS: self._topic,
            Kind.GROUPS: self._group,
            Kind.USERS: self._user,
            Kind.ACCOUNTS: self._account,
        }
        await make[change.kind](change)

    async def make_together(self, changes: Sequence[Change]) -> list[Change]:
        """Make changes of one kind at one broker by one request.

        Returns those that are still to be made one by one, so that it turns out which is refused.

        Raises:
            BolideError: it is unknown what was made, or there is no point in asking again.
        """
        first = changes[0]
        if len(changes) == 1:
            return [first]
        try:
            if first.kind is Kind.TOPICS:
                topics = [await self._topic_config(each) for each in changes]
                await self._admin.topics.update_all(first.address, topics)
            else:
                groups = [await self._group_config(each) for each in changes]
                await self._admin.groups.update_all(first.address, groups)
        except _FOR_ONE_OF_THEM:
            return await self._still_to_make(changes)
        return []

    async def _still_to_make(self, changes: Sequence[Change]) -> list[Change]:
        """A broker may have made some before it refused one; to make those again would fail."""
        address = changes[0].address
        if changes[0].kind is Kind.TOPICS:
            topics = (await self._admin.topics.configs(address)).topic_config_table
            known = {name: topic_fields(topics[name]) for name in topics}
        else:
            groups = (await self._admin.groups.configs(address)).subscription_group_table
            known = {name: group_fields(groups[name]) for name in groups}
        return [
            replace(
                each,
                action=Action.CHANGE if each.name in known else Action.CREATE,
                before=known.get(each.name, {}),
            )
            for each in changes
            if not _is_made(each, known.get(each.name))
        ]

    async def _topic(self, change: Change) -> None:
        if _deletes(change):
            await self._delete_topic(change)
        else:
            await self._admin.topics.update(change.address, await self._topic_config(change))

    async def _topic_config(self, change: Change) -> TopicConfig:
        # RocketMQ 4.9 takes the order from the NameServer, when it registers the changed topic.
        name_servers = self._admin.name_servers
        if change.after[_ORDER]:
            queues = change.after[WRITE_QUEUES]
            await name_servers.add_order_conf(change.name, change.broker, queues)
        elif change.before.get(_ORDER):
            await self._forget_order(change)
        return _config(change, "topicName", TopicConfig)

    async def _delete_topic(self, change: Change) -> None:
        await self._forget_order(change)  # first: applying again does not know the topic any more
        if not change.is_gone_everywhere:
            await self._admin.topics.delete_at(change.address, change.name)
        elif change.name not in self._deleted:  # one request deletes it at all brokers
            await self._admin.topics.delete(change.name, self._cluster)
            self._deleted.add(change.name)

    async def _forget_order(self, change: Change) -> None:
        """Take the brokers out of the order that the NameServer has; others may still have one.

        All at once: RocketMQ 4.9 orders the topic at each broker as long as there is any.
        """
        brokers = self._without_order.get(change.name, {change.broker})
        await self._admin.name_servers.remove_order_conf(change.name, brokers)

    async def _group(self, change: Change) -> None:
        if _deletes(change):
            await self._admin.groups.delete(change.address, change.name)
        else:
            await self._admin.groups.update(change.address, await self._group_config(change))

    async def _group_config(self, change: Change) -> GroupConfig:
        config = _config(change, "groupName", GroupConfig)
        if change.action is Action.CHANGE:  # what documents do not have stays
            old = await self._admin.groups.config(change.address, change.name)
            config.subscription_data_set = old.subscription_data_set
        return config

    async def _user(self, change: Change) -> None:
        users, at, name = self._admin.users, change.address, change.name
        if change.action is Action.DELETE:
            await users.delete(at, name)
            return
        kind, status = change.after[_TYPE], change.after["status"]
        if change.action is Action.CREATE:
            # With its status: a user to be disabled must not be enabled for a moment.
            await users.create(at, name, change.secret or "", kind, status)
        # Before it is disabled: it may be the one who signs.
        await self._policies(change)
        is_new = change.action is Action.CREATE
        if not is_new and (kind, status) != (change.before[_TYPE], change.before["status"]):
            await users.update(at, name, user_type=kind, user_status=status)

    async def _policies(self, change: Change) -> None:
        subject = f"User:{change.name}"
        before, after = change.before.get(POLICIES, {}), change.after[POLICIES]
        for key, policy in after.items():
            if before.get(key) != policy:
                acl = acl_of(subject, policy.get(_TYPE, _CUSTOM), [_entry(policy)])
                await self._admin.policies.update(change.address, acl)
        for key, policy in before.items():
            if key not in after:
                kind = policy.get(_TYPE, _CUSTOM)
                await self._admin.policies.delete(change.address, subject, policy["resource"], kind)

    async def _account(self, change: Change) -> None:
        if change.action is Action.DELETE:
            await self._admin.plain_acl.delete(change.address, change.name)
            return
        after = change.after
        await self._admin.plain_acl.update(
            change.address,
            change.name,
            change.secret,
            admin=after["admin"],
            white_address=after["whiteRemoteAddress"],
            default_topic=after["defaultTopicPerm"],
            default_group=after["defaultGroupPerm"],
            topics=_grants(change, "topicPerms"),
            groups=_grants(change, "groupPerms"),
        )


def _grants(change: Change, name: str) -> list[str] | None:
    """The grants to send; None if there are none before or after, which RocketMQ cannot read."""
    if not (change.after[name] or change.before.get(name)):
        return None
    return [f"{key}={permission}" for key, permission in change.after[name].items()]


def _config(change: Change, name: str, shape: type[T]) -> T:
    """The configuration that a broker is sent; its attributes are changes."""
    plain: dict[str, Any] = {**change.after, name: change.name}
    new = change.after.get(ATTRIBUTES, {})
    plain[ATTRIBUTES] = attribute_changes(change.before.get(ATTRIBUTES, {}), new)
    return msgspec.convert(plain, shape)


def _entry(policy: dict[str, Any]) -> PolicyEntry:
    return PolicyEntry(
        resource=policy["resource"],
        actions=policy["actions"],
        source_ips=policy.get("sourceIps"),
        decision=policy["decision"],
    )
