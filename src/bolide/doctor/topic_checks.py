"""Checks of topics: the same queues to read and to write, on every broker of the cluster."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from shlex import quote

from bolide.doctor.broker_checks import unasked
from bolide.doctor.facts import BrokerFacts, ClusterFacts, is_known
from bolide.doctor.findings import Finding, Severity, or_ok
from bolide.model.names import READ, WRITE
from bolide.protocol.bodies.topics import TopicConfig

Copies = list[tuple[BrokerFacts, TopicConfig]]
"""A topic on each of its brokers."""
Tables = list[tuple[BrokerFacts, Mapping[str, TopicConfig]]]


def check(facts: ClusterFacts) -> Iterator[Finding]:
    silent = list(facts.unasked_masters())
    silent += [
        (each.label, each.topics)
        for each in facts.masters
        if each.silence is None and not is_known(each.topics)
    ]
    for label, why in silent:
        yield unasked("topic-queues", label, "Its topics", why)
    tables = list(facts.topic_tables())
    if not tables:
        return
    names = facts.user_topics()
    copies = {
        name: [(broker, table[name]) for broker, table in tables if name in table] for name in names
    }
    subject, count = "topics", len(names)
    uneven = [each for name in names for each in _uneven(name, copies[name], facts)]
    measured = f"Topics: {count}; each has as many queues to read as to write."
    yield from _or_ok(silent, uneven, "topic-queues", subject, measured)
    partial = [each for name in names for each in _partial(name, copies[name], tables, facts)]
    measured = f"Topics: {count}; each has the same queues on every broker of its cluster."
    yield from _or_ok(silent, partial, "topic-brokers", subject, measured)
    closed = [each for name in names for each in _closed(name, copies[name], facts)]
    measured = f"Topics: {count}; each can be read and written."
    yield from _or_ok(silent, closed, "topic-permission", subject, measured)


def _or_ok(
    silent: Collection[object], found: Iterable[Finding], name: str, subject: str, measured: str
) -> Iterator[Finding]:
    """The findings; that all is in order only if every master told its topics."""
    return iter(found) if silent else or_ok(found, name, subject, measured)


def _uneven(name: str, copies: Copies, facts: ClusterFacts) -> Iterator[Finding]:
    for broker, config in copies:
        reads, writes = config.read_queue_nums, config.write_queue_nums
        if reads == writes:
            continue
        most = max(reads, writes)
        loses = writes > reads
        yield Finding(
            id="topic-queues",
            severity=Severity.ERROR if loses else Severity.WARNING,
            subject=f"{name} on {broker.name}",
            measured=f"It has {reads} queues to read and {writes} to write.",
            why="Messages in the queues that only producers see are never consumed."
            if loses
            else "Consumers share queues that get no messages, and some may idle. Expected while"
            " the number of queues is reduced, until the old ones are consumed.",
            command=f"mqadmin updateTopic {facts.option} {broker.option} -t {quote(name)}"
            f" -r {most} -w {most}",
        )


def _partial(name: str, copies: Copies, tables: Tables, facts: ClusterFacts) -> Iterator[Finding]:
    clusters = {broker.cluster for broker, _ in copies}
    having = {broker.name for broker, _ in copies}
    first, config = copies[0]
    for broker, _ in tables:
        if broker.cluster in clusters and broker.name not in having:
            yield Finding(
                id="topic-brokers",
                severity=Severity.NOTE,
                subject=f"{name} on {broker.name}",
                measured=f"{broker.name} does not have it, {first.name} does.",
                why="Its load is on some brokers only, and it is gone while they are. Topics that"
                " a send creates are on one broker at first.",
                command=f"mqadmin updateTopic {facts.option} {broker.option} -t {quote(name)}"
                f" -r {config.read_queue_nums} -w {config.write_queue_nums}",
            )
    for broker, other in copies[1:]:
        if other.write_queue_nums != config.write_queue_nums:
            yield Finding(
                id="topic-brokers",
                severity=Severity.NOTE,
                subject=f"{name} on {broker.name}",
                measured=f"{broker.name} has {other.write_queue_nums} queues of it, {first.name}"
                f" {config.write_queue_nums}.",
                why="Producers go through the queues in turn, so one broker gets more messages.",
                command=f"mqadmin updateTopic {facts.option} {broker.option} -t {quote(name)}"
                f" -r {config.read_queue_nums} -w {config.write_queue_nums}",
            )


def _closed(name: str, copies: Copies, facts: ClusterFacts) -> Iterator[Finding]:
    for broker, config in copies:
        lacking = [
            word for bit, word in ((READ, "read"), (WRITE, "written")) if not config.perm & bit
        ]
        if lacking:
            yield Finding(
                id="topic-permission",
                severity=Severity.NOTE,
                subject=f"{name} on {broker.name}",
                measured=f"Its permission is {config.perm}: it cannot be {' or '.join(lacking)}.",
                why="Intended while a topic is moved or retired.",
                command=f"mqadmin updateTopicPerm {facts.option} {broker.option} -t {quote(name)}"
                " -p 6",
            )
