"""The rules of several files, and the reasons of denials."""

import logging
from pathlib import Path
from typing import Any

import pytest

from bolide.auth.plain.accounts import Account, AccountEntry, Permission
from bolide.auth.plain.documents import AclDocument
from bolide.auth.plain.needs import ADMIN, Need, Needs
from bolide.auth.plain.rules import Rules, denial

PUB, SUB = Permission.PUB, Permission.SUB
FIRST, SECOND = Path("acl/a.yml"), Path("plain_acl.yml")


def account(key: str = "account", **given: Any) -> Account:
    return Account.of(AccountEntry(access_key=key, secret_key="12345678", **given))


def needs(*permissions: tuple[str, Permission]) -> Needs:
    return Needs(permissions=tuple(Need(*each) for each in permissions))


def test_files_are_merged_and_the_first_account_of_a_key_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    documents = {
        FIRST: AclDocument(accounts=(account(admin=True),)).with_white_addresses(("10.0.0.1",)),
        SECOND: AclDocument(accounts=(account(), account("another"))).with_white_addresses(
            ("10.0.0.2",)
        ),
    }
    with caplog.at_level(logging.WARNING):
        rules = Rules(documents)
    assert rules.accounts["account"].is_admin
    assert rules.file_of == {"account": FIRST, "another": SECOND}
    assert rules.is_white("10.0.0.1")
    assert rules.is_white("10.0.0.2")
    assert not rules.is_white("10.0.0.3")
    assert caplog.messages == ["plain_acl.yml: accessKey=account is in acl/a.yml already"]


def test_the_white_list_of_an_account_is_its_own() -> None:
    one, other = account(white_remote_address="10.0.0.*"), account("another")
    rules = Rules({FIRST: AclDocument(accounts=(one, other))})
    for _ in range(2):  # remembered the second time
        assert rules.is_white("10.0.0.9", one)
        assert not rules.is_white("10.0.0.9", other)
        assert not rules.is_white("10.0.0.9")
        assert not rules.is_white("no address", one)


def test_remembered_addresses_do_not_fill_the_memory() -> None:
    rules = Rules({FIRST: AclDocument().with_white_addresses(("10.0.*.*",))})
    for number in range(25_000):
        rules.is_white(f"10.{number // 250}.0.{number % 250}")
    assert len(rules._white_hosts) <= 10_000


def test_a_denial_names_who_what_and_which_permission() -> None:
    one = account(topic_perms=("orders=PUB",))
    assert denial(one, needs(("orders", PUB)), 10) is None
    assert denial(one, needs(("orders", SUB), ("%RETRY%g", SUB)), 11) == (
        "No default permission for topic:orders: accessKey=account needs SUB"
    )
    assert denial(one, needs(("%RETRY%g", SUB)), 11) == (
        "No default permission for group:g: accessKey=account needs SUB"
    )
    assert denial(one, ADMIN, 17) == (
        "Need admin permission for request code=17, but accessKey=account is not"
    )


def test_every_known_account_may_send_traces() -> None:
    assert denial(account(), needs(("RMQ_SYS_TRACE_TOPIC", PUB)), 310) is None
    assert denial(account(), needs(("RMQ_SYS_TRACE_TOPIC", SUB)), 11) is not None


def test_the_topic_of_traces_opens_nothing_else() -> None:
    trace = ("RMQ_SYS_TRACE_TOPIC", PUB)
    assert denial(account(), needs(trace), 37) is not None
    assert denial(account(), needs(trace, ("orders", SUB)), 310) is not None


def test_a_message_at_a_position_needs_the_default_permission_or_an_admin() -> None:
    asked = needs(("", SUB))
    assert denial(account(default_topic_perm="SUB"), asked, 33) is None
    assert denial(account(admin=True, topic_perms=("orders=PUB",)), asked, 33) is None
    assert denial(account(topic_perms=("orders=SUB",)), asked, 33) == (
        "No default permission for topic:*: accessKey=account needs SUB"
    )


def test_an_admin_with_permissions_by_name_is_held_to_them() -> None:
    one = account(admin=True, topic_perms=("orders=PUB",))
    assert denial(one, ADMIN, 17) is None
    assert denial(one, needs(("bills", PUB)), 10) is not None
