"""The consumer groups of a broker (`SubscriptionGroupManager`), and their requests."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator

import msgspec

from bolide.broker.background import MAX_BODY, on_saving_thread, read_json
from bolide.broker.metadata.offsets import OffsetTable
from bolide.broker.metadata.topics import SYSTEM_GROUPS, validate_group
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.model.names import READ, SYSTEM_GROUP_PREFIX
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
    AllGroupsHeader,
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
    """All groups by name, out of a table that is loaded; belongs to one event loop.

    A change is in force at once. Those asked for by `update`, `delete` and `set_forbidden` are on
    the disk when these return; groups made by `require` get there by `save_due`.
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
        self._listeners: list[Callable[[], None]] = []

    def on_change(self, listener: Callable[[], None]) -> None:
        """Have `listener` called when a group is new, changed or gone, or may read less or more."""
        self._listeners.append(listener)

    def find(self, group: str) -> GroupConfig | None:
        return self.table.subscription_group_table.get(group)

    def require(self, group: str) -> GroupConfig:
        """The group, made if it is not there and the settings allow it.

        Raises:
            GroupNotFound: there is none and it may not be made; says why and what to do.
        """
        found = self.table.subscription_group_table.get(group)
        return self._create(group) if found is None else found

    def __iter__(self) -> Iterator[GroupConfig]:
        return iter(list(self.table.subscription_group_table.values()))

    def __len__(self) -> int:
        return len(self.table.subscription_group_table)

    def __contains__(self, group: str) -> bool:
        return group in self.table.subscription_group_table

    @property
    def table(self) -> GroupConfigTable:
        """All groups as peers get them; not to be changed."""
        return self._table.value

    @property
    def data_version(self) -> DataVersion:
        return self.table.data_version

    def is_readable(self, group: str, topic: str) -> bool:
        """False if somebody forbade the group to read this topic."""
        bits = self.table.forbidden_table.get(group, {}).get(topic, 0)
        return bits <= 0 or not bits & READ

    # ---- changing

    async def update(self, config: GroupConfig) -> None:
        """Create a group or give it another configuration.

        Raises:
            InvalidParameter: it may not be called so.
        """
        await self.update_all([config])

    async def update_all(self, configs: Iterable[GroupConfig]) -> None:
        """As `update`: all of them or none."""
        given = list(configs)
        for config in given:
            validate_group(config.group_name)
        for config in given:
            log.info("group %s: %s", config.group_name, config)
            self.table.subscription_group_table[config.group_name] = config
        await self._save_now()

    async def delete(self, group: str) -> bool:
        """Forget a group and what it may not read; False if there was none."""
        found = self.table.subscription_group_table.pop(group, None)
        self.table.forbidden_table.pop(group, None)
        await self._save_now()
        log.info("group %s is deleted" if found else "there is no group %s to delete", group)
        return found is not None

    async def set_forbidden(self, group: str, topic: str, *, readable: bool) -> None:
        """Say whether the group may read a topic."""
        topics = self.table.forbidden_table.setdefault(group, {})
        bits = max(0, topics.get(topic, 0))
        topics[topic] = bits & ~READ if readable else bits | READ
        if not topics[topic]:
            del topics[topic]
        if not topics:
            del self.table.forbidden_table[group]
        log.info("group %s may%s read %s", group, "" if readable else " not", topic)
        await self._save_now()

    def create_system_groups(self) -> None:
        """Make those of the broker's own groups that are missing. Blocks: call it at start."""
        groups = self.table.subscription_group_table
        missing = [name for name in SYSTEM_GROUPS if name not in groups]
        groups.update({name: GroupConfig(group_name=name) for name in missing})
        if missing:
            self._changed()
            self.save()

    # ---- saving

    def save_due(self, now: float) -> bool:
        """Save what `require` made; says whether it did. Blocks; raises OSError."""
        with self._saving:
            return self._table.save_due(now)

    def save(self) -> bool:
        """Save at once if anything changed. Blocks; raises OSError."""
        with self._saving:
            return self._table.save()

    async def _save_now(self) -> None:
        self._changed()
        try:
            await uninterrupted(on_saving_thread(self.save))
        except OSError as exc:
            raise ServerError(
                f"in force, but {self._table.path} cannot be written: {exc}; it is tried again"
            ) from exc

    def _changed(self) -> None:
        self.table.data_version = self.data_version.bumped(int(self._now() * 1000))
        self._table.changed()
        for listener in self._listeners:
            listener()

    def _create(self, group: str) -> GroupConfig:
        allowed = self._cell.value.auto_create_subscription_group
        if not (allowed or group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)):
            raise _not_found(
                group,
                "create it, for example with mqadmin updateSubGroup,"
                " or set autoCreateSubscriptionGroup=true on this broker",
            )
        try:
            validate_group(group)
        except InvalidParameter as exc:
            raise _not_found(group, f"it cannot be created: {exc.remark}") from exc
        made = self.table.subscription_group_table[group] = GroupConfig(group_name=group)
        self._changed()
        log.info("group %s is created", group)
        return made


def _not_found(group: str, advice: str) -> GroupNotFound:
    # The first words are RocketMQ's, which people search for.
    return GroupNotFound(f"subscription group [{group}] does not exist: {advice}")


class GroupHandlers:
    """Changes the groups of a broker and tells of them."""

    def __init__(
        self,
        *,
        groups: GroupTable,
        offsets: OffsetTable,
        forget: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Take what it changes; `forget` is called with each group that was deleted."""
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
        for config in configs:
            if config.attributes:
                raise InvalidParameter(
                    f"group {config.group_name}: there are no attributes of groups,"
                    f" {sorted(config.attributes)} cannot be set"
                )
        log.info("%s changes groups %s", peer, [config.group_name for config in configs])
        await self._groups.update_all(configs)

    @handles(DeleteGroupHeader, RequestCode.DELETE_SUBSCRIPTIONGROUP)
    async def delete(self, request: Request[DeleteGroupHeader]) -> Reply:
        header = request.header
        log.info("%s deletes group %s", request.connection.peer, header.group_name)
        await self._groups.delete(header.group_name)
        if header.clean_offset:
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
        found = self._groups.find(request.header.group)
        if found is None:
            raise GroupNotFound(f"No group in this broker: {request.header.group}")
        return Reply(body=fastjson.encode(found))

    @handles(AllGroupsHeader, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    def show_all(self, request: Request[AllGroupsHeader]) -> Reply:
        # All of it at once, page or not: it has no keys that only fastjson would write.
        return Reply(body=msgspec.json.encode(self._groups.table, order="sorted"))
