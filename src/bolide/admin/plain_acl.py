"""Accounts and white lists of ACL 1.0 (`aclEnable`), as RocketMQ 4.9 has them too."""

from collections.abc import Iterable
from dataclasses import dataclass

from bolide.admin.servers import Servers
from bolide.protocol import fastjson
from bolide.protocol.bodies.access import PlainAccounts
from bolide.protocol.bodies.data_version import DataVersion
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.access import (
    AccessKeyHeader,
    AclVersionReply,
    PlainAclHeader,
    WhiteAddressesHeader,
)

_SEPARATOR = ","


@dataclass(frozen=True, slots=True)
class AclVersions:
    """The versions of a broker's files of access rules, by path."""

    cluster: str
    broker_name: str
    broker_address: str
    files: dict[str, DataVersion]


class PlainAcl:
    """The access rules of single brokers, by address; they need an account that is an admin.

    Each broker has files of its own: a change must be sent to all of them.
    """

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def accounts(self, address: str) -> PlainAccounts:
        """All accounts and the global white list; Bolide brokers leave the secrets empty."""
        code = RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG
        return await self._servers.fetch(address, code, PlainAccounts)

    async def versions(self, address: str) -> AclVersions:
        code = RequestCode.GET_BROKER_CLUSTER_ACL_INFO
        reply = AclVersionReply.from_fields((await self._servers.call(address, code)).fields)
        files = fastjson.decode(reply.all_acl_file_version or "{}", dict[str, DataVersion])
        return AclVersions(reply.cluster_name, reply.broker_name, reply.broker_addr, files)

    async def update(  # noqa: PLR0913  the columns of an account
        self,
        address: str,
        access_key: str,
        secret_key: str | None = None,
        *,
        admin: bool | None = None,
        white_address: str | None = None,
        default_topic: str | None = None,
        default_group: str | None = None,
        topics: Iterable[str] | None = None,
        groups: Iterable[str] | None = None,
    ) -> None:
        """Create or change an account; a value that is None stays as it is.

        Args:
            secret_key: needed for a new account, and always by RocketMQ's brokers.
            topics: permissions by topic, such as `orders=PUB|SUB`.
            groups: permissions by consumer group.

        Raises:
            Refusal: a value is invalid, or the broker does not use ACL 1.0.
        """
        header = PlainAclHeader(
            access_key=access_key,
            secret_key=secret_key,
            white_remote_address=white_address,
            admin=admin,
            default_topic_perm=default_topic,
            default_group_perm=default_group,
            topic_perms=None if topics is None else _SEPARATOR.join(topics),
            group_perms=None if groups is None else _SEPARATOR.join(groups),
        )
        await self._servers.call(address, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, header)

    async def delete(self, address: str, access_key: str) -> None:
        """Raises Refusal: there is no such account."""
        header = AccessKeyHeader(access_key)
        await self._servers.call(address, RequestCode.DELETE_ACL_CONFIG, header)

    async def update_white_addresses(
        self, address: str, patterns: Iterable[str], *, file: str | None = None
    ) -> None:
        """Replace the global white list.

        Args:
            file: path of the file on the broker's machine; by default its plain_acl.yml.

        Raises:
            Refusal: a pattern is invalid, or there is no such file.
        """
        header = WhiteAddressesHeader(
            global_white_addrs=_SEPARATOR.join(patterns), acl_file_full_path=file
        )
        await self._servers.call(address, RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, header)
