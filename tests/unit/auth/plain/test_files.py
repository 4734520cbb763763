"""Where the files are, and how a change is noticed."""

import logging
import os
from pathlib import Path

import pytest

from bolide.auth.plain.files import AclFiles, AclPlaces
from bolide.auth.plain.yaml_nodes import BadAclFile
from bolide.errors import ConfigError

ONE = "accounts:\n- accessKey: {key}\n  secretKey: 12345678\n"


def written(path: Path, key: str = "account") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(ONE.format(key=key))
    path.chmod(0o640)
    return path


def files_in(home: Path) -> AclFiles:
    return AclFiles(AclPlaces.of(str(home), None, None))


def test_the_home_of_rocketmq_has_them_in_conf() -> None:
    places = AclPlaces.of("/opt/mq", None, Path("/etc/broker.conf"))
    assert places == AclPlaces(Path("/opt/mq/conf/plain_acl.yml"), Path("/opt/mq/conf/acl"))
    other = AclPlaces.of("/opt/mq", Path("conf/mine.yml"), None)
    assert other == AclPlaces(Path("/opt/mq/conf/mine.yml"), Path("/opt/mq/conf/acl"))
    assert AclPlaces.of("/opt/mq", Path("/etc/mine.yml"), None).file == Path("/etc/mine.yml")


def test_without_a_home_they_are_beside_the_configuration_file() -> None:
    places = AclPlaces.of(None, None, Path("/etc/bolide/broker.conf"))
    assert places == AclPlaces(Path("/etc/bolide/plain_acl.yml"), Path("/etc/bolide/acl"))
    assert AclPlaces.of(None, Path("/acl/mine.yml"), None) == AclPlaces(
        Path("/acl/mine.yml"), Path("/acl/acl")
    )
    with pytest.raises(ConfigError, match="set ROCKETMQ_HOME"):
        AclPlaces.of(None, None, None)


def test_files_of_the_directory_and_below_come_first(tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    for name in ("plain_acl.yml", "acl/b.yaml", "acl/a.yml", "acl/more/c.yml"):
        written(conf / name)
    for name in ("acl/tools.yml", "acl/notes.txt", "acl/a.yml.tmp", "acl/..old/a.yml", "other.yml"):
        written(conf / name)
    assert [str(path.relative_to(conf)) for path in files_in(tmp_path).paths()] == [
        "acl/a.yml", "acl/b.yaml", "acl/more/c.yml", "plain_acl.yml",
    ]  # fmt: skip


def test_a_broker_without_a_file_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"aclEnable=true: neither .*/conf/plain_acl\.yml nor"):
        files_in(tmp_path).require()
    written(tmp_path / "conf" / "acl" / "a.yml")
    assert files_in(tmp_path).require().accounts.keys() == {"account"}


def test_every_kind_of_change_is_a_new_state(tmp_path: Path) -> None:
    files, path = files_in(tmp_path), tmp_path / "conf" / "plain_acl.yml"
    written(path)
    states = [files.state()]
    assert files.state() == states[0]
    path.write_text(ONE.format(key="another"))
    states.append(files.state())
    other = written(tmp_path / "conf" / "acl" / "a.yml")
    states.append(files.state())
    aside = written(tmp_path / "aside.yml", "renamed")
    os.replace(aside, path)  # noqa: PTH105
    states.append(files.state())
    other.unlink()
    states.append(files.state())
    assert len(set(states)) == 5


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "conf" / "acl" / "a.yml"
    path.mkdir(parents=True)  # a directory by that name is none of them
    assert files_in(tmp_path).paths() == []
    with pytest.raises(BadAclFile, match=r"a\.yml: Is a directory"):
        files_in(tmp_path).read(path)


def test_a_file_that_everybody_can_read_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path / "conf" / "plain_acl.yml")
    files = files_in(tmp_path)
    with caplog.at_level(logging.WARNING):
        files.load()
        assert caplog.messages == []
        path.chmod(0o644)
        files.load()
        files.load()
    assert caplog.messages == [f"{path} holds secrets and every user can read it: chmod 600 {path}"]
