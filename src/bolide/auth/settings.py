"""Settings of access control, under RocketMQ's keys (`BrokerConfig`, `AuthConfig`).

All of them are fixed: no request opens a server, whoever sends it.
"""

from dataclasses import dataclass
from pathlib import Path

from bolide.config import option


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
    def acl_home(self) -> str | None:
        """The installation directory of RocketMQ; servers that have one return it."""
        return None

    @property
    def acl_config_path(self) -> Path | None:
        """The configuration file of the server; servers that have one return it."""
        return None
