"""The word count of RocketMQ Streams, which keeps its state in topics of the broker."""

import os
import re
from itertools import count
from pathlib import Path

import pytest

from tests.interop.bench import Bench
from tests.interop.matrix import brokers
from tests.interop.matrix.players import JVM, witness

BROKERS = [brokers.OURS, pytest.param("5.x", marks=pytest.mark.long)]
WORDS = ("apple", "pear", "plum")
LINES = ("apple pear", "plum apple apple")
SHUFFLE_QUEUES = 8


@pytest.mark.parametrize("broker", BROKERS)
def test_a_restarted_word_count_goes_on_from_its_stored_state(
    broker: str, java_bench: Bench, tmp_path: Path
) -> None:
    job = job_name()
    with brokers.cluster(broker, tmp_path, java_bench) as cluster:
        witness(cluster).create_topics({f"{job}_lines": 1, f"{job}_counts": 2})
        command = ("streams", "WordCount", cluster.namesrv_address, job, " ".join(WORDS))
        first = counts(java_bench.client(*command, *LINES, jvm=JVM).wait(70))
        second = counts(java_bench.client(*command, jvm=JVM).wait(40))

    for word in WORDS:
        # The first one is sent again where it comes before the job has taken its queues.
        sent = max(1 + " ".join(LINES).split().count(word), len(first[word]))
        assert first[word] == list(range(1, sent + 1))
        assert second[word][0] == sent + 1


def counts(printed: list[str]) -> dict[str, list[int]]:
    """The counts of each word in the order in which the job told them."""
    found: dict[str, list[int]] = {word: [] for word in WORDS}
    for line in printed:
        # Its tools leave a line open.
        if told := re.search(r"counted (\w+) (\d+)$", line):
            found[told[1]].append(int(told[2]))
    return found


def job_name() -> str:
    """A name under which all state is stored.

    RocketMQ Streams 1.1.1 stores the state of queues in the order of a Java HashSet and stops at
    the first queue without state, that of its source. So that queue has to be the last. The name
    is new each time, because the job also has a directory of that name, at the same place always.
    """
    for number in count():
        job = f"tally{os.getpid()}x{number}"
        source = _bucket("broker-a", 0, f"{job}_lines-stateTopic")
        state_topic = f"{job}-ROCKETMQ-COUNT-00004-shuffleTopic-stateTopic"
        shuffled = (_bucket("__syslo__global__", n, state_topic) for n in range(SHUFFLE_QUEUES))
        if source > max(shuffled):
            return job
    raise AssertionError


def _bucket(broker_name: str, queue: int, topic: str) -> int:
    """Where a java.util.HashSet of default size has a MessageQueue."""
    code = 31 * (31 * (31 + _hash_code(broker_name)) + queue) + _hash_code(topic)
    code &= 0xFFFF_FFFF
    return (code ^ code >> 16) & 15


def _hash_code(text: str) -> int:
    code = 0
    for character in text:
        code = 31 * code + ord(character) & 0xFFFF_FFFF
    return code
