"""Java clients and Java's mqadmin with credentials, against our broker with ACL 1.0."""

import asyncio
import re
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from bolide.admin import AdminClient
from tests.interop.bench import Bench
from tests.interop.conftest import obtain_or_skip
from tests.interop.mqadmin import run_commands, tools_home
from tests.interop.ours import bolide_broker, bolide_namesrv

ACL = """# Accounts of the shop.
accounts:
- accessKey: administrator
  secretKey: 12345678
  admin: true
- accessKey: orders-app
  secretKey: secret-of-orders
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms:
  - Orders=PUB|SUB
  groupPerms:
  - billing=SUB
"""


class Shop(NamedTuple):
    """A cluster of ours with ACL 1.0."""

    name_server: str
    broker: str
    file: Path

    def run(self, bench: Bench, version: str, *jobs: str) -> list[str]:
        """The outcome of each job of a Java client."""
        process = bench.client(version, "SignedClient", self.name_server, *jobs)
        printed = [line.split(" ", 1) for line in process.wait(90)]
        return [words[1] for words in printed if words[0] in jobs]


ADMIN = ("administrator", "12345678")
APP = ("orders-app", "secret-of-orders")
AS_ADMIN = "as:administrator:12345678"
AS_APP = "as:orders-app:secret-of-orders"


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    file = tmp_path / "broker" / "conf" / "plain_acl.yml"
    file.parent.mkdir(parents=True)
    file.write_text(ACL)
    file.chmod(0o600)
    with (
        bolide_namesrv(tmp_path / "namesrv") as namesrv,
        bolide_broker(tmp_path / "broker", namesrv.address, aclEnable=True) as broker,
    ):
        yield Shop(namesrv.address, broker.address, file)


@pytest.mark.parametrize("version", ["4.9", "5.x"])
def test_a_java_client_may_do_what_its_account_may(
    version: str, shop: Shop, java_bench: Bench
) -> None:
    obtain_or_skip(version)
    jobs = [
        AS_ADMIN, "send:Orders", "send:Other",
        AS_APP, "send:Orders", "pull:Orders:billing",
        "send:Other", "pull:Orders:shipping", "pull:Other:billing",
        "as:-:-", "send:Orders",
        "as:orders-app:not-the-secret", "send:Orders",
        "as:nobody-else:secret-of-orders", "send:Orders",
    ]  # fmt: skip

    done = shop.run(java_bench, version, *jobs)

    assert done[:4] == ["ok"] * 4
    needs = ("topic:Other", "PUB"), ("group:shipping", "SUB"), ("topic:Other", "SUB")
    reasons = [
        *(
            f"No default permission for {what}: accessKey=orders-app needs {permission}"
            for what, permission in needs
        ),
        "No accessKey is configured",
        "Check signature failed for accessKey=orders-app",
        "No acl config for nobody-else",
    ]
    for outcome, reason in zip(done[4:], reasons, strict=True):
        assert re.match(rf"16 {re.escape(reason)}, from 127\.0\.0\.1:\d+", outcome), outcome
        assert "secret-of" not in outcome


@pytest.mark.parametrize("version", ["4.9", "5.x"])
def test_a_java_client_notices_that_the_file_has_changed(
    version: str, shop: Shop, java_bench: Bench
) -> None:
    obtain_or_skip(version)
    jobs = (AS_ADMIN, "send:Orders", "send:Other", AS_APP, "send:Other", "until:send:Other",
            "while:send:Orders")  # fmt: skip
    process = java_bench.client(version, "SignedClient", shop.name_server, *jobs)

    process.wait_for_line("send:Other 16 No default permission for topic:Other", 60)
    shop.file.write_text(ACL.replace("Orders=PUB|SUB", "Other=PUB"))

    process.wait_for_line("until:send:Other ok", 60)
    process.wait_for_line("while:send:Orders 16 No default permission for topic:Orders", 60)
    process.wait(60)


def test_javas_mqadmin_shows_and_changes_the_rules(
    shop: Shop, java_bench: Bench, tmp_path: Path
) -> None:
    obtain_or_skip("4.9")  # 4.9.7: the mqadmin of 4.9.8 has no getAclConfig
    at = ("-b", shop.broker)
    commands = [
        ("getAclConfig", *at),
        ("clusterAclConfigVersion", "-c", "DefaultCluster"),
        ("updateAclConfig", *at, "-a", "new-account", "-s", "secret-of-new", "-t",
         "Orders=SUB,Bills=DENY", "-g", "billing=SUB", "-i", "PUB", "-m", "false"),
        ("updateGlobalWhiteAddr", *at, "-g", "10.0.0.*,192.168.0.7"),
        ("deleteAclConfig", *at, "-a", "orders-app"),
        ("getAclConfig", *at),
        ("clusterAclConfigVersion", *at),
        ("updateAclConfig", *at, "-a", "short", "-s", "secret-of-short"),
        ("updateAclConfig", *at, "-a", "new-account", "-s", "secret-of-new", "-t", "Orders"),
        ("deleteAclConfig", *at, "-a", "not-there"),
        ("updateGlobalWhiteAddr", *at, "-g", "10.0.0.300"),
        ("updateGlobalWhiteAddr", *at, "-g", "10.0.0.1", "-p", "/etc/passwd"),
        ("updateTopic", *at, "-t", "Made"),
    ]  # fmt: skip
    home = tools_home(tmp_path, *ADMIN)
    done = run_commands(java_bench, "4.9", shop.name_server, commands, jvm=[home], of_servers=True)

    first, version, made, white, deleted, second, later, *refused, topic = done
    assert "accessKey         : orders-app" in first
    assert re.search(r"secretKey +: *\n", first)
    assert "topicPerms        : [Orders=PUB|SUB]" in first
    assert str(shop.file) in version
    assert "create or update plain access config" in made
    assert "success" in white
    assert "delete plain access config account" in deleted
    assert "globalWhiteRemoteAddresses: [10.0.0.*, 192.168.0.7]" in second
    assert "accessKey         : new-account" in second
    assert "orders-app" not in second
    assert re.search(rf"{re.escape(str(shop.file))} +3 ", later)
    for printed, code, reason in zip(
        refused,
        (209, 209, 210, 211, 211),
        ("accessKey=short: must be longer", "must have the form name=PERMISSION",
         "no account with accessKey=not-there", "'10.0.0.300' is not an IP address",
         "/etc/passwd is not a file of access rules"),
        strict=True,
    ):  # fmt: skip
        assert f"CODE: {code}" in printed, printed
        assert reason in printed
    assert "create topic to" in topic
    assert "secret-of" not in first + second + "".join(refused)

    written = shop.file.read_text()
    assert written.startswith("# Accounts of the shop.\n")
    assert "secret-of-new" in written
    assert "orders-app" not in written
    assert stat.S_IMODE(shop.file.stat().st_mode) == 0o600


def test_javas_mqadmin_with_an_ordinary_account_may_not_until_the_file_says_so(
    shop: Shop, java_bench: Bench, tmp_path: Path
) -> None:
    obtain_or_skip("4.9")
    before = shop.file.read_text()
    at = ("-b", shop.broker)
    commands = [
        ("getAclConfig", *at),
        ("updateAclConfig", *at, "-a", "orders-app", "-s", "secret-of-orders", "-m", "true"),
        ("deleteAclConfig", *at, "-a", "administrator"),
        ("updateGlobalWhiteAddr", *at, "-g", "*"),
        ("updateTopic", *at, "-t", "Made"),
    ]
    home = tools_home(tmp_path, *APP)

    for printed in run_commands(
        java_bench, "4.9", shop.name_server, commands, jvm=[home], of_servers=True
    ):
        assert "CODE: 16" in printed, printed
        assert "Need admin permission for request code=" in printed
    assert shop.file.read_text() == before

    shop.file.write_text(ACL.replace("secret-of-orders\n", "secret-of-orders\n  admin: true\n"))
    until(lambda: asyncio.run(is_admin(shop)))
    shown, made = run_commands(
        java_bench, "4.9", shop.name_server, [commands[0], commands[-1]], jvm=[home],
        of_servers=True,
    )  # fmt: skip
    assert "accessKey         : orders-app" in shown
    assert "create topic to" in made


async def is_admin(shop: Shop) -> bool:
    key, secret = APP
    async with AdminClient(shop.name_server, access_key=key, secret_key=secret) as admin:
        return "may administer" in (await admin.permissions.who_am_i(shop.broker)).power


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)
