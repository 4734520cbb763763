"""Chooses the access control of a server by its settings."""

import logging
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from bolide.auth.access import Access, LocalAdministration, OpenAccess
from bolide.auth.credentials import initial_user, inner_credentials
from bolide.auth.policies.access import PolicyAccess
from bolide.auth.policies.files import PolicyFiles
from bolide.auth.policies.metadata import Metadata
from bolide.auth.policies.model import User, UserType
from bolide.auth.settings import AccessSettings, PlainAclSettings
from bolide.errors import ConfigError

if TYPE_CHECKING:
    from bolide.auth.plain.files import AclPlaces

log = logging.getLogger(__name__)

_CODE = re.compile(r"0|-?[1-9][0-9]{0,9}")
"""A code as Java writes it, with which it compares."""


def choose_access(
    settings: AccessSettings, *, directory: Path | None = None, cluster: str = ""
) -> Access:
    """Build the access control that the settings ask for. Blocks.

    Args:
        directory: where users and policies are, unless `authConfigPath` tells another place.
        cluster: the name of the resource that requests about the whole server need.

    Raises:
        ConfigError: settings contradict each other, or a file cannot be used.
    """
    inner_credentials(settings)  # they sign requests whatever this server itself asks for
    if isinstance(settings, PlainAclSettings) and settings.acl_enable:
        return _plain_access(settings, cluster)
    if settings.authentication_enabled:
        return _policy_access(settings, settings.auth_config_path or directory, cluster)
    if settings.authorization_enabled:
        raise ConfigError(
            "authorizationEnabled=true needs authenticationEnabled=true: a name without a"
            " verified signature can be anybody's"
        )
    return OpenAccess() if settings.allow_remote_admin else LocalAdministration()


def _policy_access(settings: AccessSettings, directory: Path | None, cluster: str) -> PolicyAccess:
    if directory is None:
        raise ConfigError("authenticationEnabled=true needs authConfigPath")
    # All settings are read before the first user is written.
    unsigned = _codes("authenticationWhitelist", settings.authentication_whitelist)
    unchecked = _codes("authorizationWhitelist", settings.authorization_whitelist)
    initial_users = list(_initial_users(settings))
    metadata = Metadata(PolicyFiles(directory))
    if settings.migrate_auth_from_v1_enabled:
        # Other servers start faster without a parser of YAML.
        from bolide.auth.policies.migration import add_plain_accounts  # noqa: PLC0415

        add_plain_accounts(metadata, _plain_places(settings))
    metadata.add_missing(initial_users)
    if not metadata.users:
        raise ConfigError(
            "authenticationEnabled=true needs a first user: set initAuthenticationUser to"
            ' {"username":"...","password":"..."}'
        )
    return PolicyAccess(
        metadata,
        cluster=cluster,
        authorizes=settings.authorization_enabled,
        unsigned=unsigned,
        unchecked=unchecked,
    )


def _initial_users(settings: AccessSettings) -> Iterable[User]:
    first, inner = initial_user(settings), inner_credentials(settings)
    if first is not None:
        yield User(first.username, first.password, UserType.SUPER)
    if inner is not None and (first is None or inner.access_key != first.username):
        yield User(inner.access_key, inner.secret_key, UserType.SUPER)


def _codes(key: str, words: Iterable[str]) -> set[int]:
    """The request codes of a white list.

    RocketMQ compares texts, and its proxy has requests of gRPC with names: other words than codes
    match no request here and are passed over.
    """
    codes = set()
    for word in words:
        if _CODE.fullmatch(word):
            codes.add(int(word))
        else:
            log.warning("%s: %s is no request code and has no effect here", key, word)
    return codes


def _plain_access(settings: PlainAclSettings, cluster: str) -> Access:
    if settings.authentication_enabled or settings.authorization_enabled:
        raise ConfigError(
            "aclEnable=true and authenticationEnabled=true: choose ACL 1.0 or ACL 2.0"
        )
    from bolide.auth.plain.access import PlainAccess  # noqa: PLC0415

    return PlainAccess(_plain_places(settings), cluster=cluster)


def _plain_places(settings: AccessSettings) -> "AclPlaces":
    """Where plain_acl.yml is; a NameServer, which does not decide by it, may migrate it."""
    from bolide.auth.plain.files import AclPlaces  # noqa: PLC0415

    if isinstance(settings, PlainAclSettings):
        return AclPlaces.of(settings.acl_home, settings.plain_acl_file, settings.acl_config_path)
    if not settings.acl_home:
        raise ConfigError(
            "migrateAuthFromV1Enabled=true needs rocketmqHome, or ROCKETMQ_HOME in the environment:"
            " its conf directory has plain_acl.yml"
        )
    return AclPlaces.of(settings.acl_home, None, None)
