"""`bolide config` against a broker of ours, and without one."""

import json
from pathlib import Path

from typer.testing import CliRunner

from bolide.cli import app
from bolide.protocol.codes import RequestCode
from bolide.remoting.client import RemotingClient
from tests.support.aio import on_loop
from tests.support.brokers import broker_header, plain, topics_body
from tests.support.command_cluster import cluster


def run(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["config", *words], env={"NAMESRV_ADDR": None, "COLUMNS": "200"})
    assert done.exit_code == code, (words, done.output, done.exception)
    return done.output


def test_a_setting_is_explained_without_a_cluster() -> None:
    assert run("explain", "fileReservedTime").splitlines() == [
        "fileReservedTime (store, in broker.conf)",
        "  meaning       Hours that a file is retained after its last message.",
        "  default       72 hours",
        "  values        0 to 2147483647",
        "  changes       at once, by a request",
        "  environment   BOLIDE_BROKER_FILE_RESERVED_HOURS",
    ]
    several = run("explain", "MAPEDFILESIZECOMMITLOG", "brokerFastFailureEnable", "workers")
    assert "also spelt    mapedFileSizeCommitLog" in several
    assert "no effect     requests do not queue for threads" in several
    assert "default       true, in RocketMQ" in several
    assert "changes       only in the file" in several
    assert "RocketMQ      has no such setting" in several
    titles = [line for line in run("explain", "listenPort").splitlines() if line[:1] != " "]
    assert [title for title in titles if title] == [
        "listenPort (broker, in broker.conf)",
        "listenPort (namesrv, in namesrv.conf)",
        "listenPort (controller, in controller.conf)",
    ]
    assert json.loads(run("explain", "listenPort", "--server", "namesrv", "--json"))[0] == {
        "key": "listenPort", "server": "namesrv",
        "meaning": "Port to listen on; 0 selects a free port.",
        "default": "9876", "unit": "", "values": "0 to 65535", "inEffect": "fixed", "noEffect": "",
        "aliases": "", "variable": "BOLIDE_NAMESRV_LISTEN_PORT", "ours": False,
        "place": None, "address": None, "value": None, "differs": False,
    }  # fmt: skip


def test_a_key_that_is_none_is_refused_with_the_nearest_ones() -> None:
    assert "did you mean fileReservedTime" in run("explain", "fileReservdTime", code=2)
    assert "not a setting of the namesrv" in run(
        "explain", "fileReservedTime", "--server", "namesrv", code=2
    )
    assert "--changed needs" in run("list", "--changed", code=2)
    assert "-c needs" in run("explain", "listenPort", "-c", "DefaultCluster", code=2)


@on_loop
async def test_values_are_those_of_each_server_and_differ_or_not(tmp_path: Path) -> None:
    async with cluster(tmp_path, "broker-a", "broker-b") as found:
        await found.run(
            "admin", "updateBrokerConfig", "-b", found.brokers[1].address,
            "-k", "fileReservedTime", "-v", "48",
        )  # fmt: skip
        printed = await found.run("config", "explain", "fileReservedTime", "maxPullCount")
        assert f"value         72 hours at broker-a {found.brokers[0].address}\n" in printed
        assert f"48 hours at broker-b {found.brokers[1].address}  (not the default)" in printed
        assert "no server of this cluster tells one: Bolide's servers list" in printed
        rows = json.loads(await found.run("config", "list", "--changed", "--json"))
        assert [
            (row["place"], row["value"]) for row in rows if row["key"] == "fileReservedTime"
        ] == [("broker-b", "48")]
        assert all(row["differs"] for row in rows)
        table = await found.run("config", "list", "--server", "namesrv")
        assert [line.split()[:3] for line in table.splitlines() if line.startswith("listenP")] == [
            ["listenPort", "namesrv", "9876"]
        ]

        away = broker_header("127.0.0.1:1", name="broker-z", cluster="DefaultCluster")
        async with RemotingClient() as client:
            body = plain(topics_body("Haunted"))
            await client.call(found.name_server, RequestCode.REGISTER_BROKER, away, body=body)
            partly = await found.run("config", "explain", "fileReservedTime", code=3)
        assert "cannot connect to 127.0.0.1:1" in partly
        assert "48 hours at broker-b" in partly
        assert "knows no cluster" in await found.run("config", "list", "-c", "None", code=1)
