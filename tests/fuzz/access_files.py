"""Targets of access control: its files, and the requests that a gate reads."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import msgspec

from bolide.admin.access import load_document, parse_document
from bolide.auth.plain import addresses, documents
from bolide.auth.plain import needs as plain_needs
from bolide.auth.policies import model, requirements
from bolide.auth.policies.files import PolicyFiles
from bolide.auth.request_bodies import UnreadableBody
from bolide.cli.admin.credentials import own_credentials
from bolide.protocol.bodies.access import Acl, Policy, PolicyEntry
from bolide.protocol.frame import Frame
from bolide.protocol.framing import FrameDecoder, encode_frame
from bolide.protocol.refusals import NoPermission
from tests.interop.exchanges import EXCHANGES

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
USERS = (
    b'{"users":[{"username":"a","password":"b-12345","userType":"Super","userStatus":"enable"}]}',
)
TOOLS = (b"accessKey: a\nsecretKey: b-12345\n",)
DOCUMENTS = (
    (
        b"users:\n  shop:\n    type: Normal\n    password: ${SHOP}\n    policies:\n"
        b"    - {resource: 'Topic:Orders', actions: [Pub], decision: Allow,\n"
        b"       sourceIps: [10.0.0.0/8]}\n"
    ),
)
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


def users_file(data: bytes) -> None:
    """`users.json`, whatever is in it."""
    with TemporaryDirectory() as name:
        (Path(name) / "users.json").write_bytes(data)
        files = PolicyFiles(Path(name))
        found = files.load()
        files.save_users(found.users.values())
        assert files.load() == found


def tools_file(data: bytes) -> None:
    """`tools.yml`, from which admin commands take their credentials."""
    with TemporaryDirectory() as name:
        (Path(name) / "conf").mkdir()
        (Path(name) / "conf" / "tools.yml").write_bytes(data)
        with mock.patch.dict(os.environ, {"ROCKETMQ_HOME": name}):
            own_credentials()


def acl_document(data: bytes) -> None:
    """A file of `applyAcl`."""
    parse_document(load_document(data))


def requests() -> Iterator[bytes]:
    for each in EXCHANGES:
        yield encode_frame(Frame(code=each.code, fields=dict(each.fields), body=each.body))


def needs(data: bytes) -> None:
    """What requests need: both gates read every header and body before anybody is known."""
    for request in FrameDecoder().feed(data):
        with suppress(UnreadableBody):
            plain_needs.needs_of(request, "DefaultCluster")
        with suppress(NoPermission):
            requirements.needs_of(request, "DefaultCluster")
