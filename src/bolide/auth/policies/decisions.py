"""The decision of a user's policies about one resource, as Java's `AclAuthorizationHandler`.

Of the entries that match resource, action and source address, the closest decides: an entry about
one kind of resource before one about any kind, a literal name before a prefix, a long prefix before
a short one, a prefix before `*`, and of two equally close ones the one that denies. Default
policies are looked at only if no entry of the custom policy matches.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

from bolide.auth.policies.model import (
    Acl,
    Action,
    Decision,
    Entry,
    Pattern,
    PolicyType,
    Resource,
    ResourceType,
)

NO_MATCH = "no matched policies."
DENIED = "the decision is deny."


class Rule(NamedTuple):
    """The entry that decides."""

    type: PolicyType
    entry: Entry


class Need(NamedTuple):
    """A permission that a request needs: one of the actions on the resource."""

    resource: Resource
    actions: frozenset[Action]


def reason_to_deny(acl: Acl | None, need: Need, source: str) -> str | None:
    """Say why policies do not allow what a request needs; None if they do.

    Args:
        source: the address that the request comes from, without a port.
    """
    rule = find_rule(acl, need, source)
    if rule is None:
        return NO_MATCH
    return DENIED if rule.entry.decision is Decision.DENY else None


def find_rule(acl: Acl | None, need: Need, source: str) -> Rule | None:
    """The entry that decides about what a request needs; None if none matches."""
    if acl is None:
        return None
    address = parsed_address(source)
    for kind in PolicyType:
        matching = [each for each in acl.policies.get(kind, ()) if _matches(each, need, address)]
        if matching:
            return Rule(kind, _closest(matching))
    return None


def parsed_address(source: str) -> IPv4Address | IPv6Address | None:
    """An address of a peer; None if it is none, which no source matches."""
    try:
        address = ip_address(source.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _matches(entry: Entry, need: Need, address: IPv4Address | IPv6Address | None) -> bool:
    return (
        entry.resource.matches(need.resource)
        and (Action.ALL in entry.actions or not entry.actions.isdisjoint(need.actions))
        and _comes_from(entry, address)
    )


def _comes_from(entry: Entry, address: IPv4Address | IPv6Address | None) -> bool:
    if not entry.sources:
        return True
    return address is not None and any(source.covers(address) for source in entry.sources)


def _closest(entries: Iterable[Entry]) -> Entry:
    return min(entries, key=_distance)


def _distance(entry: Entry) -> tuple[bool, int, int, bool]:
    resource = entry.resource
    length = len(resource.name or "") if resource.pattern is Pattern.PREFIX else 0
    return (
        resource.type is ResourceType.ANY,
        resource.pattern.value,
        -length,
        entry.decision is not Decision.DENY,
    )
