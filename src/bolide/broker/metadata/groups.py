"""The consumer groups of a broker (`SubscriptionGroupManager`), and their requests."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator

import msgspec

from bolide.broker.background import (
    ADMIN,
    MAX_BODY,
    changed_keys,
    on_saving_thread,
    on_thread,
    read_json,
    slices,
)
from bolide.broker.metadata.group_attributes import GROUP_ATTRIBUTES
from bolide.broker.metadata.offsets import OffsetTable
from bolide.broker.metadata.topic_attributes import changed_attributes
from bolide.broker.metadata.topics import validate_group
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.events import Listeners
from bolide.model.names import READ, SYSTEM_GROUPS, is_system_group
from bolide.protocol import fastjson
from bolide.protocol.bodies.data_version import DataVersion
from bolide.protocol.bodies.groups import (
    GroupConfig,
    GroupConfigList,
    GroupConfigTable,
    GroupForbidden,
)
from bolide.protocol.codes import RequestCode
from bolide.protocol.header import NoHeader
from bolide.protocol.headers.groups import (
    REMOVE_OFFSET,
    AllGroupsHeader,
    AllGroupsReply,
    DeleteGroupHeader,
    GroupForbiddenHeader,
    GroupHeader,
)
from bolide.protocol.refusals import GroupNotFound, InvalidParameter, ServerError
from bolide.remoting.dispatch import Reply, Request, handles
from bolide.remoting.tasks import uninterrupted
from bolide.store.tables import Table

log = logging.getLogger("bolide.broker.groups")  # documented in docs/how-to/logging.md


class GroupTable:
    """All consumer groups by name, backed by a loaded table; belongs to one event loop.

    Changes take effect at once. `update`, `delete` and `set_forbidden` return after the file is
    written; groups that `require` creates are written by the next `save_due`.
    """

    def __init__(
        self,
        table: Table[GroupConfigTable],
        cell: ConfigCell[BrokerConfig],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._table = table
        self._cell = cell
        self._now = now
        self._saving = threading.Lock()  # one file, one writer
        self.on_change: Listeners[Collection[str]] = Listeners()
        """Groups of these names, or their permissions, changed."""

    def find(self, group: str) -> GroupConfig | None:
        return self.table.subscription_group_table.get(group)

    def require(self, group: str) -> GroupConfig:
        """Return the group; create a missing one if the settings allow it.

        Raises:
            GroupNotFound: the group does not exist and cannot be created; the remark says why.
        """
        found = self.table.subscription_group_table.get(group)
        return self._create(group) if found is None else found

    def preview(self, group: str) -> GroupConfig:
        """Return the group; of a missing one, the settings that `require` would create it with.

        Raises:
            GroupNotFound: as `require`.
        """
        found = self.table.subscription_group_table.get(group)
        return self._new(group) if found is None else found

    def __iter__(self) -> Iterator[GroupConfig]:
        return iter(list(self.table.subscription_group_table.values()))

    def __len__(self) -> int:
        return len(self.table.subscription_group_table)

    def __contains__(self, group: str) -> bool:
        return group in self.table.subscription_group_table

    @property
    def table(self) -> GroupConfigTable:
        """All groups in their wire form; callers must not modify it."""
        return self._table.value

    @property
    def data_version(self) -> DataVersion:
        return self.table.data_version

    def is_readable(self, group: str, topic: str) -> bool:
        """False if an administrator has forbidden the group to read this topic."""
        bits = self.table.forbidden_table.get(group, {}).get(topic, 0)
        return bits <= 0 or not bits & READ

    # ---- changing

    async def update(self, config: GroupConfig) -> None:
        """Create a group or replace its configuration.

        Raises:
            InvalidParameter: the name is not allowed.
        """
        await self.update_all([config])

    async def update_all(self, configs: Iterable[GroupConfig]) -> None:
        """Like `update`, for several groups; one bad name rejects all of them."""
        given = list(configs)
        for config in given:
            validate_group(config.group_name)
        for config in given:
            log.info("group %s: %s", config.group_name, config)
            self.table.subscription_group_table[config.group_name] = config
        await self._save_now([config.group_name for config in given])

    async def delete(self, group: str) -> bool:
        """Delete a group and its read permissions; returns False if there was none."""
        found = self.table.subscription_group_table.pop(group, None)
        self.table.forbidden_table.pop(group, None)
        await self._save_now([group])
        log.info("deleted group %s" if found else "no group %s to delete", group)
        return found is not None

    async def set_forbidden(self, group: str, topic: str, *, readable: bool) -> None:
        """Allow or forbid the group to read a topic."""
        topics = self.table.forbidden_table.setdefault(group, {})
        bits = max(0, topics.get(topic, 0))
        topics[topic] = bits & ~READ if readable else bits | READ
        if not topics[topic]:
            del topics[topic]
        if not topics:
            del self.table.forbidden_table[group]
        log.info("group %s may%s read %s", group, "" if readable else " not", topic)
        await self._save_now([group])

    async def adopt(self, table: GroupConfigTable) -> None:
        """Replace all groups by those of the master."""
        before, self._table.value = self._table.value, table
        self._table.changed()
        for names in slices(await on_thread(ADMIN, _changed_groups, before, table)):
            self.on_change(set(names))
            await asyncio.sleep(0)

    def create_system_groups(self) -> None:
        """Create missing system groups. Blocks; called at start."""
        groups = self.table.subscription_group_table
        missing = [name for name in SYSTEM_GROUPS if name not in groups]
        groups.update({name: GroupConfig(group_name=name) for name in missing})
        if missing:
            self._changed(missing)
            self.save()

    # ---- saving

    def save_due(self, now: float) -> bool:
        """Save if due; returns whether it did. Blocks; raises OSError."""
        with self._saving:
            return self._table.save_due(now)

    def save(self) -> bool:
        """Save now if anything changed. Blocks; raises OSError."""
        with self._saving:
            return self._table.save()

    async def _save_now(self, groups: Collection[str]) -> None:
        self._changed(groups)
        try:
            await uninterrupted(on_saving_thread(self.save))
        except OSError as exc:
            raise ServerError(
                f"in force, but {self._table.path} cannot be written: {exc}; the broker tries again"
            ) from exc

    def _changed(self, groups: Collection[str]) -> None:
        self.table.data_version = self.data_version.bumped(int(self._now() * 1000))
        self._table.changed()
        self.on_change(groups)

    def _create(self, group: str) -> GroupConfig:
        created = self.table.subscription_group_table[group] = self._new(group)
        self._changed([group])
        log.info("created group %s", group)
        return created

    def _new(self, group: str) -> GroupConfig:
        allowed = self._cell.value.auto_create_subscription_group
        if not (allowed or is_system_group(group)):
            raise _not_found(
                group,
                "create it, for example with mqadmin updateSubGroup,"
                " or set autoCreateSubscriptionGroup=true on this broker",
            )
        try:
            validate_group(group)
        except InvalidParameter as exc:
            raise _not_found(group, f"the group cannot be created: {exc.remark}") from exc
        return GroupConfig(group_name=group)


def _changed_groups(before: GroupConfigTable, after: GroupConfigTable) -> list[str]:
    """Groups whose settings or permissions differ. For threads."""
    changed = changed_keys(before.subscription_group_table, after.subscription_group_table)
    changed += changed_keys(before.forbidden_table, after.forbidden_table)
    return list(dict.fromkeys(changed))


def _not_found(group: str, advice: str) -> GroupNotFound:
    # The first words are those of RocketMQ's own message, which users search for.
    return GroupNotFound(f"subscription group [{group}] does not exist: {advice}")


class GroupHandlers:
    """Creates, changes, deletes and lists groups; `forget` is called with each deleted group."""

    def __init__(
        self,
        *,
        groups: GroupTable,
        offsets: OffsetTable,
        forget: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._forget = forget
        self._groups = groups
        self._offsets = offsets

    @handles(NoHeader, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, max_body=MAX_BODY)
    async def update(self, request: Request[NoHeader]) -> Reply:
        await self._update([await read_json(request, GroupConfig)], request.connection.peer)
        return Reply()

    @handles(NoHeader, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, max_body=MAX_BODY)
    async def update_list(self, request: Request[NoHeader]) -> Reply:
        configs = (await read_json(request, GroupConfigList)).group_config_list
        await self._update(configs, request.connection.peer)
        return Reply()

    async def _update(self, configs: list[GroupConfig], peer: str) -> None:
        """Apply configurations whose attributes are signed changes."""
        log.info("%s changes groups %s", peer, [config.group_name for config in configs])
        await self._groups.update_all([self._with_attributes(config) for config in configs])

    def _with_attributes(self, config: GroupConfig) -> GroupConfig:
        known = self._groups.find(config.group_name)
        attributes = changed_attributes(
            known.attributes if known else None, config.attributes, GROUP_ATTRIBUTES
        )
        return msgspec.structs.replace(config, attributes=attributes)

    @handles(DeleteGroupHeader, RequestCode.DELETE_SUBSCRIPTIONGROUP)
    async def delete(self, request: Request[DeleteGroupHeader]) -> Reply:
        header = request.header
        log.info("%s deletes group %s", request.connection.peer, header.group_name)
        await self._groups.delete(header.group_name)
        if header.clean_offset or (request.frame.fields or {}).get(REMOVE_OFFSET) == "true":
            self._offsets.remove_group(header.group_name)
            await self._offsets.save_now()
        self._forget(header.group_name)
        return Reply()

    @handles(GroupForbiddenHeader, RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN)
    async def forbid(self, request: Request[GroupForbiddenHeader]) -> Reply:
        header = request.header
        if header.readable is not None:
            await self._groups.set_forbidden(header.group, header.topic, readable=header.readable)
        readable = self._groups.is_readable(header.group, header.topic)
        body = GroupForbidden(group=header.group, topic=header.topic, readable=readable)
        return Reply(body=fastjson.encode(body))

    @handles(GroupHeader, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG)
    def show(self, request: Request[GroupHeader]) -> Reply:
        # Proxies ask for a group's settings before its first consumer connects.
        return Reply(body=fastjson.encode(self._groups.preview(request.header.group)))

    @handles(AllGroupsHeader, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    async def show_all(self, request: Request[AllGroupsHeader]) -> Reply:
        # One reply whatever page was requested. The table has no keys that need fastjson.
        body = await on_thread(ADMIN, _encode_groups, self._groups.table)
        return Reply(header=AllGroupsReply(len(self._groups)), body=body)


def _encode_groups(table: GroupConfigTable) -> bytes:
    """Encode all groups. For threads; msgspec's sort is slow unless the keys are in order."""
    groups = list(table.subscription_group_table.items())
    in_order = msgspec.structs.replace(table, subscription_group_table=dict(sorted(groups)))
    return msgspec.json.encode(in_order, order="sorted")
