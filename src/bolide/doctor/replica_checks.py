"""Checks of broker groups: a master, replicas that keep up, copies enough."""

from collections.abc import Iterator
from shlex import quote

from bolide.doctor.broker_checks import unasked
from bolide.doctor.facts import BrokerFacts, ClusterFacts, is_known
from bolide.doctor.findings import Finding, Severity, or_ok
from bolide.protocol.bodies.replication import HaConnection
from bolide.remoting.address import host_of, is_loopback_host

_FAR_BEHIND = 16 * 1024 * 1024
"""Bytes; a slave that is a few writes behind is normal."""


def check(facts: ClusterFacts) -> Iterator[Finding]:
    for name, members in facts.broker_groups.items():
        yield from _master(name, members, facts)
        master = members[0]
        if master.is_master and is_known(master.connected):
            yield from _replication(master, members, facts)
            yield from _ha_address(master, members)
    yield from _sync_states(facts)


def _master(name: str, members: list[BrokerFacts], facts: ClusterFacts) -> Iterator[Finding]:
    masters = [each for each in members if each.is_master]
    if len(masters) == 1 and (silence := masters[0].silence) is not None:
        yield unasked(
            "master", name, f"Its master is registered as {masters[0].address}. Its state", silence
        )
        return
    if len(masters) == 1:
        yield Finding(
            id="master", severity=Severity.OK, subject=name,
            measured=f"Its master is {masters[0].address}.",
        )  # fmt: skip
        return
    if masters:
        addresses = " and ".join(each.address for each in masters)
        yield Finding(
            id="master", severity=Severity.ERROR, subject=name,
            measured=f"NameServers name two masters: {addresses}.",
            why="Two brokers with one name and id overwrite each other's registration: clients send"
            " to either, and consumers miss the messages of one.",
            command="bolide broker -c broker.conf brokerName=NAME",
        )  # fmt: skip
        return
    slaves = ", ".join(each.address for each in members)
    is_acting = any(each.is_acting for each in members)
    yield Finding(
        id="master",
        severity=Severity.WARNING if is_acting else Severity.ERROR,
        subject=name,
        measured=f"It has no master; registered are {slaves}.",
        why="A slave acts for it: what is stored is delivered, and nothing new is taken."
        if is_acting
        else "Producers cannot send to this group, and delayed messages and retries wait.",
        command=f"mqadmin electMaster -a {quote(facts.controllers[0])} -bn {quote(name)}"
        f" -c {quote(members[0].cluster)} -b {members[0].broker_id}"
        if facts.controllers
        else f"bolide broker -c broker.conf brokerName={quote(name)} {facts.option}",
    )


def _replication(
    master: BrokerFacts, members: list[BrokerFacts], facts: ClusterFacts
) -> Iterator[Finding]:
    slaves = [each for each in members if not each.is_master]
    waits = master.setting("brokerRole") == "SYNC_MASTER"
    if not slaves and not waits:
        return
    if not is_known(master.ha_status):
        yield unasked("replicas", master.label, "The state of its replicas", master.ha_status)
        return
    connections = master.ha_status.ha_connection_info
    missing = max(len(slaves), int(waits)) - len(connections)
    yield from or_ok(
        [
            *(_missing(master, slaves, missing, facts) if missing > 0 else ()),
            *(found for each in connections for found in _behind(master, each, facts)),
        ],
        "replicas",
        master.label,
        f"{len(connections)} replicas are connected, the last"
        f" {max((each.diff for each in connections), default=0)} bytes behind.",
    )


def _missing(
    master: BrokerFacts, slaves: list[BrokerFacts], missing: int, facts: ClusterFacts
) -> Iterator[Finding]:
    waits = master.setting("brokerRole") == "SYNC_MASTER"
    yield Finding(
        id="replicas",
        severity=Severity.ERROR,
        subject=master.label,
        measured=f"{missing} of {max(len(slaves), int(waits))} slaves are not connected to it.",
        why="A SYNC_MASTER answers sends with SLAVE_NOT_AVAILABLE, and messages have one copy less"
        " than intended."
        if waits
        else "Messages have one copy less than intended.",
        command="bolide broker -c slave.conf brokerRole=SLAVE brokerId=1"
        f" brokerName={quote(master.name)} {facts.option}",
    )


def _behind(
    master: BrokerFacts, connection: HaConnection, facts: ClusterFacts
) -> Iterator[Finding]:
    if connection.diff < _FAR_BEHIND and connection.in_sync:
        return
    if connection.diff < _FAR_BEHIND:
        measured = f"The slave at {connection.addr} is not in sync."
    else:
        measured = f"The slave at {connection.addr} is {connection.diff / 2**20:.0f} MiB behind."
    yield Finding(
        id="replicas",
        severity=Severity.WARNING,
        subject=master.label,
        measured=measured,
        why="What it lacks is lost if it must take over now.",
        command=f"mqadmin haStatus {facts.option} {master.option}",
    )


def _ha_address(master: BrokerFacts, members: list[BrokerFacts]) -> Iterator[Finding]:
    slaves = [each for each in members if not each.is_master]
    if not slaves:
        return
    host = host_of(master.ha_address)
    elsewhere = [each for each in slaves if not is_loopback_host(host_of(each.address))]
    if is_loopback_host(host) and elsewhere:
        yield Finding(
            id="ha-address", severity=Severity.ERROR, subject=master.label,
            measured=f"Slaves are told to copy from {master.ha_address}, and one is at"
            f" {elsewhere[0].address}.",
            why="A slave on another machine connects to itself and copies nothing.",
            command="bolide broker -c broker.conf brokerIP2=ADDRESS",
        )  # fmt: skip
    elif is_known(master.ha):
        yield Finding(
            id="ha-address", severity=Severity.OK, subject=master.label,
            measured=f"{master.ha_address} is open.",
        )  # fmt: skip
    else:
        yield Finding(
            id="ha-address", severity=Severity.NOTE, subject=master.label,
            measured=f"{master.ha_address} is closed from here: {master.ha.reason}.",
            why="Slaves copy from this address. It is well closed to others, if slaves reach it.",
            command=f"mqadmin haStatus {master.option}",
        )  # fmt: skip


def _sync_states(facts: ClusterFacts) -> Iterator[Finding]:
    if not facts.controllers:
        return
    if not is_known(facts.replicas):
        addresses = ";".join(facts.controllers)
        yield Finding(
            id="controller-reachable", severity=Severity.ERROR, subject=addresses,
            measured=f"No controller answers as the leader: {facts.replicas.reason}.",
            why="Without a leader no master is elected if one fails.",
            command=f"mqadmin getControllerMetaData -a {quote(facts.controllers[0])}",
        )  # fmt: skip
        return
    for name, group in sorted(facts.replicas.items()):
        outside = [each for each in group.not_in_sync_replicas if not each.alive]
        late = [each for each in group.not_in_sync_replicas if each.alive]
        for each in (*outside, *late):
            state = "does not run" if each in outside else "runs, and has not caught up"
            yield Finding(
                id="replicas-in-sync",
                severity=Severity.WARNING,
                subject=f"{name} (id {each.broker_id}) at {each.broker_address}",
                measured=f"It is not in the sync-state set: it {state}.",
                why="It cannot become master, and messages have one copy less.",
                command=f"mqadmin getSyncStateSet -a {quote(facts.controllers[0])}"
                f" -b {quote(name)}",
            )
        if not outside and not late:
            yield Finding(
                id="replicas-in-sync", severity=Severity.OK, subject=name,
                measured=f"All {len(group.in_sync_replicas)} replicas are in sync.",
            )  # fmt: skip
