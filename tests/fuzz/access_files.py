"""Targets of the files of access control; those whose parser is not part of the build are left out.

The modules are found by name, so that the list of targets has no import that may fail.
"""

from collections.abc import Callable
from importlib import import_module, util
from typing import Any

import msgspec

from bolide.errors import ConfigError
from bolide.protocol.bodies.access import Acl, Policy, PolicyEntry

Found = tuple[str, Callable[[bytes], object], tuple[bytes, ...], tuple[type[Exception], ...]]
"""Name, function, seeds and allowed exceptions of a target."""

_ACL_FILES = (
    (
        b"globalWhiteRemoteAddresses:\n- 10.10.103.*\n- 192.168.0.1-5\naccounts:\n"
        b"- accessKey: RocketMQ\n  secretKey: '12345678'\n  whiteRemoteAddress: 192.168.0.*\n"
        b"  admin: false\n  defaultTopicPerm: DENY\n  defaultGroupPerm: SUB\n  topicPerms:\n"
        b"  - topicA=DENY\n  - topicB=PUB|SUB\n  groupPerms:\n  - groupA=SUB\n"
        b"dataVersion:\n- counter: 1\n  timestamp: 1700000000000\n  stateVersion: 0\n"
    ),
    b"accounts: [{accessKey: rocketmq2, secretKey: 12345678, admin: true}]\n",
)
_ADDRESSES = (b"*", b"10.0.*.*", b"10.0.0.{1,2,3}", b"10.0.1-5.*", b"fe80::1-ff:*", b"2001:db8::1")
_ENTRY = PolicyEntry(
    resource="Topic:orders*", actions=["Pub"], source_ips=["10.0.0.0/8"], decision="ALLOW"
)
_POLICY = Acl(subject="User:a", policies=[Policy(policy_type="Custom", entries=[_ENTRY])])


def found_targets() -> list[Found]:
    targets: list[Found] = []
    if (documents := _module("bolide.auth.plain.documents")) is not None:
        targets.append(("acl-file", _acl_file(documents), _ACL_FILES, (ConfigError,)))
    if (addresses := _module("bolide.auth.plain.addresses")) is not None:
        targets.append(("acl-address", _address(addresses), _ADDRESSES, (ValueError,)))
    if (model := _module("bolide.auth.policies.model")) is not None:
        seeds = (msgspec.json.encode(_POLICY),)
        allowed = (model.BadPolicy, msgspec.DecodeError, UnicodeError)
        targets.append(("policy", _policy(model), seeds, allowed))
    return targets


def _module(name: str) -> Any:
    package = name.rpartition(".")[0]
    if util.find_spec(package) is None or util.find_spec(name) is None:
        return None
    return import_module(name)


def _acl_file(documents: Any) -> Callable[[bytes], object]:
    def read(data: bytes) -> None:
        """A file of ACL 1.0: read, written and read again it says the same."""
        found = documents.read_document(data, "plain_acl.yml")
        again = documents.read_document(documents.write_document(found, data), "plain_acl.yml")
        assert again == found, f"written and read again it is {again}, was {found}"

    return read


def _address(addresses: Any) -> Callable[[bytes], object]:
    def read(data: bytes) -> None:
        pattern = addresses.parse_pattern(data.decode("utf-8", "replace"))
        for host in ("10.0.0.1", "fe80::1"):
            addresses.matches([pattern], addresses.parts_of(host))

    return read


def _policy(model: Any) -> Callable[[bytes], object]:
    def read(data: bytes) -> None:
        """Policies of ACL 2.0, as files and requests have them."""
        found = model.Acl.of(msgspec.json.decode(data, type=Acl))
        assert model.Acl.of(found.to_wire()) == found

    return read
