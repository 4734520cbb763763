"""What the brokers of a cluster have: the other side of the comparison with a document."""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

import msgspec

from bolide.admin.access import entries_of
from bolide.admin.client import AdminClient
from bolide.admin.declared.document import BrokerState, system_reason
from bolide.admin.declared.fields import (
    ATTRIBUTES,
    POLICIES,
    RULES,
    Fields,
    Kind,
    canonical_grant,
    canonical_permission,
    canonical_policy,
    canonical_retry_policy,
)
from bolide.admin.errors import AdminError
from bolide.admin.servers import MASTER, gather_by_key
from bolide.auth.plain.accounts import parse_permission
from bolide.auth.policies.model import BadPolicy, UserStatus, UserType
from bolide.protocol.bodies.access import PlainAccount
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.refusals import NoPermission, Refusal
from bolide.version import version_name

_MAJOR = re.compile(r"V(\d+)")
_OLDEST, _WITH_ATTRIBUTES = 4, 5
_NO_USERS = "RocketMQ has users since 5.3"
_NO_ACCOUNTS = "it does not use ACL 1.0: aclEnable is not true"
_Kinds = dict[Kind, dict[str, Fields]]
_Read = Callable[[], Awaitable[dict[str, Fields]]]


class NoMaster(AdminError):
    """A broker group has no master, so nothing can be changed there."""

    def __init__(self, name: str) -> None:
        super().__init__(f"broker {name} has no master now; nothing is changed without it")


async def read_cluster(
    admin: AdminClient, cluster: str, kinds: Collection[Kind] = tuple(Kind)
) -> list[BrokerState]:
    """Read all masters, and of slaves their users and accounts.

    Raises:
        ClusterNotFound: there is no such cluster.
        NoMaster: a broker group has no master.
        RemotingError: a broker does not answer.
    """
    brokers = await admin.clusters.brokers(cluster)
    places: dict[str, tuple[str, int]] = {}
    for broker in brokers:
        if MASTER not in broker.broker_addrs:
            raise NoMaster(broker.broker_name)
        for broker_id, address in sorted(broker.broker_addrs.items()):
            places[address] = (broker.broker_name, broker_id)
    wanted = {kind for kind in kinds if kind.is_on_slaves}
    readers = {
        address: _Reader(admin, address, name, broker_id, cluster, kinds)
        for address, (name, broker_id) in places.items()
        if broker_id == MASTER or wanted
    }
    found = await gather_by_key(readers, lambda address: readers[address].read())
    return [*found.values()]


class _Reader:
    """Reads one broker."""

    def __init__(
        self,
        admin: AdminClient,
        address: str,
        name: str,
        broker_id: int,
        cluster: str,
        kinds: Collection[Kind],
    ) -> None:
        self._admin = admin
        self._address = address
        self._name = name
        self._is_master = broker_id == MASTER
        self._label = name if self._is_master else f"{name} (slave {broker_id})"
        self._cluster = cluster
        self._kinds = [each for each in Kind if each in kinds]
        self._objects: _Kinds = {}
        self._kept: dict[Kind, dict[str, str]] = {}
        self._missing: dict[Kind, str] = {}
        self._secrets: dict[str, str] = {}
        self._major = _WITH_ATTRIBUTES

    async def read(self) -> BrokerState:
        if version := _MAJOR.match(version_name(await self._admin.brokers.version(self._address))):
            self._major = max(_OLDEST, int(version[1]))
        readers: Mapping[Kind, _Read] = {
            Kind.TOPICS: self._topics,
            Kind.GROUPS: self._groups,
            Kind.USERS: self._users,
            Kind.ACCOUNTS: self._accounts,
        }
        for kind in self._kinds:
            if self._is_master or kind.is_on_slaves:
                await self._read_kind(kind, readers[kind])
        return BrokerState(
            name=self._name,
            address=self._address,
            label=self._label,
            is_master=self._is_master,
            major=self._major,
            objects=self._objects,
            kept=self._kept,
            missing=self._missing,
            secrets=self._secrets,
        )

    async def _read_kind(
        self, kind: Kind, read: Callable[[], Awaitable[dict[str, Fields]]]
    ) -> None:
        try:
            found = await read()
        except NoPermission:
            raise
        except Refusal as exc:
            if not kind.is_on_slaves:
                raise
            self._missing[kind] = " ".join(str(exc).split()) or "access control is not in use"
        else:
            self._objects[kind] = {name: self._supported(kind, found[name]) for name in found}

    def _supported(self, kind: Kind, fields: Fields) -> Fields:
        rules = RULES[kind]
        return {name: value for name, value in fields.items() if rules[name].since <= self._major}

    async def _topics(self) -> dict[str, Fields]:
        table = await self._admin.topics.configs(self._address)
        system = {*await self._admin.topics.system_at(self._address), self._cluster, self._name}
        static = {*table.topic_queue_mapping_detail_map, *table.topic_queue_mapping_info_map}
        self._kept[Kind.TOPICS] = dict.fromkeys(
            static, "it is a static topic, which updateStaticTopic changes"
        )
        return {
            name: topic_fields(config)
            for name, config in table.topic_config_table.items()
            if not (name in system or name in static or system_reason(Kind.TOPICS, name))
        }

    async def _groups(self) -> dict[str, Fields]:
        table = await self._admin.groups.configs(self._address)
        return {
            name: group_fields(config)
            for name, config in table.subscription_group_table.items()
            if not system_reason(Kind.GROUPS, name)
        }

    async def _users(self) -> dict[str, Fields]:
        if self._major < _WITH_ATTRIBUTES:
            raise Refusal(_NO_USERS)
        users = await self._admin.users.list(self._address)
        acls = {acl.subject: acl for acl in await self._admin.policies.list(self._address)}
        found: dict[str, Fields] = {}
        for user in users:
            entries = entries_of(acls.get(f"User:{user.username}"))
            policies = dict(canonical_policy(kind, entry) for (kind, _), entry in entries.items())
            found[user.username or ""] = {
                "type": _spelled(UserType, user.user_type),
                "status": _spelled(UserStatus, user.user_status),
                POLICIES: dict(sorted(policies.items())),
            }
        return found

    async def _accounts(self) -> dict[str, Fields]:
        # Without ACL 1.0, RocketMQ 4.9 never answers the request for accounts.
        if (await self._admin.brokers.config(self._address)).get("aclEnable") != "true":
            raise Refusal(_NO_ACCOUNTS)
        accounts = (await self._admin.plain_acl.accounts(self._address)).plain_access_configs
        self._secrets = {
            account.access_key or "": account.secret_key
            for account in accounts
            if account.secret_key
        }
        return {account.access_key or "": account_fields(account) for account in accounts}


def topic_fields(config: TopicConfig) -> Fields:
    plain = {
        name: value
        for name, value in msgspec.to_builtins(config).items()
        if name in RULES[Kind.TOPICS]
    }
    return plain | {ATTRIBUTES: dict(sorted(config.attributes.items()))}


def group_fields(config: GroupConfig) -> Fields:
    plain: dict[str, Any] = {
        name: value
        for name, value in msgspec.to_builtins(config).items()
        if name in RULES[Kind.GROUPS]
    }
    return plain | {
        "groupRetryPolicy": canonical_retry_policy(config.group_retry_policy),
        ATTRIBUTES: dict(sorted(config.attributes.items())),
    }


def account_fields(account: PlainAccount) -> Fields:
    return {
        "admin": account.admin,
        "whiteRemoteAddress": account.white_remote_address or "",
        "defaultTopicPerm": canonical_permission(parse_permission(account.default_topic_perm)),
        "defaultGroupPerm": canonical_permission(parse_permission(account.default_group_perm)),
        "topicPerms": dict(sorted(map(canonical_grant, account.topic_perms or ()))),
        "groupPerms": dict(sorted(map(canonical_grant, account.group_perms or ()))),
    }


def _spelled(kind: type[UserType] | type[UserStatus], given: str | None) -> str:
    try:
        return str(kind.parse(given).value)
    except BadPolicy as exc:
        raise AdminError(f"a user cannot be compared: {exc}") from exc
