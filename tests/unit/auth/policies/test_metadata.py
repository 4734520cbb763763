"""Changes of users and policies: the rules, the files, and who is told."""

import asyncio
from pathlib import Path

import pytest

from bolide.auth.policies import metadata as module
from bolide.auth.policies.files import PolicyFiles
from bolide.auth.policies.metadata import Metadata
from bolide.auth.policies.model import PolicyType, Resource, User, UserStatus, UserType
from bolide.protocol.refusals import NoPermission
from tests.support.access import acl, entry
from tests.support.aio import on_loop, until


@pytest.fixture
def files(tmp_path: Path) -> PolicyFiles:
    return PolicyFiles(tmp_path)


@pytest.fixture
def metadata(files: PolicyFiles) -> Metadata:
    return Metadata(files)


@on_loop
async def test_a_user_is_created_once(metadata: Metadata, files: PolicyFiles) -> None:
    await metadata.create_user(User("a", "pw"))
    with pytest.raises(NoPermission, match="The user is existed"):
        await metadata.create_user(User("a", "other"))
    assert files.load().users == {"a": User("a", "pw")}


@on_loop
async def test_an_update_changes_what_is_given(metadata: Metadata) -> None:
    await metadata.create_user(User("a", "pw"))
    await metadata.update_user("a", status=UserStatus.DISABLE)
    await metadata.update_user("a", type=UserType.SUPER)
    await metadata.update_user("a", password="new")
    assert metadata.users["a"] == User("a", "new", UserType.SUPER, UserStatus.DISABLE)
    with pytest.raises(NoPermission, match="The user is not exist"):
        await metadata.update_user("b", password="x")


@on_loop
async def test_a_deleted_user_takes_its_policies_along(
    metadata: Metadata, files: PolicyFiles
) -> None:
    await metadata.create_user(User("a", "pw"))
    await metadata.update_acl(acl("a", entry("Topic:x", "Pub")))
    await metadata.delete_user("a")
    await metadata.delete_user("a")  # it is gone already
    assert not files.load().users
    assert not files.load().acls
    assert not metadata.acls


@on_loop
async def test_policies_need_their_user(metadata: Metadata) -> None:
    with pytest.raises(NoPermission, match="The subject of User:a is not exist"):
        await metadata.update_acl(acl("a", entry("Topic:x", "Pub")))
    with pytest.raises(NoPermission, match="The subject is not exist"):
        await metadata.delete_acl("a")
    await metadata.create_user(User("a", "pw"))
    with pytest.raises(NoPermission, match="The acl is not exist"):
        await metadata.delete_acl("a")


@on_loop
async def test_entries_are_deleted_one_by_one_or_all_at_once(metadata: Metadata) -> None:
    await metadata.create_user(User("a", "pw"))
    both = acl("a", entry("Topic:x", "Pub"), entry("Topic:y", "Pub"))
    await metadata.update_acl(both)
    await metadata.delete_acl("a", resource=Resource.parse("Topic:x"))
    assert [str(each.resource) for each in metadata.acls["a"].policies[PolicyType.CUSTOM]] == [
        "Topic:y"
    ]
    await metadata.delete_acl("a", resource=Resource.parse("Topic:y"))
    assert "a" not in metadata.acls
    await metadata.update_acl(both)
    await metadata.delete_acl("a")
    assert "a" not in metadata.acls


@on_loop
async def test_every_change_is_told_after_it_is_on_disk(
    metadata: Metadata, files: PolicyFiles
) -> None:
    seen = []
    metadata.on_changed.add(lambda: seen.append(sorted(files.load().users)))
    await metadata.create_user(User("a", "pw"))
    await metadata.create_user(User("b", "pw"))
    await metadata.delete_user("a")
    assert seen == [["a"], ["a", "b"], ["b"]]


@on_loop
async def test_a_change_that_cannot_be_written_has_no_effect(
    metadata: Metadata, files: PolicyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object) -> None:
        raise OSError("disk full")

    await metadata.create_user(User("a", "pw"))
    monkeypatch.setattr(files, "save_users", full)
    with pytest.raises(OSError, match="disk full"):
        await metadata.create_user(User("b", "pw"))
    assert list(metadata.users) == ["a"]


@on_loop
async def test_a_file_changed_by_hand_takes_effect(
    metadata: Metadata, files: PolicyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHECK_INTERVAL", 0.01)
    told = []
    metadata.on_changed.add(lambda: told.append(1))
    following = asyncio.create_task(metadata.follow_files())
    PolicyFiles(files.directory).save_users([User("a", "pw")])
    await until(lambda: "a" in metadata.users)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert told


@on_loop
async def test_a_damaged_file_keeps_the_last_good_state(
    metadata: Metadata, files: PolicyFiles, caplog: pytest.LogCaptureFixture
) -> None:
    await metadata.create_user(User("a", "pw"))
    (files.directory / "users.json").write_text("{")
    await metadata.refresh()
    await metadata.refresh()
    assert list(metadata.users) == ["a"]
    assert caplog.text.count("users and policies stay as they were") == 1
    PolicyFiles(files.directory).save_users([User("b", "pw")])
    await metadata.refresh()
    assert list(metadata.users) == ["b"]


@on_loop
async def test_two_processes_with_one_directory_do_not_undo_each_other(
    metadata: Metadata, files: PolicyFiles
) -> None:
    other = Metadata(PolicyFiles(files.directory))
    await other.create_user(User("a", "pw"))
    await metadata.create_user(User("b", "pw"))
    await other.create_user(User("c", "pw"))
    assert sorted(files.load().users) == ["a", "b", "c"]


def test_users_that_exist_are_not_created_again(metadata: Metadata, files: PolicyFiles) -> None:
    metadata.add_missing([User("a", "pw")], [acl("a", entry("Topic:x", "Pub"))])
    metadata.add_missing([User("a", "new"), User("b", "pw")], [acl("a", entry("*", "All"))])
    assert files.load().users == {"a": User("a", "pw"), "b": User("b", "pw")}
    assert files.load().acls == {"a": acl("a", entry("Topic:x", "Pub"))}
