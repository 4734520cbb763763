"""Checks of what an acknowledged message survives: by the settings in effect, and the slaves."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from shlex import quote

from bolide.doctor.facts import BrokerFacts, ClusterFacts, Unanswered, is_known, number_in
from bolide.doctor.findings import Finding, Severity

_ID = "durability"


def check(facts: ClusterFacts) -> Iterator[Finding]:
    for broker in facts.brokers:
        if is_known(broker.config):
            yield from _pending(broker, broker.config)
            if broker.is_master:
                yield _durability(broker, broker.config, facts)


def _pending(broker: BrokerFacts, config: Mapping[str, str]) -> Iterator[Finding]:
    if not broker.pending:
        return
    parts = ", ".join(
        f"{key} is {config.get(key)}, and {value} after it" for key, value in broker.pending.items()
    )
    yield Finding(
        id="pending-settings",
        severity=Severity.NOTE,
        subject=broker.label,
        measured=f"Settings wait for a restart: {parts}.",
        why="They were changed by a request, which wrote them to the file of the broker.",
        command=f"bolide shutdown broker --name {quote(broker.name)}"
        "  # then start it as before, with the same file",
    )


def _durability(broker: BrokerFacts, config: Mapping[str, str], facts: ClusterFacts) -> Finding:
    if config.get("flushDiskType") == "SYNC_FLUSH":
        return _on_disk(broker, facts)
    wanted = _wanted_copies(broker, config, facts)
    if not is_known(wanted):
        return _unknown(broker, f"How many brokers must have a message: {wanted.reason}", facts)
    if wanted.count <= 1:
        return _in_one_memory(broker, wanted.because, facts)
    slaves = wanted.count - 1 if wanted.is_certain else _slaves(broker, facts)
    if not is_known(slaves):
        return _unknown(broker, f"{wanted.because}; its slaves: {slaves.reason}", facts)
    if 1 + slaves < wanted.count:
        because = f"{wanted.because}, slaves that are connected and in sync: {slaves}"
        return _in_one_memory(broker, because, facts)
    return Finding(
        id=_ID,
        severity=Severity.OK,
        subject=broker.label,
        measured=f"An acknowledged message is in the memory of {wanted.count} brokers:"
        f" {wanted.because}.",
    )


def _on_disk(broker: BrokerFacts, facts: ClusterFacts) -> Finding:
    # RocketMQ's broker shows a changed flushDiskType, and goes on as it started.
    changes = broker.config_changes
    if broker.tells_pending or changes == 0:
        return Finding(
            id=_ID,
            severity=Severity.OK,
            subject=broker.label,
            measured="An acknowledged message is on the disk.",
        )
    reason = changes.reason if not is_known(changes) else f"{changes} since its start"
    return _unknown(
        broker,
        "flushDiskType is SYNC_FLUSH, which takes effect at a restart only, and whether it was so"
        f" at the start is not known: changes of settings: {reason}",
        facts,
    )


def _unknown(broker: BrokerFacts, measured: str, facts: ClusterFacts) -> Finding:
    return Finding(
        id=_ID,
        severity=Severity.UNKNOWN,
        subject=broker.label,
        measured=f"{measured}.",
        command=f"mqadmin getBrokerConfig {facts.option} {broker.option}",
    )


def _in_one_memory(broker: BrokerFacts, because: str, facts: ClusterFacts) -> Finding:
    waits = broker.pending.get("flushDiskType") == "SYNC_FLUSH"
    return Finding(
        id=_ID,
        severity=Severity.NOTE,
        subject=broker.label,
        measured=f"flushDiskType is {broker.setting('flushDiskType')}, {because}: an"
        " acknowledged message may be in the memory of one machine only.",
        why="It survives a crash of the broker, but not a power cut.",
        command=f"bolide shutdown broker --name {quote(broker.name)}  # then start it again:"
        " flushDiskType=SYNC_FLUSH waits for that"
        if waits
        else f"mqadmin updateBrokerConfig {facts.option} {broker.option}"
        " -k flushDiskType -v SYNC_FLUSH  # then restart the broker",
    )


@dataclass(frozen=True, slots=True)
class _Copies:
    """How many brokers, the master included, have a message before it is acknowledged."""

    count: int
    because: str
    is_certain: bool = False
    """Whether nothing is acknowledged with fewer. A SYNC_MASTER that lacks slaves answers sends
    with SLAVE_NOT_AVAILABLE or FLUSH_SLAVE_TIMEOUT, and has stored the messages."""


def _wanted_copies(
    broker: BrokerFacts, config: Mapping[str, str], facts: ClusterFacts
) -> _Copies | Unanswered:
    role, controlled = config.get("brokerRole"), config.get("enableControllerMode") == "true"
    if role != "SYNC_MASTER" and not controlled:
        return _Copies(1, f"brokerRole is {role}")
    if controlled and config.get("allAckInSyncStateSet") == "true":
        return _sync_state_set(broker, facts)
    mode = "allAckInSyncStateSet is false" if controlled else "brokerRole is SYNC_MASTER"
    text = config.get("inSyncReplicas")
    if text is None:  # RocketMQ 4.9
        return _Copies(2, mode)
    given = number_in(text)
    if given is None:
        return Unanswered(f"inSyncReplicas is {text}")
    # 0 means one slave in Bolide; in RocketMQ 5.x it means none, as 1 does.
    count = 2 if given == 0 and broker.is_ours and not controlled else max(int(given), 1)
    return _Copies(count, f"{mode}, inSyncReplicas {text}")


def _sync_state_set(broker: BrokerFacts, facts: ClusterFacts) -> _Copies | Unanswered:
    if not is_known(facts.replicas):
        return facts.replicas
    if broker.name not in facts.replicas:
        return Unanswered("the controllers do not know its group")
    count = len(facts.replicas[broker.name].in_sync_replicas)
    because = f"members of the sync-state set, all of which must have it: {count}"
    return _Copies(count, because, is_certain=True)


def _slaves(broker: BrokerFacts, facts: ClusterFacts) -> int | Unanswered:
    """The slaves that are connected to a master and keep up."""
    if is_known(broker.ha_status):
        return sum(each.in_sync for each in broker.ha_status.ha_connection_info)
    registered = [
        each
        for each in facts.broker_groups[broker.name]
        if not each.is_master and each.cluster == broker.cluster
    ]
    return broker.ha_status if registered else 0
