"""`bolide export` and `bolide apply` against brokers of ours."""

import asyncio
import json
import os
import stat
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import yaml

from bolide import Message, MessageQueue, Producer
from bolide.admin import AdminClient
from bolide.cli.admin import confirmation
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode
from bolide.remoting.client import RemotingClient
from tests.support.access import FIRST_USER, INNER, ROOT, ROOT_PASSWORD
from tests.support.aio import on_loop
from tests.support.brokers import broker_header, plain, topics_body
from tests.support.command_cluster import Cluster, cluster

Act = Callable[[], Coroutine[Any, Any, object]]
ACCESS: dict[str, Any] = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "init_authentication_user": FIRST_USER,
    "inner_client_authentication_credentials": INNER,
}
PLAIN_ACL = """
accounts:
- accessKey: administrator
  secretKey: secret-of-admin
  admin: true
- accessKey: orders-app
  secretKey: secret-of-orders
  topicPerms: [Orders=PUB|SUB]
"""
ROOT_OF_PROJECT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT_OF_PROJECT / "examples" / "cluster.yml"
PAGE = ROOT_OF_PROJECT / "docs" / "how-to" / "declare-a-cluster.md"
DOCUMENT = """\
version: 1
topics:
  Orders:
    writeQueueNums: 4
    attributes: {message.type: FIFO}
    overrides: {broker-b: {writeQueueNums: 2}}
  Local: {onlyOn: [broker-b], order: true}
groups:
  billing: {retryMaxTimes: 5}
"""
USERS = """\
users:
  shop:
    password: ${SHOP_PASSWORD}
    policies:
      - {resource: "Topic:Orders", actions: [Pub], decision: Allow, sourceIps: [10.0.0.0/8]}
"""


@on_loop
async def test_a_cluster_becomes_what_the_file_says_and_says_so_when_it_is(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a", "broker-b", **ACCESS) as found:
        whole = DOCUMENT + USERS
        password = {"SHOP_PASSWORD": "shop-secret"}

        missing = await found.apply(whole, code=1)
        assert "cluster.yml:12: the new user shop needs its password: set SHOP_PASSWORD" in missing
        refused = await found.apply(whole, code=1, env=password)
        assert "+ topic Local (broker-b)" in refused
        assert "nothing was changed" in refused
        assert "4 to create" in await found.apply(whole, "--dry-run", env=password)
        rows = json.loads(await found.apply(whole, "--check", "--json", code=1, env=password))
        assert {
            "action": "create", "kind": "topic", "name": "Orders", "brokers": ["broker-b"],
            "field": "writeQueueNums", "old": None, "new": "2",
        } in rows["changes"]  # fmt: skip
        assert (await found.exported())["topics"] == {}

        done = await found.apply(whole, "--yes", env=password)
        assert "shop-secret" not in done
        assert done.splitlines()[-1] == "7 changes are made"
        assert "nothing to do" in await found.apply(whole)
        assert "nothing to do" in await found.apply(whole, "--check")

        async with AdminClient(
            found.name_server, access_key="shop", secret_key="shop-secret"
        ) as shop:
            assert (await shop.permissions.who_am_i(found.brokers[1].address)).access_key == "shop"
        async with AdminClient(
            found.name_server, access_key=ROOT, secret_key=ROOT_PASSWORD
        ) as admin:
            assert await admin.name_servers.find_order_conf("Local") == "broker-b:8"
            extra = TopicConfig(topic_name="Extra", read_queue_nums=1, write_queue_nums=1)
            await admin.topics.update(found.brokers[0].address, extra)

        await _check_export(found)

        fewer = whole.replace("writeQueueNums: 4", "writeQueueNums: 3").replace("[Pub]", "[Sub]")
        await _check_what_is_lost(found)
        pruned = await found.apply(fewer, "--prune", "--yes")
        assert "- topic Extra (broker-a), with its messages" in pruned
        assert "policies[Topic:Orders]: Allow Pub from 10.0.0.0/8 -> Allow Sub from" in pruned
        assert "topic Orders: writeQueueNums shrinks from 4 to 3 at broker-a" in pruned
        assert "user root is not deleted" in pruned
        assert set((await found.exported("--only", "topics"))["topics"]) == {"Orders", "Local"}


async def _check_what_is_lost(found: Cluster) -> None:
    """Of a topic at one of the brokers, which a group has begun to read, and of that group."""
    at = found.brokers[0].address
    async with (
        AdminClient(found.name_server, access_key=ROOT, secret_key=ROOT_PASSWORD) as admin,
        Producer(
            "shop", name_server=found.name_server, access_key=ROOT, secret_key=ROOT_PASSWORD
        ) as producer,
    ):
        for number in range(3):
            await producer.send(Message("Extra", b"%d" % number))
        await admin.offsets.commit(at, "billing", MessageQueue("Extra", "broker-a", 0), 1)
    nothing = "{version: 1, topics: {}, groups: {}}"
    shown = await found.apply(nothing, "--prune", "--dry-run")
    assert "- topic Extra (broker-a), with its messages\n    3 messages in 1 queues, last" in shown
    assert "    group billing: backlog 2, 0 members online\n" in shown
    assert "- topic Local (broker-b), with its messages\n    0 messages in 8 queues, last" in shown
    assert "- group billing (broker-b, broker-a)\n    0 members online\n    backlog 2 of" in shown
    assert "none of the topics that exist" in shown
    file = str(found.directory / "cluster.yml")
    checked = await found.run("apply", file, "--prune", "--check", "--json", code=1, only="stdout")
    rows = json.loads(checked)["changes"]
    (extra,) = (row for row in rows if row["name"] == "Extra")
    assert (extra["messages"], extra["groups"][0]["backlog"]) == (3, 2)


async def _check_export(found: Cluster) -> None:
    file = found.directory / "out.yml"
    printed = await found.run("export", "-o", str(file))
    assert f"{file} is written: 3 topics, 1 groups, 2 users" in printed
    assert "topic Extra differs among brokers: not at broker-b" in printed
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    written = yaml.safe_load(file.read_text())
    assert written["topics"]["Orders"]["overrides"] == {
        "broker-b": {"readQueueNums": 2, "writeQueueNums": 2}
    }
    assert written["topics"]["Local"]["onlyOn"] == ["broker-b"]
    assert written["users"]["shop"]["password"] == "${PASSWORD_SHOP}"
    assert "accounts" not in written
    assert "nothing to do" in await found.run("apply", str(file), "--prune")
    await _check_where_an_export_goes(found, file.read_text())


async def _check_where_an_export_goes(found: Cluster, text: str) -> None:
    directory = found.directory / "exports"
    directory.mkdir()
    (target := directory / "target.yml").write_text("old")
    (link := directory / "link.yml").symlink_to(target)
    (other := directory / "link.yml.tmp").write_text("of somebody")
    await found.run("export", "-o", str(link))
    assert link.readlink() == target
    assert target.read_text() == text
    assert other.read_text() == "of somebody"
    assert {each.name for each in directory.iterdir()} == {"target.yml", "link.yml", other.name}

    os.mkfifo(pipe := directory / "pipe")
    reading = asyncio.create_task(asyncio.to_thread(pipe.read_text))
    await found.run("export", "-o", str(pipe))
    assert await asyncio.wait_for(reading, 10) == text
    assert pipe.is_fifo()
    assert await found.run("export", "-o", "-", only="stdout") == text
    unwritten = directory / "unwritten.json"
    assert "give either" in await found.run("export", "--json", "-o", str(unwritten), code=2)
    assert "Is a directory" in await found.run("export", "-o", str(directory), code=2)


@pytest.fixture
def at_the_prompt(monkeypatch: pytest.MonkeyPatch) -> Callable[[Act], None]:
    """Has something happen while the question is on the screen; then the answer is yes."""

    def happen(act: Act) -> None:
        loop = asyncio.get_running_loop()

        def answer(_question: str) -> bool:
            asyncio.run_coroutine_threadsafe(act(), loop).result(10)
            return True

        monkeypatch.setattr(confirmation, "_is_agreed", answer)

    return happen


@on_loop
async def test_what_changed_at_the_prompt_is_not_set_back(
    tmp_path: Path, at_the_prompt: Callable[[Act], None]
) -> None:
    async with cluster(tmp_path, "broker-a") as found, AdminClient(found.name_server) as admin:
        address = found.brokers[0].address

        async def have(queues: int, perm: int) -> None:
            wanted = TopicConfig(
                topic_name="Orders", read_queue_nums=queues, write_queue_nums=queues, perm=perm
            )
            await admin.topics.update(address, wanted)

        await have(4, 6)
        file = tmp_path / "c.yml"
        file.write_text("{version: 1, topics: {Orders: {perm: 4}}}")
        apply = ("apply", str(file))
        at_the_prompt(lambda: have(16, 6))
        done = await found.run(*apply)
        assert "1 change is made" in done
        now = await admin.topics.config(address, "Orders")
        assert (now.write_queue_nums, now.read_queue_nums, now.perm) == (16, 16, 4)

        file.write_text("{version: 1, topics: {Orders: {perm: 6}}}")
        at_the_prompt(lambda: have(16, 2))
        stopped = await found.run(*apply, code=1)
        assert "perm: 4 -> 6" in stopped
        assert "perm: 2 -> 6" in stopped
        assert "the cluster changed meanwhile" in stopped
        assert (await admin.topics.config(address, "Orders")).perm == 2


@on_loop
async def test_the_order_of_other_brokers_stays(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, "broker-a", "broker-b") as found,
        AdminClient(found.name_server) as admin,
    ):
        text = "version: 1\ntopics:\n  Orders: {order: true}\n  Bills: {order: true}\n"
        await found.apply(text, "--yes")
        await admin.name_servers.add_order_conf("Orders", "b2", 8)  # of another cluster

        mixed = text.replace("{order: true}", "{overrides: {broker-a: {order: false}}}", 1)
        printed = await found.apply(mixed, "--yes", code=1)
        assert "order cannot be false at broker-a and true at broker-b" in printed
        assert "these differences remain" in printed  # brokers have the order of the NameServer
        assert await admin.name_servers.find_order_conf("Orders") == "broker-b:8;b2:8"
        assert await admin.name_servers.find_order_conf("Bills") == "broker-a:8;broker-b:8"
        await found.apply("{version: 1, topics: {Bills: {order: false}}}", "--prune", "--yes")
        assert await admin.name_servers.find_order_conf("Orders") == "b2:8"
        assert await admin.name_servers.find_order_conf("Bills") is None


@on_loop
async def test_the_example_is_applied_as_the_documentation_shows_it(tmp_path: Path) -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    assert f"```yaml\n{text}```\n" in PAGE.read_text(encoding="utf-8")
    async with cluster(tmp_path, "broker-a") as found:
        assert "5 to create" in await found.apply(text, "--yes")
        assert "nothing to do" in await found.apply(text, "--prune")


@on_loop
async def test_accounts_of_plain_acl_are_declared_without_their_secrets(tmp_path: Path) -> None:
    home = tmp_path / "home" / "conf"
    home.mkdir(parents=True)
    (home / "plain_acl.yml").write_text(PLAIN_ACL)
    (home / "plain_acl.yml").chmod(0o600)
    access: dict[str, Any] = {"acl_enable": True, "rocketmq_home": str(home.parent)}
    async with cluster(tmp_path, "broker-a", **access) as found:
        found.keys.update(BOLIDE_ACCESS_KEY="administrator", BOLIDE_SECRET_KEY="secret-of-admin")

        text = await found.run("export", "--only", "accounts")
        assert "secret-of" not in text
        assert "nothing to do" in await found.apply(text)
        changed = text.replace("Orders=PUB|SUB", "Orders=SUB") + (
            "  other-app: {secretKey: '${OTHER}', groupPerms: [g=SUB]}\n"
        )
        done = await found.apply(changed, "--yes", env={"OTHER": "secret-of-other"})
        assert "topicPerms[Orders]: PUB|SUB -> SUB" in done
        assert "+ account other-app (broker-a)" in done
        assert "nothing to do" in await found.apply(changed)
        pruned = await found.apply("{version: 1, accounts: {}}", "--prune", "--yes")
        assert "account administrator is not deleted: this command signs with it" in pruned
        assert [*(await found.exported("--only", "accounts"))["accounts"]] == ["administrator"]


@on_loop
async def test_slaves_get_users_of_their_own_and_the_rest_from_their_master(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a", slave=True, **ACCESS) as found:
        printed = await found.apply(
            DOCUMENT.replace("broker-b", "broker-a") + USERS, "--yes", env={"SHOP_PASSWORD": "p"}
        )
        assert "+ topic Orders (broker-a)\n" in printed
        assert "+ user shop (broker-a, broker-a (slave 1))\n" in printed
        assert "nothing to do" in await found.run("apply", str(tmp_path / "cluster.yml"), "--prune")
        users = (await found.exported("--only", "users"))["users"]
        assert [*users] == ["root", "shop"]
        async with AdminClient(
            found.name_server, access_key=ROOT, secret_key=ROOT_PASSWORD
        ) as admin:
            await admin.users.update(found.brokers[1].address, "shop", user_status="disable")
        file = str(tmp_path / "users.yml")
        differing = await found.run("export", "--only", "users", "-o", file)
        assert "user shop differs among brokers: status is enable at broker-a and" in differing
        again = await found.run("apply", file, "--yes")
        assert "~ user shop (broker-a (slave 1))\n    status: disable -> enable" in again

        last = "version: 1\nusers:\n  root: {status: disable, policies: []}\n  shop: {type: Super}"
        refused = await found.apply(last, "--yes", code=1)
        assert "cluster.yml:3: user root signs this command, and is to be disabled" in refused
        done = await found.apply(last, "--allow-lock-out", "--yes")
        assert done.index("~ user shop") < done.index("~ user root")
        assert "4 changes are made" in done
        assert "not compared again: who signed may not" in done


@on_loop
async def test_what_fails_says_what_was_done_and_how_to_go_on(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a") as found:
        # Our broker refuses light topics, RocketMQ's does not: only the broker can tell.
        text = "version: 1\ntopics:\n  A:\n  B: {attributes: {message.type: LITE}}\n  C:\n"
        stopped = await found.apply(text, "--yes", code=1)
        assert "topic B at broker-a" in stopped
        assert "1 of 3 changes are made, 1 failed, 1 were not tried; apply again" in stopped
        went_on = await found.apply(text, "--yes", "--keep-going", code=1)
        assert "1 of 2 changes are made, 1 failed, 0 were not tried" in went_on
        assert set((await found.exported())["topics"]) == {"A", "C"}

        refused = await found.apply("version: 1\nusers: {}\naccounts: {}", code=1)
        assert "broker-a has no users: this broker has no users and policies" in refused
        assert "broker-a has no accounts: it does not use ACL 1.0" in refused
        assert "no broker has users" in await found.run("export", "--only", "users", code=1)
        assert "one of topics, groups" in await found.run("export", "--only", "topic", code=2)
        assert "knows no cluster 'None'" in await found.run("export", "-c", "None", code=1)
        assert "needs --yes" in await found.run("apply", "-", code=2)
        assert "No such file" in await found.run("apply", str(tmp_path / "nothing.yml"), code=2)
        bad = await found.apply("version: 1\ntopics:\n  A: {prem: 6}", code=2)
        assert "cluster.yml:3: topic A: unknown field prem, did you mean perm?" in bad

        lost = Cluster("127.0.0.1:1", [], tmp_path)
        assert "cannot connect to 127.0.0.1:1" in await lost.apply(text, code=3)
        away = broker_header("127.0.0.1:1", name="broker-z", cluster="DefaultCluster")
        async with RemotingClient() as client:
            body = plain(topics_body("Haunted"))
            await client.call(found.name_server, RequestCode.REGISTER_BROKER, away, body=body)
            printed = await found.apply("version: 1\ntopics: {D: }", "--yes", code=3)
            assert "cannot connect to 127.0.0.1:1" in printed
            assert "cannot connect to 127.0.0.1:1" in await found.run("export", code=3)
        assert set((await found.exported())["topics"]) == {"A", "C"}
