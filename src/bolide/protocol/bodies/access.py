"""Users and access rules: 5.x and, `PlainAccounts`, 4.9."""

from msgspec import field

from bolide.protocol.fastjson import Struct


class User(Struct, kw_only=True):
    """AUTH_CREATE_USER, AUTH_UPDATE_USER, answer to AUTH_GET_USER; a list of them to LIST."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None

    def __repr__(self) -> str:
        return f"User(username={self.username!r})"  # the password must not reach a log


class PolicyEntry(Struct, kw_only=True):
    """The actions allowed or denied on one resource, and from which addresses."""

    resource: str | None = None
    actions: list[str] = field(default_factory=list)
    source_ips: list[str] | None = None
    decision: str | None = None


class Policy(Struct, kw_only=True):
    """Entries of one kind, Custom or Default."""

    policy_type: str | None = None
    entries: list[PolicyEntry] = field(default_factory=list)


class Acl(Struct, kw_only=True):
    """AUTH_CREATE_ACL, AUTH_UPDATE_ACL, answer to AUTH_GET_ACL; a list of them to LIST."""

    subject: str | None = None
    policies: list[Policy] = field(default_factory=list)


class PlainAccount(Struct, kw_only=True):
    """An account of plain_acl.yml (`PlainAccessConfig`); our servers leave the secret empty."""

    access_key: str | None = None
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: list[str] | None = None
    group_perms: list[str] | None = None


class PlainAccounts(Struct, kw_only=True):
    """Answer to GET_BROKER_CLUSTER_ACL_CONFIG (4.9)."""

    global_white_addrs: list[str] = field(default_factory=list)
    plain_access_configs: list[PlainAccount] = field(default_factory=list)
