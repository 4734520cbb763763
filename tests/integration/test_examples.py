"""The programs in examples/ and the samples in the documentation do what they say.

All of them meet one cluster, which runs as its own process for the whole module.
"""

import ast
import asyncio
import inspect
import os
import re
import runpy
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from bolide.protocol.codes import RequestCode
from bolide.remoting.client import RemotingClient
from tests.support.aio import PATIENCE, ended, on_loop
from tests.support.brokers import broker_header, plain, topics_body
from tests.support.commands import Running
from tests.support.name_servers import name_server

pytestmark = pytest.mark.timeout(60)

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
DOCS = ROOT / "docs"
SAMPLE_PAGES = (
    "how-to/send-messages.md",
    "how-to/send-once.md",
    "how-to/compaction-topics.md",
    "how-to/timers.md",
    "how-to/transactions.md",
    "how-to/consume-messages.md",
    "how-to/ordered-messages.md",
    "how-to/pull-messages.md",
    "how-to/pop.md",
    "how-to/priority-messages.md",
    "how-to/filters.md",
    "how-to/request-reply.md",
    "how-to/trace-messages.md",
    "how-to/beyond.md",
    "how-to/administer.md",
    "how-to/read-topics-as-arrow.md",
)
SAMPLE = re.compile(r"^```python\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.M | re.S)
SHOWN = re.compile(r"^`examples/(\w+\.py)`:\n\n```python\n(.*?)^```$", re.M | re.S)
SMALL = ("mappedFileSizeCommitLog=16777216", "maxHashSlotNum=1000", "maxIndexNum=4000")
ASKED_SOON = ("transactionTimeOut=300", "transactionCheckInterval=500")
PORTS = ("--namesrv-port", "0", "--broker-port", "0")

Example = Callable[..., list[str]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the NameServer; the home directory is a new one meanwhile."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("BOLIDE_", "NAMESRV_"))]:
            patch.delenv(name)
        patch.setenv("HOME", str(home))
        words = ("--host", "127.0.0.1", "--data", str(home / "data"), *PORTS, *SMALL, *ASKED_SOON)
        running = Running("bolide", "standalone", *words)
        try:
            running.wait_for(r"The broker\[.* boot success")
            yield running.wait_for(r"Name Server boot success.* address (\S+)")[1]
        finally:
            running.stop()
            running.process.communicate()


@pytest.fixture
def example(
    cluster: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Example:
    """Runs a program of examples/ here, as the main one; returns the lines that it prints."""

    def run(name: str, *words: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", [name, *(words or [cluster])])
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return run


def numbered(text: str, count: int) -> list[str]:
    return [f"{text}{number}" for number in range(count)]


def test_every_example_is_run_by_this_module() -> None:
    here = Path(__file__).read_text(encoding="utf-8")

    assert [path.name for path in EXAMPLES.glob("*.py") if f'"{path.stem}' not in here] == []


# ---- as the documentation says, in processes of their own


@on_loop
async def test_list_topics_prints_brokers_and_topics(tmp_path: Path) -> None:
    async with name_server(tmp_path) as server, RemotingClient() as client:
        await client.call(
            server.address,
            RequestCode.REGISTER_BROKER,
            broker_header("10.0.0.1:10911", name="broker-a", cluster="cluster-1"),
            body=plain(topics_body("Orders")),
        )

        printed = await run_example("list_topics.py", server.address)

    assert printed.splitlines() == [
        "Clusters: 1",
        "  cluster-1 broker-a 10.0.0.1:10911",
        "Topics: 2",
        "  Orders",
        "  TBW102",
    ]


@on_loop
async def test_list_topics_of_an_empty_name_server_prints_that_there_are_none(
    tmp_path: Path,
) -> None:
    async with name_server(tmp_path) as server:
        printed = await run_example("list_topics.py", server.address)

    assert printed == "Clusters: 0\nTopics: 0\n"


@on_loop
async def test_embedded_store_reads_back_what_it_keeps(tmp_path: Path) -> None:
    printed = await run_example("embedded_store.py", str(tmp_path / "store"))

    assert printed.splitlines() == [
        "on the disk: True",
        "order number 0",
        "order number 1",
        "order number 2",
        "found by key: order number 1",
    ]


@on_loop
async def test_quickstart_consumer_gets_what_the_producer_sends(cluster: str) -> None:
    consuming = asyncio.create_task(run_example("quickstart_consumer.py", cluster))
    sent = (await run_example("quickstart_producer.py", cluster)).splitlines()
    received = (await consuming).splitlines()

    assert len(sent) == 10
    assert all(re.fullmatch(r"SEND_OK [0-9A-F]{32} in TopicTest/broker-a/[0-3]", s) for s in sent)
    bodies = [re.findall(r"received '(.+)' from TopicTest/broker-a/[0-3]", r)[0] for r in received]
    assert sorted(bodies) == numbered("Hello Bolide ", 10)


@on_loop
async def test_questions_are_answered_over_messages(cluster: str) -> None:
    answering = asyncio.create_task(run_example("rpc_reply.py", cluster))
    asked = (await run_example("rpc_request.py", cluster)).splitlines()

    assert asked == ["0 + 0 = 0", "1 + 1 = 2", "2 + 2 = 4"]
    assert sorted((await answering).splitlines()) == [f"answered '{n} + {n}'" for n in range(3)]


@pytest.mark.long
@pytest.mark.timeout(300)
@on_loop
async def test_spark_stream_counts_messages_by_their_tags(cluster: str) -> None:
    await run_example("quickstart_producer.py", cluster)
    words = (sys.executable, "-u", str(EXAMPLES / "spark_stream.py"), cluster)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*words, stdout=pipe, stderr=pipe)
    assert process.stdout
    try:
        async with asyncio.timeout(15 * PATIENCE):  # a JVM, and its first batch
            while line := (await process.stdout.readline()).decode():
                if found := re.fullmatch(r"\|\s*TagA\|\s*(\d+)\|\n", line):
                    assert int(found[1]) >= 10
                    return
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        _, errors = await ended(process, within=3 * PATIENCE)
    pytest.fail(f"no counts were printed: {errors.decode()}")


# ---- in this process


def test_blocking_consumer_gets_what_the_producer_sends(example: Example) -> None:
    first, others = example("blocking_producer")

    assert re.fullmatch(r"SEND_OK in BlockingTopic/broker-a/[0-3]", first)
    assert others == "9 more"
    assert sorted(example("blocking_consumer")) == [f"received 'number {n}'" for n in range(10)]


def test_simple_producer_finds_what_it_sent(example: Example) -> None:
    assert example("simple_producer") == [
        "by id: invoice 2, customer 4711",
        "by key: invoice 1, tagged created",
    ]


def test_async_producer_sees_every_outcome(example: Example) -> None:
    assert example("simple_async_producer") == ["100 of 100 stored"]


def test_oneway_messages_arrive(example: Example) -> None:
    assert example("simple_oneway_producer") == ["10 arrived"]


def test_what_is_not_acknowledged_is_popped_again(example: Example) -> None:
    printed = example("pop_consumer")

    assert "task 3 is left alone, as if its worker had died" in printed
    assert printed[-1] == "task 3 is done at try 2"
    done = [f"task {number} is done at try 1" for number in (0, 1, 2, 4)]
    assert sorted(set(printed) & set(done)) == done


def test_batches_go_as_one_request_or_are_split(example: Example) -> None:
    assert example("batch_simple") == ["3 messages from offset 0 on"]
    assert example("batch_split") == ["500 messages in 5 requests"]


def test_repeated_sends_are_stored_once(example: Example) -> None:
    assert example("send_once") == ["7 were there already, 10 are now"]


def test_transactions_end_by_themselves_or_when_the_broker_asks(example: Example) -> None:
    lines = example("transaction_producer")

    assert lines[:10] == [
        f"order-{order} {end}"
        for order, end in enumerate(
            ("ROLLBACK", "COMMIT", "COMMIT", "ROLLBACK", "UNKNOWN", "COMMIT", "ROLLBACK", "COMMIT",
             "UNKNOWN", "ROLLBACK")
        )
    ]  # fmt: skip
    assert lines[10:] == ["asked about order-4", "asked about order-8",
                          "6 of 10 messages are delivered"]  # fmt: skip


def test_acl_client_sends_and_polls_with_signed_requests(example: Example) -> None:
    sent, polled = example("acl_client")

    assert sent.startswith("sent to AclTopic/broker-a/")
    assert polled == "polled signed"


# ---- consuming


def test_push_consumer_begins_at_a_time(example: Example) -> None:
    assert example("simple_push_consumer") == ["consumed 20 messages, 190 in sum"]


def test_broadcasting_gives_everything_to_everyone(example: Example) -> None:
    assert example("broadcast_consumer") == ["one got 5, two got 5"]


def test_orders_are_consumed_in_their_order(example: Example) -> None:
    sent = example("ordered_producer")
    queues = [re.findall(r"order (\d) .*/(\d)$", line)[0] for line in sent]
    assert len(sent) == 20
    assert len(set(queues)) == 5  # one queue for each order

    steps = "created, paid, sent, received"
    assert example("ordered_consumer") == [f"order-{number}: {steps}" for number in range(5)]


def test_a_key_that_fails_is_set_aside_and_resumed(example: Example) -> None:
    printed = example("keyed_order_consumer")
    assert printed[6] == "parked: 3 messages of bert, LookupError: no account of bert"
    for account in ("anna", "bert", "cleo"):
        steps = [line for line in printed if line.startswith(account)]
        assert steps == [f"{account}: {step}" for step in ("created", "paid", "sent")]
    assert [line.split(":")[0] for line in printed[7:]] == ["bert"] * 3


def test_delayed_messages_come_a_second_later(example: Example) -> None:
    assert example("delayed_producer") == numbered("sent reminder ", 3)

    received = [line.split(" after ") for line in example("delayed_consumer")]
    assert sorted(text for text, _ in received) == numbered("reminder ", 3)
    assert all(float(wait.removesuffix(" s")) >= 1.0 for _, wait in received)


def test_messages_come_at_their_times_and_one_is_taken_back(example: Example) -> None:
    assert example("timer_producer") == ["got the first one", "got the last one"]


def test_tags_choose_what_is_consumed(example: Example) -> None:
    assert example("tag_filter_producer") == ["sent 12 messages, 4 of each tag"]
    assert example("tag_filter_consumer") == ["4 of TagA, 4 of TagC"]


def test_sql_chooses_what_is_consumed(example: Example) -> None:
    assert example("sql_filter_producer") == ["sent 10 messages, with a from 0 to 9"]
    assert example("sql_filter_consumer") == ["got a = 0, 1, 2, 3"]


def test_names_have_no_namespace_for_those_inside(example: Example) -> None:
    trials = numbered("NamespaceTopic: trial ", 4)

    assert example("namespace_producer") == ["sent to NamespaceTopic"] * 4
    assert sorted(example("namespace_push_consumer")) == trials
    assert sorted(example("namespace_pull_consumer")) == trials


def test_command_line_programs_do_as_they_are_told(example: Example, cluster: str) -> None:
    at = ("-n", cluster, "-t", "OperationTopic", "-c", "4")

    sent = example("operation_producer", *at, "-g", "ops", "-a", "A", "-k", "key")
    received = example("operation_consumer", *at, "-g", "ops", "-s", "A", "-f")

    assert [line.split()[:2] for line in sent] == [[str(number), "SEND_OK"] for number in range(4)]
    assert sorted(line[9:] for line in received) == [f"message {n}, retry 0" for n in range(4)]


def test_failures_lead_to_retries_and_to_the_dead_letters(example: Example) -> None:
    assert example("retry_and_dead_letter") == [
        "try 1 of 'order 17'",
        "try 2 of 'order 17'",
        "try 3 of 'order 17'",
        "dead letter 'order 17', sent to %DLQ%retry-consumer",
    ]


def test_what_is_sent_back_comes_again(example: Example) -> None:
    assert example("send_back") == ["sent back 'a parcel'", "again 'a parcel', retry 1"]


def test_old_messages_are_skipped_by_who_is_far_behind(example: Example) -> None:
    assert example("skip_when_behind") == ["skipped 400, handled 100"]


def test_without_machine_rooms_everything_is_near(example: Example) -> None:
    assert example("machine_room") == ["8 messages from 4 queues"]


def test_a_reset_has_messages_consumed_again(example: Example) -> None:
    first, again = example("reset_offset"), numbered("handled sale ", 3)

    # Who administers may be told of the reset only after the first messages have come again.
    assert first.count("reset") == 1
    assert sorted(line for line in first if line != "reset") == sorted(again * 2)


# ---- pulling


def test_pull_consumer_goes_through_all_queues(example: Example) -> None:
    pulled = example("simple_pull_consumer")

    assert sorted(line.partition(": ")[2] for line in pulled) == numbered("item ", 8)
    assert pulled == sorted(pulled)


def test_lite_pull_consumer_polls_what_it_subscribed_to(example: Example) -> None:
    assert sorted(example("lite_pull_subscribe")) == sorted(numbered("polled event ", 12))


def test_lite_pull_consumer_seeks_in_the_queues_it_chose(example: Example) -> None:
    *polled, committed = example("lite_pull_assign")

    assert [line.partition(" at ")[2] for line in polled] == ["4: second 4", "5: second 5"]
    assert committed == "committed: 6"


def test_lite_pull_consumer_chooses_by_tags(example: Example) -> None:
    polled = sorted(example("lite_pull_assign_with_tags"))

    assert polled == ["polled blue paint", "polled red paint", "polled red paint"]


def test_pull_schedule_comes_to_every_queue(example: Example) -> None:
    pulled = example("pull_schedule")

    assert sorted(line.partition(": ")[2] for line in pulled) == numbered("job ", 8)


# ---- traces


def test_a_trace_tells_who_sent_and_who_consumed(example: Example) -> None:
    sent = example("trace_producer")
    assert all(re.fullmatch(r"sent [0-9A-F]{32}", line) for line in sent)

    by = "Pub by trace-producer, SubBefore by trace-consumer, SubAfter by trace-consumer"
    assert example("trace_consumer") == [f"traced {number}: {by}" for number in range(3)]


# ---- beyond RocketMQ


def test_a_message_recurs_until_it_is_recalled(example: Example) -> None:
    assert example("recurring") == ["time for a report", "time for a report", "recalled"]


def test_who_comes_late_does_not_get_what_has_expired(example: Example) -> None:
    assert example("expiring") == ["there is an offer, an invoice", "there is an invoice"]


# ---- tables


def test_a_topic_is_summed_up_as_a_table(example: Example) -> None:
    assert example("arrow_read") == ["Oslo: 30", "Rome: 36"]


# ---- samples in the documentation


@pytest.mark.parametrize("name", SAMPLE_PAGES)
@on_loop
async def test_the_samples_of_a_page_run_one_after_the_other(name: str, cluster: str) -> None:
    """As in `python -m asyncio`; where the page shows an output, it is the output."""
    names: dict[str, Any] = {"__name__": "__console__"}
    for sample, shown in SAMPLE.findall((DOCS / name).read_text(encoding="utf-8")):
        printed = StringIO()
        with redirect_stdout(printed):
            await run_sample(sample.replace("127.0.0.1:9876", cluster), names)
        if shown:
            assert printed.getvalue() == shown, sample


def test_pages_show_examples_as_they_are() -> None:
    pages = [ROOT / "README.md", *DOCS.rglob("*.md")]
    shown = [found for page in pages for found in SHOWN.findall(page.read_text(encoding="utf-8"))]

    assert {name for name, _ in shown} >= {
        "quickstart_producer.py",
        "quickstart_consumer.py",
        "spark_stream.py",
    }
    for name, text in shown:
        assert text == code_of(EXAMPLES / name), f"{name} is shown otherwise than it is"


async def run_sample(sample: str, names: dict[str, Any]) -> None:
    code = compile(sample, "sample", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    async with asyncio.timeout(PATIENCE):
        outcome = eval(code, names)
        if inspect.isawaitable(outcome):
            await outcome


def code_of(path: Path) -> str:
    """A program without the docstring at its head."""
    return path.read_text(encoding="utf-8").partition('"""\n\n')[2]


async def run_example(name: str, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(EXAMPLES / name), *arguments, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(3 * PATIENCE):  # a new interpreter on a busy machine
        printed, _ = await process.communicate()
    assert process.returncode == 0
    return printed.decode()
