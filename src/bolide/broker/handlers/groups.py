"""Consumer groups: create, change, delete, list (`AdminBrokerProcessor`)."""

import logging
from collections.abc import Callable

import msgspec

from bolide.broker.groups import GroupTable
from bolide.broker.json_body import MAX_BODY, read_json
from bolide.broker.offsets import OffsetTable
from bolide.protocol import fastjson
from bolide.protocol.bodies.groups import GroupConfig, GroupConfigList, GroupForbidden
from bolide.protocol.codes import RequestCode
from bolide.protocol.header import NoHeader
from bolide.protocol.headers.groups import (
    AllGroupsHeader,
    DeleteGroupHeader,
    GroupForbiddenHeader,
    GroupHeader,
)
from bolide.protocol.refusals import GroupNotFound, InvalidParameter
from bolide.remoting.dispatch import Reply, Request, handles

log = logging.getLogger(__name__)


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
