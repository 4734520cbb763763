"""Targets of the files of access control."""

import msgspec

from bolide.auth.plain import addresses, documents
from bolide.auth.policies import model
from bolide.protocol.bodies.access import Acl, Policy, PolicyEntry

ACL_FILES = (
    (
        b"globalWhiteRemoteAddresses:\n- 10.10.103.*\n- 192.168.0.1-5\naccounts:\n"
        b"- accessKey: RocketMQ\n  secretKey: '12345678'\n  whiteRemoteAddress: 192.168.0.*\n"
        b"  admin: false\n  defaultTopicPerm: DENY\n  defaultGroupPerm: SUB\n  topicPerms:\n"
        b"  - topicA=DENY\n  - topicB=PUB|SUB\n  groupPerms:\n  - groupA=SUB\n"
        b"dataVersion:\n- counter: 1\n  timestamp: 1700000000000\n  stateVersion: 0\n"
    ),
    b"accounts: [{accessKey: rocketmq2, secretKey: 12345678, admin: true}]\n",
)
ADDRESSES = (b"*", b"10.0.*.*", b"10.0.0.{1,2,3}", b"10.0.1-5.*", b"fe80::1-ff:*", b"2001:db8::1")
_ENTRY = PolicyEntry(
    resource="Topic:orders*", actions=["Pub"], source_ips=["10.0.0.0/8"], decision="ALLOW"
)
_POLICY = Acl(subject="User:a", policies=[Policy(policy_type="Custom", entries=[_ENTRY])])
POLICIES = (msgspec.json.encode(_POLICY),)
BAD_POLICIES = (model.BadPolicy, msgspec.DecodeError, UnicodeError)


def acl_file(data: bytes) -> None:
    """A file of ACL 1.0: read, written and read again it says the same."""
    found = documents.read_document(data, "plain_acl.yml")
    again = documents.read_document(documents.write_document(found, data), "plain_acl.yml")
    assert again == found, f"written and read again it is {again}, was {found}"


def acl_address(data: bytes) -> None:
    pattern = addresses.parse_pattern(data.decode("utf-8", "replace"))
    for host in ("10.0.0.1", "fe80::1"):
        parts = addresses.parts_of(host)
        assert parts is not None
        addresses.matches([pattern], parts)


def policy(data: bytes) -> None:
    """Policies of ACL 2.0, as files and requests have them."""
    found = model.Acl.of(msgspec.json.decode(data, type=Acl))
    again = found.to_wire()
    if again is not None:  # as without any entry
        assert model.Acl.of(again) == found
