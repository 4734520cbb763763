"""The file with the id of a replica."""

from pathlib import Path

import pytest

from bolide.broker.replicas.identity import IdentityFile, PendingIdentity
from bolide.errors import ConfigError


def identity(directory: Path, cluster: str = "c", name: str = "broker-a") -> IdentityFile:
    return IdentityFile(directory / "brokerIdentity", cluster, name)


def test_a_new_store_has_no_id(tmp_path: Path) -> None:
    assert identity(tmp_path).load() is None
    assert identity(tmp_path).load_pending() is None


def test_an_id_is_kept_in_rocketmqs_form(tmp_path: Path) -> None:
    identity(tmp_path).confirm(3)
    assert (tmp_path / "brokerIdentity").read_text() == "c#broker-a#3"
    assert identity(tmp_path).load() == 3


def test_what_was_applied_for_survives_a_crash(tmp_path: Path) -> None:
    pending = PendingIdentity(2, "10.0.0.1:10911;1700000000000;ab#cd")
    identity(tmp_path).apply_for(pending)
    assert (tmp_path / "brokerIdentity-temp").read_text().startswith("c#broker-a#2#10.0.0.1")
    assert identity(tmp_path).load_pending() == pending
    assert identity(tmp_path).load() is None


def test_a_confirmed_id_ends_the_application(tmp_path: Path) -> None:
    file = identity(tmp_path)
    file.apply_for(PendingIdentity(2, "code"))
    file.confirm(2)
    assert file.load_pending() is None
    file.discard_pending()  # there is none any more


def test_the_store_of_another_group_is_refused(tmp_path: Path) -> None:
    identity(tmp_path).confirm(3)
    with pytest.raises(ConfigError, match="belongs to broker broker-a of cluster c, not to"):
        identity(tmp_path, name="broker-b").load()
    with pytest.raises(ConfigError, match="not to broker-a of d"):
        identity(tmp_path, cluster="d").load()


@pytest.mark.parametrize("text", ["", "c#broker-a", "c#broker-a#x", "c#broker-a#-1", "\0\0"])
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "brokerIdentity").write_text(text)
    with pytest.raises(ConfigError, match=r"brokerIdentity: damaged"):
        identity(tmp_path).load()
