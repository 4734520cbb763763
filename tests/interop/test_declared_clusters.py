"""`bolide export` and `bolide apply` at Apache's brokers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from bolide.cli import app
from tests.interop.bench import Bench
from tests.interop.conftest import NEWEST
from tests.interop.matrix.brokers import cluster
from tests.interop.policy_cases import ROOT, ROOT_PASSWORD
from tests.interop.test_policies import SETTINGS

OLD = "4.9"
DOCUMENT = """\
version: 1
topics:
  Orders: {writeQueueNums: 4, perm: 6, order: true}
  Bulk:
groups:
  billing: {retryMaxTimes: 5}
  reports:
"""


ACCOUNTS = """\
globalWhiteRemoteAddresses:
accounts:
- accessKey: administrator
  secretKey: secret-of-admin
  admin: true
- accessKey: orders-app
  secretKey: secret-of-orders
  defaultTopicPerm: SUB
  topicPerms: [Orders=PUB|SUB]
"""
USERS = """\
version: 1
users:
  shop:
    password: ${SHOP_PASSWORD}
    policies:
      - {resource: "Topic:Orders", actions: [Pub], decision: Allow, sourceIps: [10.0.0.0/8]}
      - {resource: "Group:*", actions: [All], decision: Deny, type: Default}
  old: {password: "${SHOP_PASSWORD}", status: disable}
"""


def run(name_server: str, *words: str, code: int = 0, env: Mapping[str, str] | None = None) -> str:
    done = CliRunner().invoke(app, [*words, "-n", name_server], env=env)
    assert done.exit_code == code, (words, done.output, done.exception)
    return done.output


@pytest.mark.parametrize("version", [NEWEST, pytest.param(OLD, marks=pytest.mark.long)])
def test_an_apache_cluster_becomes_what_a_file_says(
    java_bench: Bench, tmp_path: Path, version: str
) -> None:
    file = tmp_path / "cluster.yml"
    has_attributes = version != OLD
    text = DOCUMENT
    if has_attributes:
        text = text.replace("order: true", "order: true, attributes: {message.type: FIFO}")
    file.write_text(text)

    def apply(*words: str, code: int = 0) -> str:
        return run(found.namesrv_address, "apply", str(file), *words, code=code)

    with cluster(version, tmp_path, java_bench) as found:
        assert "4 to create" in apply("--yes")
        assert "nothing to do" in apply("--check")
        exported: dict[str, Any] = yaml.safe_load(run(found.namesrv_address, "export"))
        assert [*exported["topics"]] == ["Bulk", "Orders"]
        assert [*exported["groups"]] == ["billing", "reports"]
        assert "users" not in exported
        assert "accounts" not in exported
        assert ("attributes" in exported["topics"]["Orders"]) == has_attributes
        file.write_text(yaml.safe_dump(exported))
        assert "nothing to do" in apply("--prune")

        file.write_text("{version: 1, topics: {}, groups: {}}")
        _check_what_is_lost(apply("--prune", "--dry-run"))
        changed = {"version": 1, "topics": {"Orders": {"perm": 4, "order": False}, "Bills": None}}
        file.write_text(yaml.safe_dump(changed))
        printed = apply("--yes", "--prune")
        assert "perm: 6 -> 4" in printed
        assert "order: true -> false" in printed
        if has_attributes:
            changed["topics"] = {"Orders": {"attributes": {"message.type": "DELAY"}}}
            file.write_text(yaml.safe_dump(changed))
            assert "attributes[message.type]: FIFO -> DELAY" in apply("--yes", "--prune")
            assert [*yaml.safe_load(run(found.namesrv_address, "export"))["topics"]] == ["Orders"]
        else:
            changed["topics"] = {"Orders": {"attributes": {"message.type": "FIFO"}}}
            file.write_text(yaml.safe_dump(changed))
            assert "compatible with RocketMQ 4, which has none" in apply("--yes", code=1)
        file.write_text("{version: 1, users: {}}")
        assert "has no users" in apply("--yes", code=1)
        # Its settings have the same names; what Bolide alone has is not told.
        explained = run(found.namesrv_address, "config", "explain", "fileReservedTime", "workers")
        assert f"  value         72 hours at broker-a {found.broker_address}\n" in explained
        assert "no server of this cluster tells one" in explained
        assert "listenPort" in run(found.namesrv_address, "config", "list", "--changed")


def _check_what_is_lost(shown: str) -> None:
    assert ", with its messages\n    0 messages in 8 queues, last write never\n" in shown
    assert "    no group consumes it\n" in shown
    assert ")\n    0 members online\n    it has consumed nothing\n" in shown


def test_users_and_policies_of_an_apache_broker_are_declared(
    java_bench: Bench, tmp_path: Path
) -> None:
    file = tmp_path / "users.yml"
    file.write_text(USERS)
    keys = {"BOLIDE_ACCESS_KEY": ROOT, "BOLIDE_SECRET_KEY": ROOT_PASSWORD}

    def apply(*words: str, code: int = 0) -> str:
        env = {**keys, "SHOP_PASSWORD": "shop-12345"}
        return run(found.namesrv_address, "apply", str(file), *words, code=code, env=env)

    with cluster(NEWEST, tmp_path, java_bench, **SETTINGS) as found:
        assert "2 to create" in apply("--yes")
        assert "nothing to do" in apply("--check")
        text = run(found.namesrv_address, "export", "--only", "users", env=keys)
        assert "shop-12345" not in text
        assert ROOT_PASSWORD not in text
        exported = yaml.safe_load(text)
        assert exported["users"]["old"]["status"] == "disable"
        file.write_text(text)
        assert "nothing to do" in apply("--prune")
        del exported["users"]["old"]
        first, second = exported["users"]["shop"]["policies"]
        exported["users"]["shop"]["policies"] = [second | {"actions": ["Sub"]}]
        file.write_text(yaml.safe_dump(exported))
        printed = apply("--prune", "--yes")
        assert "- user old" in printed
        assert f"policies[{first['resource']}" in printed
        assert "nothing to do" in apply("--prune")


@pytest.mark.long
def test_accounts_of_an_apache_broker_are_declared(java_bench: Bench, tmp_path: Path) -> None:
    acl = tmp_path / "conf" / "plain_acl.yml"
    acl.parent.mkdir()
    acl.write_text(ACCOUNTS)
    file = tmp_path / "accounts.yml"
    keys = {"BOLIDE_ACCESS_KEY": "administrator", "BOLIDE_SECRET_KEY": "secret-of-admin"}
    namesrv = java_bench.namesrv(OLD).address
    # It is looked for below the broker's home, wherever that is.
    option = f"-Drocketmq.acl.plain.file={'/..' * 20}{acl}"
    java_bench.broker(OLD, namesrv, jvm=[option], aclEnable=True)

    def apply(*words: str, code: int = 0) -> str:
        env = {**keys, "OTHER": "secret-of-other"}
        return run(namesrv, "apply", str(file), *words, code=code, env=env)

    text = run(namesrv, "export", "--only", "accounts", env=keys)
    assert "secret-of" not in text
    file.write_text(text)
    assert "nothing to do" in apply("--prune")
    file.write_text("{version: 1, accounts: {orders-app: {topicPerms: []}}}")
    assert "cannot empty topicPerms" in apply("--yes", code=1)
    changed = text.replace("Orders=PUB|SUB", "Orders=SUB")
    file.write_text(changed + "  other-app: {secretKey: '${OTHER}', groupPerms: [g=SUB]}\n")
    assert "topicPerms[Orders]: PUB|SUB -> SUB" in apply("--yes")
    assert "nothing to do" in apply("--check")
    file.write_text(text)
    assert "- account other-app" in apply("--prune", "--yes")
