"""Edits of accounts and white lists."""

import stat
from pathlib import Path
from typing import Any

import pytest

from bolide.auth.plain.changes import AccountChange, AclChangeRefused, AclChanges
from bolide.auth.plain.files import AclFiles, AclPlaces
from bolide.auth.plain.rules import Rules
from bolide.protocol.bodies.data_version import DataVersion

ACL = """# Ours.
accounts:
- accessKey: account
  secretKey: 12345678
  admin: true
  defaultTopicPerm: PUB
  topicPerms: [orders=PUB]
"""


class Edited:
    def __init__(self, home: Path) -> None:
        self.file = home / "conf" / "plain_acl.yml"
        self.other = home / "conf" / "acl" / "a.yml"
        self.other.parent.mkdir(parents=True)
        self.file.write_text(ACL)
        self.files = AclFiles(AclPlaces.of(str(home), None, None))
        self.changes = AclChanges(self.files, now=lambda: 1_700_000_000.5)

    @property
    def rules(self) -> Rules:
        return self.files.load()

    def update(self, key: str, **given: Any) -> None:
        self.changes.update_account(AccountChange(access_key=key, **given))

    def refuses(self, reason: str, key: str, **given: Any) -> None:
        before = self.file.read_bytes()
        with pytest.raises(AclChangeRefused, match=f"nothing is changed.*{reason}") as refused:
            self.update(key, **given)
        assert self.file.read_bytes() == before
        assert "secret-of" not in str(refused.value)


@pytest.fixture
def edited(tmp_path: Path) -> Edited:
    return Edited(tmp_path)


def test_a_new_account_is_added_to_the_default_file(edited: Edited) -> None:
    edited.update("new-one", secret_key="secret-of-new", topic_perms=("a=PUB", "b=SUB"))
    entry = edited.rules.accounts["new-one"].entry
    assert (entry.secret_key, entry.topic_perms, entry.admin) == (
        "secret-of-new", ("a=PUB", "b=SUB"), False,
    )  # fmt: skip
    document = edited.rules.documents[edited.file]
    assert document.version == DataVersion(counter=1, timestamp=1_700_000_000_500)
    assert edited.file.read_text().startswith("# Ours.\n")
    assert stat.S_IMODE(edited.file.stat().st_mode) == 0o600
    assert sorted(path.name for path in edited.file.parent.iterdir()) == ["acl", "plain_acl.yml"]


def test_a_change_keeps_what_it_does_not_name(edited: Edited) -> None:
    edited.update("account", group_perms=("g=SUB",))
    entry = edited.rules.accounts["account"].entry
    assert entry.secret_key == "12345678"
    assert (entry.default_topic_perm, entry.topic_perms) == ("PUB", ("orders=PUB",))
    assert (entry.group_perms, entry.admin) == (("g=SUB",), True)
    edited.update("account", admin=False)
    assert not edited.rules.accounts["account"].entry.admin


def test_an_account_is_changed_in_its_own_file(edited: Edited) -> None:
    edited.other.write_text("accounts:\n- accessKey: elsewhere\n  secretKey: 12345678\n")
    edited.update("elsewhere", default_topic_perm="SUB")
    edited.changes.delete_account("account")
    rules = edited.rules
    assert rules.file_of == {"elsewhere": edited.other}
    assert rules.accounts["elsewhere"].entry.default_topic_perm == "SUB"
    assert [each.version.counter for each in rules.documents.values()] == [1, 1]


def test_a_file_that_was_edited_by_hand_meanwhile_is_not_overwritten(edited: Edited) -> None:
    edited.file.write_text(ACL + "- accessKey: by-hand\n  secretKey: 12345678\n")
    edited.update("new-one", secret_key="secret-of-new")
    assert edited.rules.accounts.keys() == {"account", "by-hand", "new-one"}


def test_invalid_changes_are_refused(edited: Edited) -> None:
    edited.refuses("must be longer than 6", "short", secret_key="secret-of-short")
    edited.refuses("secretKey of accessKey=new-one must be longer", "new-one", secret_key="short")
    edited.refuses("secretKey of accessKey=new-one must be longer", "new-one")
    edited.refuses("name=PERMISSION", "account", topic_perms=("orders",))
    edited.refuses("'ALL': must be one of DENY, PUB", "account", topic_perms=("orders=ALL",))
    edited.refuses("'any': must be one of", "account", default_group_perm="any")
    edited.refuses("is not an IP address", "account", white_remote_address="here")
    with pytest.raises(AclChangeRefused, match="no account with accessKey=nobody"):
        edited.changes.delete_account("nobody")


def test_a_broken_file_is_not_replaced(edited: Edited) -> None:
    edited.file.write_text("accounts: [")
    edited.refuses(r"plain_acl\.yml:2: ", "new-one", secret_key="secret-of-new")


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    edited = Edited(tmp_path)
    aside = edited.file.with_name("plain_acl.yml.tmp")
    aside.mkdir()  # stands for whatever is in the way, also for root
    edited.refuses(r"plain_acl\.yml\.tmp cannot be written", "new-one", secret_key="secret-of-new")


def test_a_link_stays_a_link(edited: Edited, tmp_path: Path) -> None:
    target = tmp_path / "data.yml"
    edited.file.rename(target)
    edited.file.symlink_to(target)
    edited.update("new-one", secret_key="secret-of-new")
    assert edited.file.is_symlink()
    assert "new-one" in target.read_text()


def test_white_addresses_are_replaced_in_one_file(edited: Edited) -> None:
    edited.other.write_text("globalWhiteRemoteAddresses: [10.0.0.1]\n")
    edited.changes.update_white_addresses(("10.0.0.2", "10.1.*.*"))
    edited.changes.update_white_addresses(("10.0.0.3",), edited.other)
    found = {path: each.white_addresses for path, each in edited.rules.documents.items()}
    assert found == {edited.other: ("10.0.0.3",), edited.file: ("10.0.0.2", "10.1.*.*")}
    with pytest.raises(AclChangeRefused, match="is not a file of access rules"):
        edited.changes.update_white_addresses(("*",), Path("/etc/passwd"))
    with pytest.raises(AclChangeRefused, match="is not an IP address"):
        edited.changes.update_white_addresses(("10.0.0.300",))


def test_the_default_file_is_made_if_it_is_missing(edited: Edited) -> None:
    edited.file.rename(edited.other)
    edited.update("new-one", secret_key="secret-of-new")
    assert edited.rules.file_of == {"account": edited.other, "new-one": edited.file}
    assert stat.S_IMODE(edited.file.stat().st_mode) == 0o600
