"""Checks of consumer groups: equal subscriptions, dead letters, backlog."""

from collections.abc import Iterator
from shlex import quote

from bolide.doctor.broker_checks import unasked
from bolide.doctor.facts import ClusterFacts, GroupFacts, Unanswered, is_known, named
from bolide.doctor.findings import Finding, Severity, or_ok
from bolide.protocol.bodies.heartbeat import Subscription

_MUCH_LAG = 10_000
"""Messages that a group has not consumed, from which on it is worth a note."""

Terms = dict[str, tuple[str, str]]
"""Type and expression of each subscription, by topic."""


def check(facts: ClusterFacts) -> Iterator[Finding]:
    online = [each for each in facts.groups if each.members]
    unasked_masters = [
        unasked("subscriptions", label, "The members of its groups", why)
        for label, why in facts.unasked_masters()
    ]
    if facts.unexamined_groups:
        unasked_masters.append(
            Finding(
                id="subscriptions",
                severity=Severity.UNKNOWN,
                subject="groups",
                measured=f"{facts.unexamined_groups} groups were not examined in time.",
                command=f"bolide doctor {facts.option} --within 60",
            )
        )
    if not facts.brokers:
        return
    yield from or_ok(
        [*unasked_masters, *(found for group in online for found in _subscriptions(group, facts))],
        "subscriptions",
        "groups",
        f"Groups online: {len(online)}; the members of each subscribe to the same.",
    )
    yield from _dead_letters(facts)
    yield from _lags(facts)


def _subscriptions(group: GroupFacts, facts: ClusterFacts) -> Iterator[Finding]:
    if not is_known(group.members):
        yield unasked("subscriptions", group.name, "Its members", group.members)
        return
    known = {key: _terms(told) for key, told in group.subscriptions.items() if is_known(told)}
    silent = {key: told for key, told in group.subscriptions.items() if not is_known(told)}
    by_terms: dict[str, list[str]] = {}
    for client_id, terms in sorted(known.items()):
        by_terms.setdefault(_text(terms), []).append(client_id)
    if len(by_terms) > 1:
        parts = "; ".join(
            f"{named(clients, 2)} {'subscribes' if len(clients) == 1 else 'subscribe'} to {text}"
            for text, clients in by_terms.items()
        )
        yield Finding(
            id="subscriptions",
            severity=Severity.ERROR,
            subject=group.name,
            measured=f"Its members differ: {parts}.",
            why="A broker keeps one subscription of a group, the last it heard of, and shares the"
            " queues among all members: messages that the owner of a queue does not want are lost"
            " for the others.",
            command=f"mqadmin consumerConnection {facts.option} -g {quote(group.name)}",
        )
    if silent:
        (first, told), *_ = silent.items()
        assert isinstance(told, Unanswered)
        yield Finding(
            id="subscriptions",
            severity=Severity.UNKNOWN,
            subject=group.name,
            measured=f"{len(silent)} of {len(group.subscriptions)} members did not tell their"
            f" subscriptions, {first}: {told.reason}.",
            command=f"mqadmin consumerConnection {facts.option} -g {quote(group.name)}",
        )


def _terms(subscriptions: tuple[Subscription, ...]) -> Terms:
    """What a member wants; its own retry topic says nothing."""
    return {
        each.topic: (each.expression_type or "TAG", _normal(each))
        for each in subscriptions
        if not each.topic.startswith("%RETRY%")
    }


def _normal(subscription: Subscription) -> str:
    """The expression; tags in any order are the same."""
    text = subscription.sub_string or "*"
    if subscription.expression_type not in {None, "", "TAG"}:
        return text
    return " || ".join(sorted({part.strip() for part in text.split("||")}))


def _text(terms: Terms) -> str:
    parts = [
        f"{topic} ({text if kind == 'TAG' else f'{kind} {text}'})"
        for topic, (kind, text) in sorted(terms.items())
    ]
    return ", ".join(parts) or "nothing"


def _dead_letters(facts: ClusterFacts) -> Iterator[Finding]:
    counts: dict[str, int] = {}
    found = [
        unasked("dead-letters", label, "Its dead letters", why)
        for label, why in facts.unasked_masters()
    ]
    for broker in facts.masters:
        if is_known(broker.dead_letters):
            for group, count in broker.dead_letters.items():
                counts[group] = counts.get(group, 0) + count
        elif broker.silence is None:
            found.append(
                unasked("dead-letters", broker.label, "Its dead letters", broker.dead_letters)
            )
    found += [
        Finding(
            id="dead-letters",
            severity=Severity.NOTE,
            subject=group,
            measured=f"It has {count} dead letters.",
            why="Messages that its consumers failed to handle after all retries. They are deleted"
            " with the log, like all others.",
            command=f"mqadmin consumeMessage {facts.option} -t {quote('%DLQ%' + group)} -c 10",
        )
        for group, count in sorted(counts.items())
        if count
    ]
    yield from or_ok(found, "dead-letters", "groups", "No group has dead letters.")


def _lags(facts: ClusterFacts) -> Iterator[Finding]:
    lags: dict[str, int] = {}
    found = [
        unasked("consumer-lag", label, "The lag of its groups", why)
        for label, why in facts.unasked_masters()
    ]
    for broker in facts.masters:
        if is_known(broker.lags):
            for group, lag in broker.lags.items():
                lags[group] = lags.get(group, 0) + lag
        elif broker.silence is None:
            unread = unasked("consumer-lag", broker.label, "The lag of its groups", broker.lags)
            found.append(unread)
    online = {each.name for each in facts.groups if each.members}
    found += [
        Finding(
            id="consumer-lag",
            severity=Severity.NOTE,
            subject=group,
            measured=f"It is {lag} messages behind, and"
            f" {'has members' if group in online else 'no member is known to be online'}.",
            why="Messages that are not consumed before their files are deleted are lost for it.",
            command=f"mqadmin consumerProgress {facts.option} -g {quote(group)}",
        )
        for group, lag in sorted(lags.items(), key=lambda item: -item[1])
        if lag >= _MUCH_LAG
    ]
    measured = f"No group is more than {_MUCH_LAG} messages behind."
    yield from or_ok(found, "consumer-lag", "groups", measured)
