"""The files of users and policies: who can read them, and what damaged ones do."""

import stat
from pathlib import Path

import pytest

from bolide.auth.policies.files import PolicyFiles
from bolide.auth.policies.model import User, UserStatus, UserType
from bolide.errors import ConfigError
from tests.support.access import acl, entry


@pytest.fixture
def files(tmp_path: Path) -> PolicyFiles:
    return PolicyFiles(tmp_path / "auth")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_without_files_there_is_nobody(files: PolicyFiles) -> None:
    found = files.load()
    assert not found.users
    assert not found.acls


def test_what_is_written_is_read(files: PolicyFiles) -> None:
    users = [User("a", "pw-a", UserType.SUPER), User("b", "pw-b", status=UserStatus.DISABLE)]
    acls = [acl("b", entry("Topic:x*", "Pub,Get", "Deny", "10.0.0.0/8"))]
    files.save_users(users)
    files.save_acls(acls)
    found = files.load()
    assert list(found.users.values()) == users
    assert list(found.acls.values()) == acls


def test_only_the_owner_reads_passwords(files: PolicyFiles) -> None:
    for password in ("first", "second"):  # the second write makes a backup
        files.save_users([User("a", password)])
    files.save_acls([acl("a", entry("Topic:x", "Pub"))])
    assert mode_of(files.directory / "users.json") == 0o600
    assert mode_of(files.directory / "users.json.bak") == 0o600
    assert mode_of(files.directory / "acls.json") & 0o027 == 0
    assert mode_of(files.directory) & 0o027 == 0


def test_a_file_that_others_can_read_is_closed(
    files: PolicyFiles, caplog: pytest.LogCaptureFixture
) -> None:
    files.save_users([User("a", "pw")])
    (files.directory / "users.json").chmod(0o644)
    files.load()
    assert mode_of(files.directory / "users.json") == 0o600
    assert "was readable by others" in caplog.text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"users":[{"username":"a"}]}',
        '{"users":[{"username":"a","password":7}]}',
        '{"users":[{"username":" ","password":"secret-word"}]}',
        '{"users":[{"username":"a","password":"secret-word","userType":"God"}]}',
        '{"users":[{"username":"a","password":"secret-word","userStatus":3}]}',
    ],
)
def test_a_damaged_file_of_users_is_named_without_its_passwords(
    files: PolicyFiles, text: str
) -> None:
    files.directory.mkdir()
    (files.directory / "users.json").write_text(text)
    with pytest.raises(ConfigError, match=r"users\.json") as caught:
        files.load()
    assert "secret-word" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["{", '{"acls":[{"subject":"User:a"}]}', '{"acls":[{"subject":"a","policies":[]}]}'],
)
def test_a_damaged_file_of_policies_is_named(files: PolicyFiles, text: str) -> None:
    files.directory.mkdir()
    (files.directory / "acls.json").write_text(text)
    with pytest.raises(ConfigError, match=r"acls\.json"):
        files.load()


def test_the_stamp_tells_a_change(files: PolicyFiles) -> None:
    before = files.stamp()
    files.save_users([User("a", "pw")])
    changed = files.stamp()
    assert changed != before
    assert files.stamp() == changed
