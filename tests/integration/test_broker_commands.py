"""`bolide broker` and `bolide standalone` as they are installed."""

import asyncio
import os
import re
import socket
import urllib.request
from pathlib import Path

import pytest

from bolide.protocol import fastjson
from bolide.protocol.bodies.routes import TopicRoute
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.namesrv import RouteHeader
from bolide.protocol.refusals import NoPermission
from bolide.remoting.client import RemotingClient
from tests.support.aio import on_loop
from tests.support.broker import send_header
from tests.support.commands import Running, run
from tests.support.ports import free_port

CONF = Path(__file__).resolve().parents[2] / "conf"
SMALL = ("mappedFileSizeCommitLog=1048576", "maxHashSlotNum=1000", "maxIndexNum=4000")
HERE = ("bindAddress=127.0.0.1", "listenPort=0", "storePathRootDir=store", *SMALL)
NOT_TO_START = {
    "bolide.admin",
    "bolide.arrow",
    "bolide.bench",
    "bolide.cli.admin.commands",
    "bolide.cli.bench",
    "bolide.cli.pipeline",
    "bolide.cli.store",
    "bolide.client",
    "bolide.spark",
    "bolide.broker.filters.sql.nodes",
    "json",
    "lark",
    "logging.handlers",
    "rich",
    "tomllib",
}
"""Modules of other commands, and those that a broker needs for what it may never be asked."""

BOOT = r"The broker\[(\S+), 127\.0\.0\.1:(\d+)\] boot success\. serializeType=JSON"


def serving(started: list[Running], *words: str) -> Running:
    running = Running(*words)
    started.append(running)
    running.wait_for(BOOT)
    return running


def standalone(started: list[Running], *words: str) -> Running:
    ports = ("--namesrv-port", "0", "--broker-port", "0")
    return serving(started, "bolide", "standalone", "--host", "127.0.0.1", *ports, *SMALL, *words)


def printed(*words: str, **environment: str) -> dict[str, str]:
    """The settings that a printing option shows."""
    done = run("mqbroker", *words, **environment)
    assert (done.returncode, done.stderr) == (0, "")
    pairs = (line.split("=", 1) for line in done.stdout.splitlines() if re.match(r"[\w.]+=", line))
    return dict(pairs)


@pytest.mark.parametrize(
    ("command", "option"), [("mqbroker", "-p"), ("mqbroker", "-m"), ("mqnamesrv", "-p")]
)
def test_no_secret_is_printed(home: Path, command: str, option: str) -> None:
    (home / "server.conf").write_text(
        "tls.server.keyPassword=hush\ntls.client.keyPassword=hush\nsocksProxyConfig=hush\n"
        'initAuthenticationUser={"username":"boss","password":"hush"}\n'
        'innerClientAuthenticationCredentials={"accessKey":"a","secretKey":"hush"}\n'
    )
    done = run(command, option, "-c", "server.conf", BOLIDE_BROKER_TLS_KEY_PASSWORD="hush")
    assert done.returncode == 0
    assert "hush" not in done.stdout + done.stderr


@pytest.fixture
def showing_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each Python that is started prints the modules that it loads."""
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")


def loaded_by(server: Running) -> set[str]:
    return set(re.findall(r"^import time:.*\| +(\S+)$", server.output, re.MULTILINE))


# ---- a broker


@pytest.mark.usefixtures("showing_imports")
def test_it_starts_without_what_it_may_never_need(started: list[Running], home: Path) -> None:
    loaded = loaded_by(serving(started, "bolide", "broker", *HERE))
    assert "bolide.broker.server" in loaded
    assert not NOT_TO_START & loaded


def test_it_says_where_it_listens_and_what_an_answer_means_and_stops_when_told(
    started: list[Running], home: Path
) -> None:
    broker = serving(started, "mqbroker", "brokerName=broker-x", *HERE)
    name, port = broker.wait_for(BOOT).groups()
    assert name == "broker-x"
    for each in (int(port), int(port) - 2):
        socket.create_connection(("127.0.0.1", each)).close()
    metrics = broker.wait_for(r"Metrics at (http://\S+), readable from this machine only\.")[1]
    with urllib.request.urlopen(metrics, timeout=10) as reply:
        assert b'node_id="broker-x"' in reply.read()
    assert "in this machine's memory" in broker.output
    assert "flushDiskType=SYNC_FLUSH" in broker.output
    assert broker.stop() == 0
    assert broker.output.endswith("The broker[broker-x] stopped.\n")


def test_it_stops_in_order_when_it_is_told_to_while_it_starts(
    started: list[Running], home: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:  # a NameServer that never answers
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        broker = Running("mqbroker", *HERE, "-n", address)
        started.append(broker)
        mute.settimeout(20)
        connection, _ = mute.accept()
        with connection:
            assert broker.stop() == 0
    assert not Path("store", "abort").exists()
    assert "boot success" not in broker.output
    assert broker.output.endswith("stopped.\n")


def test_with_sync_flush_an_answer_means_the_disk(started: list[Running], home: Path) -> None:
    broker = serving(started, "bolide", "broker", "flushDiskType=SYNC_FLUSH", *HERE)
    assert "An acknowledged message is on this disk" in broker.output


def test_the_printed_settings_are_a_file_that_it_reads(home: Path) -> None:
    first = printed("-p", "listenPort=12345", "fileReservedTime=48")
    assert (first["listenPort"], first["fileReservedTime"]) == ("12345", "48")
    (home / "broker.conf").write_text("".join(f"{k}={v}\n" for k, v in first.items() if v))
    assert printed("-p", "-c", "broker.conf") == first


def test_the_important_settings_are_few(home: Path) -> None:
    found = printed("-m", "-n", "127.0.0.1:1;127.0.0.1:2")
    assert found["namesrvAddr"] == "127.0.0.1:1;127.0.0.1:2"
    assert {"brokerName", "flushDiskType", "storePathRootDir"} <= found.keys()
    assert len(found) < 20


def test_name_servers_come_from_the_environment_too(home: Path) -> None:
    assert printed("-m", NAMESRV_ADDR="127.0.0.1:3")["namesrvAddr"] == "127.0.0.1:3"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("listenPort=70000",), "listenPort"),
        (("flushDiskType=LATER",), "flushDiskType"),
        (("brokerId=1",), "brokerId=1"),
        (("--strict", "listnPort=1"), "listnPort"),
        (("-c", "no-such.conf"), "no-such.conf"),
        (("colour",), "key=value"),
    ],
)
def test_a_mistake_is_told_in_one_line(home: Path, words: tuple[str, ...], reason: str) -> None:
    done = run("mqbroker", *words)
    assert done.returncode == 3
    assert reason in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_port_that_is_taken_is_named(home: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        done = run("mqbroker", *HERE, f"listenPort={port}")
    assert done.returncode == 3
    assert str(port) in done.stderr


def test_a_store_in_use_is_refused(started: list[Running], home: Path) -> None:
    serving(started, "mqbroker", *HERE)
    done = run("mqbroker", *HERE)
    assert done.returncode == 3
    assert "another broker has this store open" in done.stderr


SAMPLES = sorted(path.relative_to(CONF).as_posix() for path in CONF.rglob("*.*"))
BROKER_SAMPLES = [each for each in SAMPLES if not each.startswith(("controller/", "systemd/"))]


@pytest.mark.parametrize("sample", BROKER_SAMPLES)
def test_every_sample_configuration_starts(started: list[Running], home: Path, sample: str) -> None:
    broker = serving(started, "bolide", "broker", "--strict", "-c", str(CONF / sample), *HERE)
    assert "WARN" not in broker.output
    assert broker.stop() == 0


# ---- all in one


@pytest.mark.usefixtures("showing_imports")
def test_standalone_starts_without_what_it_may_never_need(
    started: list[Running], home: Path
) -> None:
    loaded = loaded_by(standalone(started))
    assert {"bolide.broker.server", "bolide.namesrv.server"} <= loaded
    assert not NOT_TO_START & loaded


def test_standalone_starts_quickly_and_is_light(started: list[Running], home: Path) -> None:
    cluster = standalone(started)
    process = Path(f"/proc/{cluster.process.pid}")
    user, system = process.joinpath("stat").read_text().rpartition(")")[2].split()[11:13]
    # Its own time: what others do on the machine meanwhile does not count.
    assert (int(user) + int(system)) / os.sysconf("SC_CLK_TCK") < 2
    found = re.search(r"RssAnon:\s+(\d+) kB", process.joinpath("status").read_text())
    assert found is not None
    assert int(found[1]) < 100 * 1024
    assert cluster.stop() == 0
    assert cluster.output.endswith("All stopped.\n")
    assert (home / "data" / "store" / "config" / "topics.json").exists()


@on_loop
async def test_the_broker_of_standalone_registers_with_its_name_server(
    started: list[Running], home: Path
) -> None:
    cluster = standalone(started)
    address = cluster.wait_for(r"Name Server boot success.* address (\S+)")[1]
    async with RemotingClient() as client:
        answer = await client.call(
            address, RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader(topic="TBW102")
        )
    route = fastjson.decode(answer.body, TopicRoute)
    assert [broker.broker_name for broker in route.broker_datas] == ["broker-a"]


def test_standalone_runs_a_controller_if_told_to(started: list[Running], home: Path) -> None:
    port = free_port((100,))
    cluster = standalone(
        started,
        "enableControllerInNamesrv=true", f"controllerDLegerPeers=n0-127.0.0.1:{port}",
        "enableControllerMode=true", f"controllerAddr=127.0.0.1:{port}",
    )  # fmt: skip
    cluster.wait_for(rf"Controller boot success.*:{port}")
    cluster.wait_for("this broker is master in epoch 1")
    assert "unknown key" not in cluster.output
    assert cluster.stop() == 0
    assert (home / "data" / "controller").is_dir()


def test_standalone_reads_the_settings_that_were_changed_at_run_time(
    started: list[Running], home: Path
) -> None:
    names, store = home / "data" / "namesrv", home / "data" / "store" / "config"
    for directory in (names, store):
        directory.mkdir(parents=True)
    (names / "namesrv.properties").write_text("listnPort=1\n")
    (store / "broker.properties").write_text("fileReservedTyme=1\n")
    cluster = standalone(started)
    cluster.wait_for("unknown key listnPort")
    cluster.wait_for("unknown key fileReservedTyme")


@pytest.mark.parametrize("word", ["listenPort=1", "storePathRootDir=x"])
def test_what_has_an_option_of_its_own_is_refused_as_a_setting(home: Path, word: str) -> None:
    done = run("bolide", "standalone", word)
    assert done.returncode == 3
    assert word.partition("=")[0] in done.stderr


# ---- hooks

HOOK = """
from bolide.protocol.refusals import NoPermission


class NoSpam:
    def before_send(self, peer, header, body):
        if b"spam" in body:
            raise NoPermission("no spam, please")

    def after_send(self, peer, header, reply):
        print("answered", reply.code, flush=True)
"""


@on_loop
async def test_a_hook_of_the_configuration_sees_every_send(
    started: list[Running], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "operators_hooks.py").write_text(HOOK)
    monkeypatch.setenv("PYTHONPATH", str(home))
    broker = await asyncio.to_thread(
        serving, started, "bolide", "broker", "brokerHooks=operators_hooks:NoSpam", *HERE
    )
    address = f"127.0.0.1:{broker.wait_for(BOOT).group(2)}"
    async with RemotingClient() as client:

        async def send(body: bytes) -> None:
            header = send_header("T", properties={"UNIQ_KEY": "id"})
            await client.call(address, RequestCode.SEND_MESSAGE, header, body=body)

        await send(b"a letter")
        with pytest.raises(NoPermission, match="no spam, please"):
            await send(b"spam")
        with pytest.raises(NoPermission, match="black list: brokerHooks"):
            await client.call(
                address, RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerHooks=evil:Hook\n"
            )
    await asyncio.to_thread(broker.wait_for, r"answered 0\n(.*\n)*answered 16\n")


def test_a_hook_that_cannot_be_loaded_stops_the_start(home: Path) -> None:
    done = run("bolide", "broker", "brokerHooks=no_such_module:Hook", *HERE)
    assert done.returncode != 0
    assert "brokerHooks: no_such_module:Hook cannot be loaded" in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
