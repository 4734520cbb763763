"""Requests of ACL 1.0 about accounts and white lists, for tools of RocketMQ 4.9.

The gate lets only admins, and addresses of the white list, reach these handlers.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from bolide.auth.access import Access
from bolide.broker.background import ADMIN, on_thread
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.protocol import fastjson
from bolide.protocol.bodies.access import PlainAccount, PlainAccounts
from bolide.protocol.codes import RequestCode
from bolide.protocol.header import NoHeader
from bolide.protocol.headers.access import (
    AccessKeyHeader,
    AclVersionReply,
    PlainAclHeader,
    WhiteAddressesHeader,
)
from bolide.protocol.refusals import Refusal, ServerError
from bolide.remoting.address import format_address
from bolide.remoting.dispatch import Reply, Request, handles
from bolide.remoting.tasks import uninterrupted

if TYPE_CHECKING:
    from bolide.auth.plain.access import PlainAccess
    from bolide.auth.plain.accounts import AccountEntry
    from bolide.auth.plain.rules import Rules

log = logging.getLogger(__name__)

_SEPARATOR = ","


# The codes have other meanings in 5.x, so these classes are not registered for them.
class UpdateAclFailed(Refusal):
    """UPDATE_AND_CREATE_ACL_CONFIG_FAILED of 4.9."""

    code: ClassVar[int] = 209


class DeleteAclFailed(Refusal):
    """DELETE_ACL_CONFIG_FAILED of 4.9."""

    code: ClassVar[int] = 210


class UpdateWhiteAddressesFailed(Refusal):
    """UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED of 4.9."""

    code: ClassVar[int] = 211


class PlainAclHandlers:
    """Shows and changes the rules of ACL 1.0."""

    def __init__(self, access: Access, cell: ConfigCell[BrokerConfig]) -> None:
        self._access = access
        self._cell = cell

    @handles(PlainAclHeader, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG)
    async def update_account(self, request: Request[PlainAclHeader]) -> Reply:
        from bolide.auth.plain.changes import AccountChange  # noqa: PLC0415  as in `_require`

        access, header = self._require(UpdateAclFailed), request.header
        change = AccountChange(
            access_key=header.access_key,
            secret_key=header.secret_key,
            white_remote_address=header.white_remote_address,
            admin=header.admin,
            default_topic_perm=header.default_topic_perm,
            default_group_perm=header.default_group_perm,
            topic_perms=_items(header.topic_perms),
            group_perms=_items(header.group_perms),
        )
        await _apply(access, UpdateAclFailed, lambda: access.changes.update_account(change))
        log.info("%s changed the account %s", request.connection.peer, header.access_key)
        return Reply()

    @handles(AccessKeyHeader, RequestCode.DELETE_ACL_CONFIG)
    async def delete_account(self, request: Request[AccessKeyHeader]) -> Reply:
        access, key = self._require(DeleteAclFailed), request.header.access_key
        await _apply(access, DeleteAclFailed, lambda: access.changes.delete_account(key))
        log.info("%s deleted the account %s", request.connection.peer, key)
        return Reply()

    @handles(WhiteAddressesHeader, RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG)
    async def update_white_addresses(self, request: Request[WhiteAddressesHeader]) -> Reply:
        access, header = self._require(UpdateWhiteAddressesFailed), request.header
        addresses = _items(header.global_white_addrs) or ()
        path = Path(header.acl_file_full_path) if header.acl_file_full_path else None
        await _apply(
            access,
            UpdateWhiteAddressesFailed,
            lambda: access.changes.update_white_addresses(addresses, path),
        )
        log.info("%s set the white list to %s", request.connection.peer, addresses)
        return Reply()

    @handles(NoHeader, RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
    def versions(self, request: Request[NoHeader]) -> Reply:
        access, config = self._require(ServerError), self._cell.value
        documents = access.rules.documents
        versions = {str(path): document.version for path, document in documents.items()}
        default = access.files.places.file
        reply = AclVersionReply(
            version=fastjson.encode(versions.get(str(default), {})).decode(),
            all_acl_file_version=fastjson.encode(versions).decode(),
            broker_name=config.broker_name,
            broker_addr=format_address((config.broker_ip1, config.listen_port)),
            cluster_name=config.broker_cluster_name,
        )
        return Reply(header=reply)

    @handles(NoHeader, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
    async def accounts(self, request: Request[NoHeader]) -> Reply:
        rules = self._require(ServerError).rules
        # On a thread: rules never change, a changed file makes new ones.
        return Reply(body=await on_thread(ADMIN, _listed, rules))

    def _require(self, refusal: type[Refusal]) -> "PlainAccess":
        """The access control, if it is that of ACL 1.0; raises `refusal` otherwise."""
        # Brokers without it start faster without a parser of YAML.
        if self._cell.value.acl_enable:
            from bolide.auth.plain.access import PlainAccess  # noqa: PLC0415

            if isinstance(self._access, PlainAccess):
                return self._access
        raise refusal("this broker does not use ACL 1.0: aclEnable is false")


async def _apply(access: "PlainAccess", refusal: type[Refusal], edit: Callable[[], None]) -> None:
    from bolide.auth.plain.changes import AclChangeRefused  # noqa: PLC0415

    try:
        await uninterrupted(access.change(edit))
    except AclChangeRefused as exc:
        raise refusal(str(exc)) from exc


def _listed(rules: "Rules") -> bytes:
    body = PlainAccounts(
        global_white_addrs=[
            each for document in rules.documents.values() for each in document.white_addresses
        ],
        plain_access_configs=[_shown(each.entry) for each in rules.accounts.values()],
    )
    return fastjson.encode(body)


def _items(text: str | None) -> tuple[str, ...] | None:
    """The items of a list; None, which keeps the former ones, if it is absent."""
    if text is None:
        return None
    return tuple(each.strip() for each in text.split(_SEPARATOR) if each.strip())


def _shown(entry: "AccountEntry") -> PlainAccount:
    """An account as tools may see it: without its secret."""
    return PlainAccount(
        access_key=entry.access_key,
        secret_key="",
        white_remote_address=entry.white_remote_address or "",
        admin=entry.admin,
        default_topic_perm=entry.default_topic_perm,
        default_group_perm=entry.default_group_perm,
        topic_perms=list(entry.topic_perms),
        group_perms=list(entry.group_perms),
    )
