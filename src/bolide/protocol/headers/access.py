"""Headers of users and access rules: 5.x (3001 to 3010) and 4.9 (50 to 53); of the audit log."""

from bolide.protocol.header import Header, Int, Long


class UserHeader(Header, frozen=True):
    """A request about one user: 3001 to 3004."""

    username: str = ""


class ListUsersHeader(Header, frozen=True):
    """AUTH_LIST_USER."""

    filter: str | None = None


class SubjectHeader(Header, frozen=True):
    """A request about one subject, such as "User:a": 3006, 3007, 3009."""

    subject: str


class DeleteAclHeader(Header, frozen=True, kw_only=True):
    """AUTH_DELETE_ACL; without a resource all rules of the subject are deleted."""

    subject: str = ""
    policy_type: str | None = None
    resource: str | None = None


class ListAclsHeader(Header, frozen=True):
    """AUTH_LIST_ACL."""

    subject_filter: str | None = None
    resource_filter: str | None = None


class PlainAclHeader(Header, frozen=True, kw_only=True):
    """UPDATE_AND_CREATE_ACL_CONFIG (4.9); lists of "name=PERM", separated by commas."""

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool | None = None
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None

    def __repr__(self) -> str:
        return f"PlainAclHeader(access_key={self.access_key!r})"  # no secret must reach a log


class AccessKeyHeader(Header, frozen=True):
    """DELETE_ACL_CONFIG (4.9)."""

    access_key: str


class AclVersionReply(Header, frozen=True, kw_only=True):
    """Answer to GET_BROKER_CLUSTER_ACL_INFO (4.9); versions are JSON texts."""

    version: str
    all_acl_file_version: str | None = None
    broker_name: str
    broker_addr: str
    cluster_name: str


class WhiteAddressesHeader(Header, frozen=True, kw_only=True):
    """UPDATE_GLOBAL_WHITE_ADDRS_CONFIG (4.9)."""

    global_white_addrs: str
    acl_file_full_path: str | None = None


class WhoAmIReply(Header, frozen=True, kw_only=True):
    """Answer to BOLIDE_WHO_AM_I; without an access key the sender is known by its address only."""

    access_key: str | None = None
    peer: str
    access_control: str
    is_super: bool
    power: str
    """What the sender may do, in words that follow its name."""


class CanIHeader(Header, frozen=True, kw_only=True):
    """BOLIDE_CAN_I: about all of the actions, which are separated by commas.

    By default the sender asks about itself, at its own address.
    """

    resource: str
    actions: str
    username: str | None = None
    source_ip: str | None = None


class CanIReply(Header, frozen=True, kw_only=True):
    """Answer to BOLIDE_CAN_I."""

    allowed: bool
    reason: str | None = None


class ReadAuditHeader(Header, frozen=True, kw_only=True):
    """BOLIDE_READ_AUDIT: records from a queue offset on, or from a time on."""

    begin: Long = -1
    """Queue offset, the `nextBegin` of the previous page; -1: by `since`."""
    since: Long = 0
    """Milliseconds since 1970."""
    max_num: Int = 100
