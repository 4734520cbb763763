"""Accounts of ACL 1.0 become users and policies."""

from dataclasses import replace
from pathlib import Path

import pytest

from bolide.auth.choice import choose_access
from bolide.auth.plain.files import AclPlaces
from bolide.auth.policies.access import PolicyAccess
from bolide.auth.policies.files import PolicyFiles
from bolide.auth.policies.metadata import Metadata
from bolide.auth.policies.migration import add_plain_accounts
from bolide.auth.policies.model import UserType
from bolide.errors import ConfigError
from bolide.namesrv.config import NameServerConfig
from tests.support.access import FIRST_USER

PLAIN = """
globalWhiteRemoteAddresses:
  - 10.10.103.*
accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
      - topicD=SUB|PUB
    groupPerms:
      - groupA=DENY
      - "%RETRY%groupB=PUB|SUB"
      - groupC=EVERYTHING
  - accessKey: rocketmq2
    secretKey: abcdefgh
    whiteRemoteAddress: 192.168.1.*
    admin: true
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "conf" / "acl" / "more").mkdir(parents=True)
    (tmp_path / "conf" / "plain_acl.yml").write_text(PLAIN)
    more = "accounts:\n  - {accessKey: third-app, secretKey: third-key, defaultTopicPerm: PUB}\n"
    (tmp_path / "conf" / "acl" / "more" / "x.yaml").write_text(more)
    return tmp_path


@pytest.fixture
def metadata(tmp_path: Path) -> Metadata:
    return Metadata(PolicyFiles(tmp_path / "auth"))


def places(home: Path) -> AclPlaces:
    return AclPlaces.of(str(home), None, None)


def shown(metadata: Metadata, name: str) -> dict[str, list[str]]:
    body = metadata.acls[name].to_wire()
    assert body is not None
    return {
        policy.policy_type or "": [
            f"{each.decision} {','.join(each.actions)} {each.resource}" for each in policy.entries
        ]
        for policy in body.policies
    }


def test_accounts_become_users_and_policies(metadata: Metadata, home: Path) -> None:
    add_plain_accounts(metadata, places(home))
    assert sorted(metadata.users) == ["RocketMQ", "rocketmq2", "third-app"]
    assert metadata.users["RocketMQ"].password == "12345678"
    assert metadata.users["rocketmq2"].type is UserType.SUPER
    assert shown(metadata, "RocketMQ") == {
        "Custom": [
            "Deny All Topic:topicA",
            "Allow Pub,Sub Topic:topicB",
            "Allow Sub Topic:topicC",
            "Allow Pub,Sub Topic:topicD",
            "Deny All Group:groupA",
            "Allow Pub,Sub Group:groupB",
            "Deny All Group:groupC",
        ],
        "Default": ["Deny All Topic:*", "Allow Sub Group:*"],
    }
    assert shown(metadata, "third-app") == {"Default": ["Allow Pub Topic:*"]}


@pytest.mark.parametrize("times", [2, 3])
def test_it_does_not_matter_how_often_it_runs(metadata: Metadata, home: Path, times: int) -> None:
    for _ in range(times):
        add_plain_accounts(metadata, places(home))
    assert len(metadata.users) == 3


def test_existing_users_are_left_alone(metadata: Metadata, home: Path) -> None:
    add_plain_accounts(metadata, places(home))
    changed = PLAIN.replace("12345678", "stolen-1").replace("topicA=DENY", "topicA=PUB")
    (home / "conf" / "plain_acl.yml").write_text(changed)
    add_plain_accounts(metadata, places(home))
    assert metadata.users["RocketMQ"].password == "12345678"
    assert shown(metadata, "RocketMQ")["Custom"][0] == "Deny All Topic:topicA"


def test_the_first_of_two_accounts_counts(metadata: Metadata, home: Path) -> None:
    twice = "accounts:\n  - {accessKey: third-app, secretKey: second-key}\n"
    (home / "conf" / "plain_acl.yml").write_text(twice)
    add_plain_accounts(metadata, places(home))
    assert metadata.users["third-app"].password == "third-key"


def test_an_incomplete_account_is_named_with_its_line(metadata: Metadata, home: Path) -> None:
    (home / "conf" / "plain_acl.yml").write_text("accounts:\n  - accessKey: incomplete\n")
    with pytest.raises(ConfigError, match=r"plain_acl\.yml:2"):
        add_plain_accounts(metadata, places(home))
    assert not metadata.users


def test_a_file_that_is_not_yaml_is_named_without_its_secrets(
    metadata: Metadata, home: Path
) -> None:
    (home / "conf" / "plain_acl.yml").write_text("accounts: [secretKey: 'hidden-word\n")
    with pytest.raises(ConfigError, match=r"plain_acl\.yml:\d") as caught:
        add_plain_accounts(metadata, places(home))
    assert "hidden-word" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "accounts:", "accounts: []"])
def test_a_file_without_accounts_changes_nothing(
    metadata: Metadata, tmp_path: Path, text: str
) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(text)
    add_plain_accounts(metadata, places(tmp_path))
    assert not metadata.users


def test_a_name_server_migrates_the_file_in_its_home(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    settings = NameServerConfig(
        authentication_enabled=True,
        init_authentication_user=FIRST_USER,
        migrate_auth_from_v1_enabled=True,
        rocketmq_home=str(home),
    )
    access = choose_access(settings, directory=home / "auth")
    assert isinstance(access, PolicyAccess)
    assert sorted(access.metadata.users) == ["RocketMQ", "rocketmq2", "root", "third-app"]
    without = replace(settings, rocketmq_home=None)
    with pytest.raises(ConfigError, match="needs rocketmqHome") as refused:
        choose_access(without, directory=home / "auth")
    assert "plain.file" not in str(refused.value)  # a setting of brokers


def test_settings_are_read_before_an_account_is_written(home: Path) -> None:
    settings = NameServerConfig(
        authentication_enabled=True,
        init_authentication_user="{",
        migrate_auth_from_v1_enabled=True,
        rocketmq_home=str(home),
    )
    with pytest.raises(ConfigError, match="initAuthenticationUser"):
        choose_access(settings, directory=home / "auth")
    assert not (home / "auth").exists()
