"""Settings of access control, under RocketMQ's keys (`BrokerConfig`, `AuthConfig`).

All of them are fixed: no request opens a server, whoever sends it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bolide.config import Ignored, option
from bolide.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class AccessSettings:
    """Access control of a broker or NameServer."""

    authentication_enabled: bool = option(
        False, "ACL 2.0: verify the signature of every request against its user.", fixed=True
    )
    authorization_enabled: bool = option(
        False, "ACL 2.0: let users do only what their policies allow.", fixed=True
    )
    authentication_whitelist: tuple[str, ...] = option(
        (), "ACL 2.0: request codes that need no signature, separated by commas.",
        separator=",", fixed=True,
    )  # fmt: skip
    authorization_whitelist: tuple[str, ...] = option(
        (), "ACL 2.0: request codes that need no policy, separated by commas.",
        separator=",", fixed=True,
    )  # fmt: skip
    init_authentication_user: str | None = option(
        None,
        'ACL 2.0: the first super user, created if it is missing: {"username":…,"password":…}.',
        secret=True,
    )
    inner_client_authentication_credentials: str | None = option(
        None,
        "ACL 2.0: credentials of the server's own requests to other servers:"
        ' {"accessKey":…,"secretKey":…}.',
        secret=True,
    )
    auth_config_path: Path | None = option(
        None,
        "ACL 2.0: directory of users and policies; defaults to config/auth below the store, for a"
        " NameServer to auth beside its KV configuration.",
    )
    migrate_auth_from_v1_enabled: bool = option(
        False, "Create the users and policies of plain_acl.yml that are missing, at the start.",
        fixed=True,
    )  # fmt: skip
    allow_remote_admin: bool = option(
        False,
        "Without access control: take requests that administer from other machines too.",
        ours=True,
        fixed=True,
    )

    @property
    def has_access_control(self) -> bool:
        """Whether requests are signed, or decided by the address they come from."""
        return self.authentication_enabled

    @property
    def acl_home(self) -> str | None:
        """The installation directory of RocketMQ; servers that have one return it."""
        return None


@dataclass(frozen=True, kw_only=True)
class PlainAclSettings(AccessSettings):
    """Access control of a broker, which also knows ACL 1.0; RocketMQ's NameServer does not."""

    acl_enable: bool = option(
        False, "ACL 1.0: let accounts of plain_acl.yml do only what the file allows.", fixed=True
    )
    plain_acl_file: Path | None = option(
        None,
        "ACL 1.0: path of plain_acl.yml, relative to rocketmqHome; defaults to conf/plain_acl.yml"
        " there or, without rocketmqHome, to plain_acl.yml beside the broker's configuration file.",
        key="rocketmq.acl.plain.file",
        ours=True,
    )

    @property
    def has_access_control(self) -> bool:
        return self.acl_enable or self.authentication_enabled

    @property
    def acl_config_path(self) -> Path | None:
        """The configuration file of the server; servers that have one return it."""
        return None


# ---- keys of RocketMQ without effect here

_PACKAGE = "org.apache.rocketmq.auth"

USUAL_CLASSES: Mapping[str, tuple[str, ...]] = {
    "authenticationProvider": (
        f"{_PACKAGE}.authentication.provider.DefaultAuthenticationProvider",
    ),
    "authenticationMetadataProvider": (
        f"{_PACKAGE}.authentication.provider.LocalAuthenticationMetadataProvider",
    ),
    "authenticationStrategy": (
        f"{_PACKAGE}.authentication.strategy.StatelessAuthenticationStrategy",
        f"{_PACKAGE}.authentication.strategy.StatefulAuthenticationStrategy",
    ),
    "authorizationProvider": (f"{_PACKAGE}.authorization.provider.DefaultAuthorizationProvider",),
    "authorizationMetadataProvider": (
        f"{_PACKAGE}.authorization.provider.LocalAuthorizationMetadataProvider",
    ),
    "authorizationStrategy": (
        f"{_PACKAGE}.authorization.strategy.StatelessAuthorizationStrategy",
        f"{_PACKAGE}.authorization.strategy.StatefulAuthorizationStrategy",
    ),
}
"""RocketMQ's own classes for access control, by key. A stateful strategy is only faster: every
request is checked."""

_CACHES = {
    "userCacheMaxNum": "1000",
    "userCacheExpiredSecond": "600",
    "userCacheRefreshSecond": "60",
    "aclCacheMaxNum": "1000",
    "aclCacheExpiredSecond": "600",
    "aclCacheRefreshSecond": "60",
    "statefulAuthenticationCacheMaxNum": "10000",
    "statefulAuthenticationCacheExpiredSecond": "60",
    "statefulAuthorizationCacheMaxNum": "10000",
    "statefulAuthorizationCacheExpiredSecond": "60",
}
_NAMES = ("configName", "clusterName")

IGNORED_ACCESS = {
    key: Ignored(
        default,
        "decisions are made by the users and policies alone, and dropped when these change",
        fixed=True,
    )
    for key, default in (dict.fromkeys((*_NAMES, *USUAL_CLASSES), "") | _CACHES).items()
}
"""Keys of RocketMQ's `AuthConfig` without effect here, which files of both servers may hold."""


def refuse_other_classes(texts: Mapping[str, str]) -> None:
    """Raises ConfigError if a key names a class that is not RocketMQ's own.

    Such a class would decide otherwise than this server does, so it cannot be passed over.
    """
    for key, usual in USUAL_CLASSES.items():
        given = texts.get(key, "").strip()
        if given and given not in usual:
            raise ConfigError(
                f"{key}={given}: classes in Java cannot be loaded, and without it another decision"
                " would be made; remove the key to have the decisions of RocketMQ's own class"
            )
