"""Resources, addresses and policies: their texts, and what they match."""

import pytest

from bolide.auth.policies.decisions import parsed_address
from bolide.auth.policies.model import (
    Acl,
    Action,
    BadPolicy,
    Entry,
    Pattern,
    PolicyType,
    Resource,
    ResourceType,
    Source,
    User,
    UserStatus,
    UserType,
    checked_username,
    optional,
    parse_subject,
)
from bolide.protocol.bodies import access as wire
from tests.support.access import acl, entry

TOPIC = ResourceType.TOPIC


@pytest.mark.parametrize("text", ["*", "Topic:*", "Topic:a", "Topic:a*", "Group:g", "Cluster:c*"])
def test_a_resource_is_read_and_written_alike(text: str) -> None:
    assert str(Resource.parse(text)) == text


def test_the_kind_of_a_resource_is_read_in_any_case() -> None:
    assert Resource.parse("tOpIc:Orders") == Resource(TOPIC, "Orders")


def test_a_prefix_ends_at_its_first_star() -> None:
    assert Resource.parse("Topic:a*b*") == Resource(TOPIC, "a", Pattern.PREFIX)


@pytest.mark.parametrize("text", [None, "", "  ", "Topic", "Topic:", "Queue:a", "orders"])
def test_a_resource_that_names_nothing_is_refused(text: str | None) -> None:
    with pytest.raises(BadPolicy):
        Resource.parse(text)


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("Topic:orders", "orders", True),
        ("Topic:orders", "orders2", False),
        ("Topic:orders*", "orders", True),
        ("Topic:orders*", "orders2", True),
        ("Topic:orders*", "order", False),
        ("Topic:*", "anything", True),
        ("*", "anything", True),
        ("Group:orders", "orders", False),
        ("Group:*", "orders", False),
    ],
)
def test_a_pattern_matches_by_kind_and_name(pattern: str, name: str, matches: bool) -> None:
    assert Resource.parse(pattern).matches(Resource(TOPIC, name)) is matches


def test_a_resource_without_a_name_is_matched_by_any_name_only() -> None:
    unnamed = Resource(TOPIC, None)
    assert Resource.parse("Topic:*").matches(unnamed)
    assert not Resource.parse("Topic:a").matches(unnamed)
    assert not Resource.parse("Topic:a*").matches(unnamed)


@pytest.mark.parametrize(
    ("source", "address", "covers"),
    [
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.4", False),
        ("10.0.0.0/8", "10.255.0.1", True),
        ("10.9.9.9/8", "10.255.0.1", True),
        ("10.0.0.0/8", "11.0.0.1", False),
        ("0.0.0.0/0", "1.2.3.4", True),
        ("fe80::/10", "fe80::1", True),
        ("::1", "::1", True),
        ("127.0.0.1", "::ffff:127.0.0.1", True),
        ("fe80::1", "fe80::1%eth0", True),
    ],
)
def test_a_source_covers_an_address_or_a_range(source: str, address: str, covers: bool) -> None:
    parsed = parsed_address(address)
    assert parsed is not None
    assert Source.parse(source).covers(parsed) is covers


@pytest.mark.parametrize("text", ["10.0.0", "10.0.0.0/33", "localhost", "10.0.0.0/x", "a/8"])
def test_a_source_is_an_address_not_a_name(text: str) -> None:
    with pytest.raises(BadPolicy, match="The source ip is invalid"):
        Source.parse(text)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (wire.PolicyEntry(resource="Topic:a", decision="Allow"), "The actions is empty."),
        (entry("Topic:a", "Any"), "The actions can not be Any."),
        (entry("Topic:a", "Pub", ""), "The decision is null or illegal."),
        (entry("Topic:a", "Pub", "Maybe"), "decision 'Maybe' is unknown"),
        (entry("Topic:a", "Publish"), "action 'Publish' is unknown"),
        (entry("Topic:a", "Pub", sources=" "), "The source ip is empty."),
        (entry("", "Pub"), "The resource is null."),
    ],
)
def test_an_entry_that_cannot_decide_is_refused(given: wire.PolicyEntry, text: str) -> None:
    with pytest.raises(BadPolicy, match=text):
        Entry.of(given)


def test_policies_are_read_and_written_alike() -> None:
    body = wire.Acl(
        subject="User:a",
        policies=[
            wire.Policy(policy_type="Custom", entries=[entry("Topic:x", "Pub,Sub")]),
            wire.Policy(policy_type="Default", entries=[entry("*", "All", "Deny", "10.0.0.0/8")]),
        ],
    )
    assert Acl.of(body).to_wire() == body


def test_a_policy_is_custom_unless_it_says_otherwise() -> None:
    body = wire.Acl(policies=[wire.Policy(entries=[entry("Topic:x", "Pub")])])
    assert Acl.of(body, "User:b").policies.keys() == {PolicyType.CUSTOM}


def test_an_update_replaces_entries_about_the_same_resource() -> None:
    old = acl("a", entry("Topic:x", "Pub"), entry("Topic:y", "Pub"))
    new = old.updated(acl("a", entry("Topic:x", "Sub", "Deny"), entry("Group:g", "Sub")))
    custom = new.policies[PolicyType.CUSTOM]
    assert [str(each.resource) for each in custom] == ["Topic:x", "Topic:y", "Group:g"]
    assert custom[0].actions == {Action.SUB}


def test_the_last_entry_takes_its_policy_with_it() -> None:
    only = acl("a", entry("Topic:x", "Pub"))
    assert not only.without(PolicyType.CUSTOM, Resource.parse("Topic:x")).policies
    assert only.without(PolicyType.DEFAULT, Resource.parse("Topic:x")) == only


def test_a_filter_keeps_the_resources_that_contain_it() -> None:
    both = acl("a", entry("Topic:orders", "Pub"), entry("Group:billing", "Sub"))
    found = both.to_wire("order")
    assert found is not None
    assert [each.resource for each in found.policies[0].entries] == ["Topic:orders"]
    assert both.to_wire("nothing") is None


def test_a_user_never_shows_its_password() -> None:
    user = User("a", "hidden", UserType.SUPER, UserStatus.DISABLE)
    assert "hidden" not in repr(user)
    assert user.to_wire().password == ""
    assert user.to_wire(with_password=True).password == "hidden"


@pytest.mark.parametrize("name", [None, "", "  ", "a\nb", "a\x00"])
def test_a_username_can_be_printed(name: str | None) -> None:
    with pytest.raises(BadPolicy):
        checked_username(name)


@pytest.mark.parametrize("subject", [None, "", "a", "Role:a", "User:", "User: "])
def test_a_subject_is_a_user(subject: str | None) -> None:
    with pytest.raises(BadPolicy):
        parse_subject(subject)


def test_a_subject_may_contain_colons() -> None:
    assert parse_subject("User:a:b") == "a:b"


def test_a_missing_text_is_no_wrong_text() -> None:
    assert optional(UserType, None) is None
    assert optional(UserType, "super") is UserType.SUPER
    with pytest.raises(BadPolicy, match="known are Super, Normal"):
        optional(UserType, "Supr")
