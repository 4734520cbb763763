"""Accounts and their permissions."""

from typing import Any

import pytest

from bolide.auth.plain.accounts import (
    Account,
    AccountEntry,
    Permission,
    parse_grant,
    parse_permission,
    unknown_permissions,
)

PUB, SUB, DENY = Permission.PUB, Permission.SUB, Permission.DENY


def account(**given: Any) -> Account:
    return Account.of(AccountEntry(access_key="account", secret_key="12345678", **given))


@pytest.mark.parametrize(
    ("text", "permission"),
    [
        ("PUB", PUB), (" SUB ", SUB), ("PUB|SUB", PUB | SUB), ("SUB|PUB", PUB | SUB),
        ("DENY", DENY), ("ANY", DENY), ("pub", DENY), ("PUB | SUB", DENY), ("", DENY), (None, DENY),
    ],
)  # fmt: skip
def test_a_text_that_is_no_permission_denies(text: str | None, permission: Permission) -> None:
    assert parse_permission(text) == permission


def test_a_grant_is_a_name_and_a_permission() -> None:
    assert parse_grant(" orders = PUB|SUB") == ("orders", PUB | SUB)
    for text in ("orders", "orders=", "=PUB", "a=b=PUB", ""):
        with pytest.raises(ValueError, match="name=PERMISSION"):
            parse_grant(text)


def test_what_is_named_counts_before_the_default() -> None:
    one = account(
        default_topic_perm="PUB", default_group_perm="SUB",
        topic_perms=("orders=SUB", "bills=DENY"), group_perms=("hidden=DENY",),
    )  # fmt: skip
    assert one.may(SUB, "orders")
    assert not one.may(PUB, "orders")
    assert one.may(PUB, "others")
    assert not one.may(PUB, "bills")
    assert one.may(SUB, "%RETRY%any")
    assert not one.may(SUB, "%RETRY%hidden")
    assert not one.may(SUB, "others")


def test_a_retry_topic_among_the_topics_is_a_group() -> None:
    one = account(group_perms=("readers=DENY",), topic_perms=("%RETRY%readers=SUB",))
    assert one.may(SUB, "%RETRY%readers")


def test_an_admin_with_permissions_by_name_is_limited_to_them() -> None:
    assert account(admin=True).is_unlimited
    assert not account(admin=True, topic_perms=("orders=PUB",)).is_unlimited
    assert not account().is_unlimited


@pytest.mark.parametrize("keys", [("short6", "12345678"), ("account", "123456")])
def test_keys_are_longer_than_six_and_the_secret_is_not_told(keys: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="must be longer than 6") as refused:
        Account.of(AccountEntry(access_key=keys[0], secret_key=keys[1]))
    assert keys[1] not in str(refused.value)


@pytest.mark.parametrize("keys", [("account\n", "12345678"), ("account", "1234567\x85")])
def test_keys_that_could_forge_a_line_are_refused(keys: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="must consist of visible characters"):
        Account.of(AccountEntry(access_key=keys[0], secret_key=keys[1]))


def test_no_text_of_an_account_has_its_secret() -> None:
    assert "12345678" not in repr(account()) + str(account())


def test_texts_that_only_deny_are_found() -> None:
    one = account(default_topic_perm="ANY", topic_perms=("a=PUB", "b=all"), group_perms=("c=DENY",))
    assert unknown_permissions(one.entry) == ["all", "ANY"]
