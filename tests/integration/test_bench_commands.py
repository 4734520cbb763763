"""`bolide bench` as it is installed, against a cluster of one process."""

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Running, run

SMALL = ("mappedFileSizeCommitLog=4194304", "maxHashSlotNum=1000", "maxIndexNum=4000")
PORTS = ("--namesrv-port", "0", "--broker-port", "0")
PERCENTILES = {"mean", "p50", "p90", "p99", "p99.9", "max"}


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data = tmp_path_factory.mktemp("data")
    words = ("bolide", "standalone", "--host", "127.0.0.1", "--data", str(data))
    cluster = Running(*words, *PORTS, *SMALL)
    try:
        yield cluster.wait_for(r"name server is (127\.0\.0\.1:\d+)")[1]
    finally:
        cluster.stop()
        cluster.process.communicate()


def bench(*words: str, name_server: str) -> dict[str, Any]:
    done = run("bolide", "bench", *words, "-n", name_server, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_producer_ends_at_its_quantity_with_a_summary(name_server: str) -> None:
    words = ("producer", "-t", "Sends", "-q", "500", "-w", "8", "-s", "64", "-k", "true", "-l", "3")
    done = run("bolide", "bench", *words, "-n", name_server)

    assert (done.returncode, done.stderr) == (0, "")
    first, *summary = done.stdout.splitlines()
    assert re.match(r"\[Complete\] Send Total: 500 \| Send TPS: \d+ \| Max RT\(ms\): \d+", first)
    assert summary[0].split() == ["sent", "500"]


def test_asynchronous_sends_and_all_options_of_a_producer(name_server: str) -> None:
    compress = ("-c", "true", "-ct", "ZLIB", "-cl", "1", "-ch", "64")
    delay = ("-d", "true", "-e", "2", "-p", "50", "-ri", "1000", "-m", "false", "-a", "false")
    found = bench(
        "producer", "-t", "Sends", "-y", "true", "-q", "3000", *compress, *delay,
        name_server=name_server,
    )  # fmt: skip

    assert (found["sent"], found["failed"], found["last_failure"]) == (3000, 0, None)
    assert found["send_ms"].keys() == PERCENTILES


def test_transactions_end_as_the_rates_say_and_only_the_committed_are_consumed(
    name_server: str,
) -> None:
    words = ("transaction", "-t", "Ended", "-q", "300", "-w", "8", "-s", "64", "-sr", "0.5")
    sent = bench(*words, name_server=name_server)
    assert (sent["sent"], sent["failed"], sent["checks"]) == (300, 0, 0)
    assert sent["committed"] + sent["rolled_back"] == 300
    count = str(sent["committed"])
    got = bench("consumer", "-t", "Ended", "--count", count, name_server=name_server)
    assert got["received"] == sent["committed"] > 50


def test_timers_show_how_late_messages_come(name_server: str) -> None:
    words = ("timer", "-t", "Timed", "-q", "300", "--ahead", "1", "--over", "1", "-w", "8")
    done = run("bolide", "bench", *words, "-n", name_server, "--json")
    found = json.loads(done.stdout)
    assert [found[name] for name in ("sent", "received", "lost", "early")] == [300, 300, 0, 0]
    assert found["error_ms"].keys() == PERCENTILES
    assert re.search(r"< 1 ms +\d+", done.stderr)


def test_batches_are_sent_and_consumed(name_server: str) -> None:
    sent = bench("batch", "-t", "Batches", "-q", "330", "-b", "16", name_server=name_server)
    got = bench("consumer", "-t", "Batches", "--count", "330", name_server=name_server)

    assert (sent["command"], sent["sent"]) == ("batch", 330)
    assert got["received"] >= 330
    assert got["born_to_consume_ms"].keys() == PERCENTILES


def test_traces_are_told_and_brokers_share_the_queues_out_if_asked_to(name_server: str) -> None:
    bench("producer", "-t", "Traced", "-q", "50", "-m", "true", name_server=name_server)
    words = ("-t", "Traced", "-g", "traced", "-c", "false", "-m", "true", "--count", "50")
    got = bench("consumer", *words, name_server=name_server)
    assert got["received"] == 50
    traces = ("-t", "RMQ_SYS_TRACE_TOPIC", "-g", "traces", "--count", "2")
    assert bench("consumer", *traces, name_server=name_server)["received"] >= 2


def test_a_consumer_filters_by_the_file_named_and_ends_at_its_time(
    name_server: str, tmp_path: Path
) -> None:
    bench("producer", "-t", "Tagged", "-q", "300", "-l", "3", name_server=name_server)
    tags = tmp_path / "tags"
    tags.write_text("tag1\n")
    words = ("-t", "Tagged", "-f", "TAG", "-e", str(tags), "-g", "tagged", "--duration", "2")
    found = bench("consumer", *words, name_server=name_server)

    assert found["received"] == 100


def test_latencies_are_those_of_every_message_sent(name_server: str) -> None:
    words = ("latency", "--rate", "200", "--duration", "1", "--warm-up", "0.2")
    found = bench(*words, name_server=name_server)

    assert found["sent"] == pytest.approx(200, abs=20)
    assert found["received"] == found["sent"]
    assert 0 < found["latency_ms"]["p50"] <= found["latency_ms"]["p99"]


def test_what_is_sent_is_consumed_at_full_speed(name_server: str) -> None:
    found = bench("e2e", "-q", "2000", "-w", "16", name_server=name_server)

    assert (found["sent"], found["received"], found["failed"]) == (2000, 2000, 0)


@pytest.mark.parametrize("command", ["producer", "consumer", "e2e"])
def test_ctrl_c_ends_it_with_the_summary(
    command: str, name_server: str, started: list[Running]
) -> None:
    words = ("bolide", "bench", command, "-t", "Endless", "-n", name_server, "-ri", "100")
    running = Running(*words)
    started.append(running)
    running.wait_for("Current Time: ")

    assert running.stop(signal.SIGINT) == 0
    assert re.search(r"^(sent|received) per second +[\d.,]+$", running.output, re.MULTILINE)
    assert "Traceback" not in running.output


def test_without_a_name_server_it_fails_at_once_and_says_so(home: Path) -> None:
    done = run("bolide", "bench", "producer", "-n", "127.0.0.1:1")

    assert done.returncode != 0
    assert "no NameServer answers, tried 127.0.0.1:1" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("consumer", "-f", "TAG", "-e", "missing"), "missing"),
    ],
)
def test_what_is_not_possible_is_refused(words: tuple[str, ...], reason: str, home: Path) -> None:
    done = run("bolide", "bench", *words)

    assert done.returncode == 3
    assert reason in done.stderr
