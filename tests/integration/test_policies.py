"""A NameServer and a broker with ACL 2.0: who may send, receive and administer."""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bolide.admin import AdminClient
from bolide.admin.access import acl_of
from bolide.broker.server import Broker
from bolide.cli import app
from bolide.client.consumer.push.push_consumer import PushConsumer
from bolide.client.errors import SendFailed
from bolide.client.producer.producer import Producer
from bolide.model.message import Message, StoredMessage
from bolide.namesrv.server import NameServer
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import Frame
from bolide.protocol.framing import encode_frame
from bolide.protocol.refusals import NoPermission
from tests.support.access import FIRST_USER, INNER, ROOT, entry, secret_of, signed
from tests.support.aio import PATIENCE, on_loop
from tests.support.broker import configs_in, send_header
from tests.support.commands import Running
from tests.support.name_servers import config_in
from tests.support.wire import RawPeer

ACCESS: dict[str, Any] = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "init_authentication_user": FIRST_USER,
    "inner_client_authentication_credentials": INNER,
}


@dataclass(frozen=True)
class Guarded:
    name_server: str
    broker: str

    def admin(self, name: str = ROOT) -> AdminClient:
        return AdminClient(self.name_server, access_key=name, secret_key=secret_of(name))

    def keys(self, name: str) -> dict[str, Any]:
        return {
            "name_server": self.name_server,
            "access_key": name,
            "secret_key": secret_of(name),
        }


@asynccontextmanager
async def guarded(directory: Path, **settings: Any) -> AsyncIterator[Guarded]:
    """Both servers, with one directory of users, so that both know the same ones."""
    chosen = ACCESS | {"auth_config_path": directory / "auth"} | settings
    names = config_in(directory / "namesrv", **chosen)
    async with NameServer(names) as name_server:
        config, store = configs_in(directory, name_servers=(name_server.address,), **chosen)
        async with Broker(config, store) as broker:
            yield Guarded(name_server.address, broker.address)


async def give(cluster: Guarded, name: str, **entries: str) -> None:
    """Create a user who may do something with resources, such as Topic_orders="Pub"."""
    async with cluster.admin() as admin:
        await admin.users.create(cluster.broker, name, secret_of(name))
        for resource, actions in entries.items():
            text = resource.replace("__", "*").replace("_", ":", 1)
            acl = acl_of(f"User:{name}", "Custom", [entry(text, actions)])
            await admin.policies.create(cluster.broker, acl)


async def known(cluster: Guarded, name: str, resource: str = "", action: str = "Pub") -> None:
    """Wait until both servers have read a user, and what it may do, from the files."""
    async with cluster.admin(name) as admin, asyncio.timeout(PATIENCE):
        for address in (cluster.name_server, cluster.broker):
            while not await _knows(admin, address, resource, action):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def _knows(admin: AdminClient, address: str, resource: str, action: str) -> bool:
    try:
        if resource:
            return (await admin.permissions.can_i(address, resource, action)).allowed
        await admin.permissions.who_am_i(address)
    except NoPermission:
        return False
    return True


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at changed files without delay."""
    monkeypatch.setattr("bolide.auth.policies.metadata.CHECK_INTERVAL", 0.02)


@on_loop
async def test_a_broker_registers_with_its_credentials(tmp_path: Path) -> None:
    async with guarded(tmp_path) as cluster, cluster.admin() as admin:
        assert await admin.clusters.masters("DefaultCluster") == [cluster.broker]


@on_loop
async def test_a_broker_without_credentials_is_not_registered(tmp_path: Path) -> None:
    async with NameServer(config_in(tmp_path / "namesrv", **ACCESS)) as name_server:
        config, store = configs_in(tmp_path, name_servers=(name_server.address,))
        async with Broker(config, store), Guarded(name_server.address, "").admin() as admin:
            assert not (await admin.clusters.info()).cluster_addr_table


@on_loop
async def test_clients_send_and_receive_what_their_policies_allow(tmp_path: Path) -> None:
    received: asyncio.Queue[bytes] = asyncio.Queue()

    async def take(message: StoredMessage) -> None:
        received.put_nowait(message.body)

    async with guarded(tmp_path) as cluster:
        await give(cluster, "shop", Topic_orders="Pub")
        await give(cluster, "billing", Topic_orders="Sub", Group_billing="Sub")
        async with cluster.admin() as admin:
            await admin.topics.update(cluster.broker, TopicConfig(topic_name="orders"))
        await known(cluster, "shop", "Topic:orders")
        await known(cluster, "billing", "Group:billing", "Sub")
        async with (
            Producer("makers", **cluster.keys("shop")) as producer,
            PushConsumer("billing", consume_from="first", **cluster.keys("billing")) as consumer,
        ):
            await consumer.subscribe("orders", handler=take)
            await producer.send(Message("orders", b"one"))
            async with asyncio.timeout(PATIENCE):
                assert await received.get() == b"one"
            with pytest.raises(NoPermission, match="User:shop has no permission to access Topic:"):
                await producer.send(Message("payroll", b"two"))


@on_loop
async def test_a_withdrawn_permission_counts_at_once(tmp_path: Path) -> None:
    async with guarded(tmp_path) as cluster, cluster.admin() as admin:
        await give(cluster, "shop", Topic_orders="Pub")
        await admin.topics.update(cluster.broker, TopicConfig(topic_name="orders"))
        await known(cluster, "shop", "Topic:orders")
        async with Producer("makers", **cluster.keys("shop")) as producer:
            for _ in range(3):
                await producer.send(Message("orders", b"x"))
            await admin.users.update(cluster.broker, "shop", user_status="disable")
            with pytest.raises(SendFailed, match="User:shop is disabled"):
                await producer.send(Message("orders", b"x"))


PULL = {
    "consumerGroup": "bill", "topic": "orders", "queueId": "0", "queueOffset": "0",
    "maxMsgNums": "1", "sysFlag": "6", "commitOffset": "0", "suspendTimeoutMillis": "60000",
    "subscription": "*", "subVersion": "0",
}  # fmt: skip
POP = {
    "consumerGroup": "bill", "topic": "orders", "queueId": "-1", "maxMsgNums": "1",
    "invisibleTime": "60000", "pollTime": "60000", "bornTime": "0", "initMode": "0",
    "exp": "*", "expType": "TAG", "order": "false",
}  # fmt: skip
NOTICE = {
    "consumerGroup": "bill", "topic": "orders", "queueId": "-1", "pollTime": "60000",
    "bornTime": "0",
}  # fmt: skip


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (RequestCode.PULL_MESSAGE, PULL),
        (RequestCode.POP_MESSAGE, POP),
        (RequestCode.NOTIFICATION, NOTICE),
    ],
    ids=["pull", "pop", "notification"],
)
@on_loop
async def test_who_loses_a_permission_gets_nothing_through_a_request_that_waits(
    tmp_path: Path, code: RequestCode, fields: dict[str, str]
) -> None:
    async with guarded(tmp_path) as cluster, cluster.admin() as admin:
        await give(cluster, "bill", Topic_orders="Sub", Group_bill="Sub")
        await admin.topics.update(cluster.broker, TopicConfig(topic_name="orders"))
        async with (
            await RawPeer.connect(cluster.broker) as peer,
            Producer("makers", **cluster.keys(ROOT)) as producer,
        ):
            for _ in range(2):  # the second one may be served by a plan
                if code == RequestCode.PULL_MESSAGE:
                    quick = Frame(code=code, fields=fields | {"suspendTimeoutMillis": "1"})
                    await peer.send(encode_frame(signed(quick, "bill")))
                    await peer.frame()
            now = {"bornTime": str(int(time.time() * 1000))}
            request = Frame(code=code, fields=fields | now)
            await peer.send(encode_frame(signed(request, "bill")))
            await admin.users.update(cluster.broker, "bill", user_status="disable")
            await producer.send(Message("orders", b"x"))
            answer = await peer.frame()
            assert not answer.body
            assert (answer.fields or {}).get("hasMsg", "false") == "false"
            again = Frame(code=code, fields=dict(fields))
            await peer.send(encode_frame(signed(again, "bill")))
            assert (await peer.frame()).code == ResponseCode.NO_PERMISSION


@on_loop
async def test_a_signed_request_opens_the_connection_for_no_other(tmp_path: Path) -> None:
    """Whichever path serves it: each single request is checked."""
    fields = send_header("orders").to_fields()

    def request(name: str | None, secret: str | None = None) -> bytes:
        frame = Frame(code=RequestCode.SEND_MESSAGE, fields=dict(fields), body=b"x")
        return encode_frame(frame if name is None else signed(frame, name, secret))

    async with guarded(tmp_path) as cluster:
        await give(cluster, "shop", Topic_orders="Pub")
        await give(cluster, "other", Topic_else="Pub")
        async with await RawPeer.connect(cluster.broker) as peer:
            for _ in range(3):
                for name, secret, code in (
                    ("shop", None, ResponseCode.SUCCESS),
                    (None, None, ResponseCode.NO_PERMISSION),
                    ("shop", "wrong", ResponseCode.NO_PERMISSION),
                    ("other", None, ResponseCode.NO_PERMISSION),
                    ("ghost", None, ResponseCode.NO_PERMISSION),
                    (ROOT, None, ResponseCode.SUCCESS),
                ):
                    await peer.send(request(name, secret))
                    assert (await peer.frame()).code == code, name


@on_loop
async def test_nobody_reads_a_message_by_its_offset_alone(tmp_path: Path) -> None:
    async with guarded(tmp_path) as cluster:
        await give(cluster, "bill", Topic_orders="All", Group_bill="All")
        send = send_header("payroll").to_fields()

        async def answer(code: RequestCode, fields: dict[str, str], name: str) -> Frame:
            await peer.send(encode_frame(signed(Frame(code=code, fields=fields, body=b"x"), name)))
            return await peer.frame()

        async def code_of(code: RequestCode, fields: dict[str, str], name: str) -> int:
            return (await answer(code, fields, name)).code

        async with await RawPeer.connect(cluster.broker) as peer:
            sent = await answer(RequestCode.SEND_MESSAGE, dict(send), ROOT)
            assert sent.code == ResponseCode.SUCCESS
            offset = str(int((sent.fields or {})["msgId"][-16:], 16))
            view = {"topic": "orders", "offset": offset}
            back = {"group": "bill", "offset": offset, "delayLevel": "0", "originTopic": "orders"}
            for code, fields in (
                (RequestCode.VIEW_MESSAGE_BY_ID, view),
                (RequestCode.CONSUMER_SEND_MSG_BACK, back),
            ):
                assert await code_of(code, dict(fields), "bill") == ResponseCode.NO_PERMISSION
                assert await code_of(code, dict(fields), ROOT) == ResponseCode.SUCCESS


@on_loop
async def test_a_delayed_message_is_read_by_nobody_who_may_not_read_its_topic(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path) as cluster, cluster.admin() as admin:
        await admin.users.create(cluster.broker, "bill", secret_of("bill"))
        entries = [entry("Topic:*", "All"), entry("Topic:payroll", "All", "Deny")]
        for each in (*entries, entry("Group:*", "All")):
            await admin.policies.create(cluster.broker, acl_of("User:bill", "Custom", [each]))
        await give(cluster, "payer", Topic_payroll="All")
        send = send_header("payroll", properties="DELAY\x0118\x02").to_fields()

        async def code_of(code: RequestCode, fields: dict[str, str], name: str) -> int:
            await peer.send(encode_frame(signed(Frame(code=code, fields=fields, body=b"x"), name)))
            return (await peer.frame()).code

        async with await RawPeer.connect(cluster.broker) as peer:
            request = Frame(code=RequestCode.SEND_MESSAGE, fields=dict(send), body=b"x")
            await peer.send(encode_frame(signed(request, ROOT)))
            sent = await peer.frame()
            assert sent.code == ResponseCode.SUCCESS
            offset = str(int((sent.fields or {})["msgId"][-16:], 16))
            pull = {
                "consumerGroup": "bill", "topic": "SCHEDULE_TOPIC_XXXX", "queueId": "17",
                "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "4", "commitOffset": "0",
                "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
            }  # fmt: skip
            view = {"topic": "orders", "offset": offset}
            back = {"group": "bill", "offset": offset, "delayLevel": "0", "originTopic": "orders"}
            for code, fields in (
                (RequestCode.PULL_MESSAGE, pull),
                (RequestCode.VIEW_MESSAGE_BY_ID, view),
                (RequestCode.CONSUMER_SEND_MSG_BACK, back),
            ):
                assert await code_of(code, dict(fields), "bill") == ResponseCode.NO_PERMISSION
                assert await code_of(code, dict(fields), ROOT) == ResponseCode.SUCCESS
            own = {"topic": "payroll", "offset": offset}
            view_code = RequestCode.VIEW_MESSAGE_BY_ID
            assert await code_of(view_code, dict(own), "payer") == ResponseCode.SUCCESS
            assert await code_of(view_code, dict(own), "bill") == ResponseCode.NO_PERMISSION


@on_loop
async def test_brokers_sign_what_they_ask_of_each_other(tmp_path: Path) -> None:
    """The old part of a queue of a static topic is read through the broker that leads it now."""
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(NameServer(config_in(tmp_path / "ns", **ACCESS)))
        for name in ("broker-a", "broker-b"):
            config, store = configs_in(
                tmp_path / name, broker_name=name, name_servers=(names.address,), **ACCESS
            )
            broker = await stack.enter_async_context(Broker(config, store))
        cluster = Guarded(names.address, broker.address)
        admin = await stack.enter_async_context(cluster.admin())
        topics = admin.static_topics
        await topics.apply(await topics.plan_creation("Fixed", 1, ("broker-a",)))
        async with Producer("makers", **cluster.keys(ROOT)) as producer:
            await producer.send(Message("Fixed", b"old"))
        await topics.apply(await topics.plan_remapping("Fixed", ("broker-b",)))
        received: asyncio.Queue[bytes] = asyncio.Queue()

        async def take(message: StoredMessage) -> None:
            received.put_nowait(message.body)

        keys = cluster.keys(ROOT)
        async with PushConsumer("readers", consume_from="first", **keys) as consumer:
            await consumer.subscribe("Fixed", handler=take)
            async with asyncio.timeout(2 * PATIENCE):
                assert await received.get() == b"old"


@on_loop
async def test_users_and_policies_survive_a_restart(tmp_path: Path) -> None:
    async with guarded(tmp_path) as cluster:
        await give(cluster, "shop", Topic_orders="Pub")
    async with guarded(tmp_path) as cluster, cluster.admin("shop") as shop:
        found = await shop.permissions.can_i(cluster.broker, "Topic:orders", "Pub")
        assert found.allowed


@on_loop
async def test_a_name_server_has_users_of_its_own(tmp_path: Path) -> None:
    config = config_in(tmp_path / "namesrv", **ACCESS)
    async with NameServer(config) as name_server:
        users = config.kv_config_path.parent / "auth" / "users.json"
        names = json.loads(users.read_text())["users"]
        assert [each["username"] for each in names] == [ROOT]
        async with AdminClient(name_server.address) as nobody:
            with pytest.raises(NoPermission, match="username cannot be null"):
                await nobody.clusters.info()
        async with Guarded(name_server.address, "").admin() as admin:
            assert (await admin.permissions.who_am_i()).access_key == ROOT


@on_loop
async def test_who_may_update_one_cluster_takes_over_no_broker_of_another(tmp_path: Path) -> None:
    async with guarded(tmp_path) as cluster, cluster.admin() as admin:
        await give(cluster, "mallory", Cluster_other="Update")
        before = await admin.clusters.info()
        (name,) = before.cluster_addr_table["DefaultCluster"]

        async def answer(code: RequestCode, sender: str, **given: str) -> Frame:
            fields = {
                "brokerName": name, "brokerAddr": "192.0.2.1:1", "clusterName": "other",
                "haServerAddr": "192.0.2.1:2", "brokerId": "0", "compressed": "false",
                "bodyCrc32": "0",
            } | given  # fmt: skip
            await peer.send(encode_frame(signed(Frame(code=code, fields=fields), sender)))
            return await peer.frame()

        register, leave = RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER
        async with await RawPeer.connect(cluster.name_server) as peer, asyncio.timeout(PATIENCE):
            # Until the NameServer has read the file of policies.
            while (await answer(register, "mallory", brokerName="own")).code:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            refused = await answer(register, "mallory")
            assert refused.code == ResponseCode.NO_PERMISSION
            assert f"{name} belongs to cluster DefaultCluster, not to other" in (
                refused.remark or ""
            )
            refused = await answer(leave, "mallory", brokerAddr=cluster.broker)
            assert refused.code == ResponseCode.NO_PERMISSION
            after = await admin.clusters.info()
            assert after.broker_addr_table[name] == before.broker_addr_table[name]
            assert (await answer(leave, "mallory", brokerName="own")).code == ResponseCode.SUCCESS
            assert (await answer(register, ROOT, brokerId="7")).code == ResponseCode.SUCCESS


@on_loop
async def test_a_file_edited_by_hand_is_followed(tmp_path: Path) -> None:
    async with guarded(tmp_path) as cluster:
        file = tmp_path / "auth" / "users.json"
        users = json.loads(file.read_text())
        users["users"].append({"username": "shop", "password": secret_of("shop")})
        file.write_text(json.dumps(users))
        await known(cluster, "shop")
        file.write_text("{")
        async with cluster.admin("shop") as shop:
            assert (await shop.permissions.who_am_i(cluster.broker)).access_key == "shop"


# ---- the commands


SMALL = ("mappedFileSizeCommitLog=16777216", "maxHashSlotNum=1000", "maxIndexNum=4000")
WORDS = ("--namesrv-port", "0", "--broker-port", "0", "--host", "127.0.0.1")
SWITCHES = (
    "authenticationEnabled=true",
    "authorizationEnabled=true",
    f"initAuthenticationUser={FIRST_USER}",
)


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Commands"]:
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("BOLIDE_", "NAMESRV_"))]:
            patch.delenv(name)
        patch.setenv("HOME", str(home))
        running = Running(
            "bolide", "standalone", "--data", str(home / "data"), *WORDS, *SMALL, *SWITCHES
        )
        try:
            broker = running.wait_for(r"The broker\[\S+, (\S+)\] boot success")[1]
            name_server = running.wait_for(r"Name Server boot success.* address (\S+)")[1]
            yield Commands(name_server, broker)
        finally:
            running.stop()
            running.process.communicate()


@dataclass(frozen=True)
class Commands:
    name_server: str
    broker: str

    def __call__(
        self, *words: str, user: str | None = ROOT, code: int = 0, **environment: str
    ) -> str:
        """What a command prints on both streams, if it ends with that code."""
        keys = (
            {"BOLIDE_ACCESS_KEY": user, "BOLIDE_SECRET_KEY": secret_of(user)} if user else {}
        ) | environment
        done = CliRunner().invoke(app, ["admin", *words, "-n", self.name_server], env=keys)
        assert done.exit_code == code, (words, done.output, done.exception)
        return done.output

    def one(self, *words: str, **options: Any) -> str:
        """As above, of the one broker."""
        return self(*words, "-b", self.broker, **options)


def test_a_command_without_credentials_says_what_is_missing(commands: Commands) -> None:
    unsigned = commands("clusterList", user=None, code=1)
    assert "username cannot be null." in unsigned
    assert "set BOLIDE_ACCESS_KEY and BOLIDE_SECRET_KEY" in unsigned
    assert "User:ghost is not found." in commands("whoami", user="ghost", code=1)


def test_whoami_tells_the_user_and_its_power(commands: Commands) -> None:
    assert commands("whoami").startswith("root at 127.0.0.1:")
    assert "may do everything (ACL 2.0)" in commands.one("whoami")


def test_users_are_administered_by_commands(commands: Commands) -> None:
    made = commands(
        "createUser", "-c", "DefaultCluster", "-u", "anna", BOLIDE_USER_PASSWORD="anna-secret"
    )
    assert made == f"create user to {commands.broker} success.\n"
    assert "may do what its policies allow" in commands.one("whoami", user="anna")
    commands.one("createUser", "-u", "bert", "-p", "bert-secret", "-t", "Super")
    assert [line.split() for line in commands.one("listUser").splitlines()] == [
        ["#UserName", "#Password", "#UserType", "#UserStatus"],
        ["anna", "-", "Normal", "enable"],
        ["bert", "-", "Super", "enable"],
        ["root", "-", "Super", "enable"],
    ]
    commands.one("updateUser", "-u", "bert", "-s", "disable")
    assert json.loads(commands.one("getUser", "-u", "bert", "--json"))["userStatus"] == "disable"
    commands.one("updateUser", "-u", "anna", "--newPassword", BOLIDE_USER_PASSWORD="anna-2")
    assert "check signature failed." in commands.one("whoami", user="anna", code=1)
    for name in ("anna", "bert"):
        commands.one("deleteUser", "-u", name, "--yes")
    assert "there is no user anna" in commands.one("getUser", "-u", "anna", code=1)


def test_policies_are_administered_by_commands(commands: Commands) -> None:
    commands.one("createUser", "-u", "carl", "-p", "carl-secret")
    words = ("-s", "User:carl", "-r", "Topic:orders,Group:bill*", "-d", "Allow")
    commands.one("createAcl", *words, "-a", "Pub,Sub", "-i", "127.0.0.0/8")
    assert commands.one("can-i", "-r", "Topic:orders", "-a", "Pub", user="carl") == "yes\n"
    denied = commands.one("can-i", "-r", "Topic:other", "-a", "Pub", "-u", "carl", code=1)
    assert denied == "no: Pub on Topic:other: no matched policies.\n"
    far = ("can-i", "-r", "Topic:orders", "-a", "Pub", "-u", "carl", "-i", "10.0.0.1")
    commands.one(*far, code=1)
    commands.one("updateAcl", "-s", "User:carl", "-r", "Topic:orders", "-a", "Sub", "-d", "Deny")
    shown = commands.one("getAcl", "-s", "User:carl")
    assert [line.split() for line in shown.splitlines()[1:]] == [
        ["User:carl", "Custom", "Topic:orders", "Sub", "-", "Deny"],
        ["User:carl", "Custom", "Group:bill*", "Pub,Sub", "127.0.0.0/8", "Allow"],
    ]
    lost = ("deleteAcl", "-s", "User:carl", "-r", "Topic:orders")
    (entry,) = json.loads(commands.one(*lost, "--dry-run", "--json"))
    assert (entry["resource"], entry["actions"], entry["decision"]) == (
        "Topic:orders",
        ["Sub"],
        "Deny",
    )
    assert "Delete these policies of User:carl? [y/N]" in commands.one(*lost, code=1)
    whole = commands.one("deleteUser", "-u", "carl", "--dry-run")
    assert [line.split()[2] for line in whole.splitlines()[1:]] == ["Topic:orders", "Group:bill*"]
    commands.one(*lost, "--yes")
    assert "Topic:orders" not in commands.one("listAcl", "-s", "carl")
    for denied_words in (("printMsg", "-t", "orders"), ("listDeadLetters", "-g", "bills")):
        assert "User:carl" in commands(*denied_words, user="carl", code=1)
    commands.one("deleteUser", "-u", "carl", "--yes")


def test_an_export_is_applied_without_passwords_in_it(commands: Commands, tmp_path: Path) -> None:
    file = str(tmp_path / "access.yml")
    commands.one("createUser", "-u", "dora", "-p", "dora-secret")
    commands.one("createAcl", "-s", "User:dora", "-r", "Topic:x", "-a", "Pub", "-d", "Allow")
    commands.one("exportAcl", "-f", file)
    text = Path(file).read_text()
    assert "dora-secret" not in text
    assert "password: ${PASSWORD_DORA}" in text
    assert commands.one("applyAcl", "-f", file) == "nothing to change\n"
    commands.one("deleteUser", "-u", "dora", "--yes")
    assert "set PASSWORD_DORA" in commands.one("applyAcl", "-f", file, code=1)
    again = {"PASSWORD_DORA": "dora-secret"}
    planned = commands.one("applyAcl", "-f", file, "--dry-run", **again)
    assert planned.splitlines() == [
        "+ dora (Normal)",
        "+ dora: Allow Pub on Topic:x",
        "2 changes, none made: --dry-run",
    ]
    assert "there is no user dora" in commands.one("getUser", "-u", "dora", code=1)
    commands.one("applyAcl", "-f", file, **again)
    assert commands.one("can-i", "-r", "Topic:x", "-a", "Pub", user="dora") == "yes\n"
    commands.one("deleteUser", "-u", "dora", "--yes")


def test_a_file_written_by_hand_is_applied_once(commands: Commands, tmp_path: Path) -> None:
    file = tmp_path / "access.yml"
    file.write_text(
        "users:\n"
        "  fred:\n"
        "    password: ${FRED}\n"
        "    status: Disable\n"
        "    policies:\n"
        '      - {resource: "topic:Payroll", actions: sub, decision: allow}\n'
        '      - {resource: "Group:a*b*", actions: [All], decision: deny, type: default}\n'
    )
    words = ("applyAcl", "-f", str(file))
    commands.one(*words, FRED="fred-secret")
    assert commands.one(*words) == "nothing to change\n"
    assert "User:fred is disabled." in commands.one("whoami", user="fred", code=1)
    shown = commands.one("getAcl", "-s", "User:fred")
    assert [line.split() for line in shown.splitlines()[1:]] == [
        ["User:fred", "Custom", "Topic:Payroll", "Sub", "-", "Allow"],
        ["User:fred", "Default", "Group:a*", "All", "-", "Deny"],
    ]
    commands.one("deleteUser", "-u", "fred", "--yes")


def test_a_left_over_variable_changes_no_password(commands: Commands) -> None:
    commands.one("createUser", "-u", "gina", "-p", "gina-secret")
    commands.one("updateUser", "-u", "gina", "-s", "enable", BOLIDE_USER_PASSWORD="other")
    assert "gina at " in commands.one("whoami", user="gina")
    refused = commands.one("updateUser", "-u", "gina", code=2, BOLIDE_USER_PASSWORD="other")
    assert "--newPassword" in refused
    commands.one("deleteUser", "-u", "gina", "--yes")


@pytest.fixture
def other_broker(commands: Commands, tmp_path: Path) -> Iterator[str]:
    """Another broker of the same cluster, with users of its own."""
    running = Running(
        "bolide", "broker", "listenPort=0", "bindAddress=127.0.0.1", "brokerIP1=127.0.0.1",
        "brokerName=other", f"namesrvAddr={commands.name_server}",
        f"storePathRootDir={tmp_path / 'store'}", *SMALL, *SWITCHES,
        f"innerClientAuthenticationCredentials={INNER}",
    )  # fmt: skip
    try:
        yield running.wait_for(r"The broker\[\S+, (\S+)\] boot success")[1]
    finally:
        running.stop()
        running.process.communicate()


def test_copies_need_a_broker_that_tells_passwords(commands: Commands, other_broker: str) -> None:
    words = ("-f", commands.broker, "-t", other_broker)
    commands.one("createUser", "-u", "emil", "-p", "emil-secret")
    commands.one("createAcl", "-s", "User:emil", "-r", "Topic:x", "-a", "Pub", "-d", "Allow")
    refused = commands("copyUser", *words, code=1)
    assert f"copy user of root from {commands.broker} to {other_broker} success." in refused
    assert f"emil is not copied: {commands.broker} does not tell its password" in refused
    assert "there is no user emil" in commands("getUser", "-u", "emil", "-b", other_broker, code=1)

    commands("createUser", "-u", "emil", "-p", "another-secret", "-b", other_broker)
    commands.one("updateUser", "-u", "emil", "-s", "disable")
    assert "copy user of emil" in commands("copyUser", *words)
    assert "disable" in commands("getUser", "-u", "emil", "-b", other_broker)
    assert "copy acl of User:emil" in commands("copyAcl", *words, "-s", "User:emil")
    assert "Topic:x" in commands("getAcl", "-s", "User:emil", "-b", other_broker)
    commands.one("deleteUser", "-u", "emil", "--yes")
