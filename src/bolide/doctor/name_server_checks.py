"""Checks of the NameServers: whether each answers, and whether they tell clients the same."""

from collections.abc import Iterator
from shlex import quote

from bolide.doctor.facts import Cause, ClusterFacts, NameServerFacts, is_known, named
from bolide.doctor.findings import Finding, Severity, or_ok
from bolide.remoting.address import format_address, is_loopback_host, split_address


def check(facts: ClusterFacts) -> Iterator[Finding]:
    for server in facts.name_servers:
        yield from _reachable(server, facts)
    yield from _agreement(facts)


def _reachable(server: NameServerFacts, facts: ClusterFacts) -> Iterator[Finding]:
    name, address = "name-server-reachable", server.address
    if is_known(server.info):
        took = server.seconds * 1000
        yield Finding(
            id=name, severity=Severity.OK, subject=address, measured=f"It answers in {took:.0f} ms."
        )
        return
    if server.info.cause in {Cause.NO_PERMISSION, Cause.REFUSED, Cause.UNSUPPORTED}:
        yield Finding(
            id=name,
            severity=Severity.ERROR,
            subject=address,
            measured=f"It answers, and refuses to name its brokers: {server.info.reason}.",
            why="Nothing behind it could be examined, and clients without credentials are refused.",
            command="export BOLIDE_ACCESS_KEY=… BOLIDE_SECRET_KEY=…"
            if server.info.cause is Cause.NO_PERMISSION
            else _start_command(server),
        )
        return
    others = facts.answering
    connected = server.info.cause is not Cause.NOT_CONNECTED
    why = "Clients find brokers and topics through NameServers."
    if others:
        why += f" They go on with {named(each.address for each in others)}, until that fails too."
    if server.info.host_is_silent:
        why += (
            " Its host is silent, too: a firewall drops the connection, the address is wrong, or"
            " the machine is down."
        )
    elif connected:
        why += (
            " It takes connections: the process may be paused or overloaded, be another server, or"
            " speak TLS only."
        )
    yield Finding(
        id=name,
        severity=Severity.ERROR,
        subject=address,
        measured=f"It does not answer: {server.info.reason}."
        if not connected
        else f"It takes connections, and does not answer: {server.info.reason}.",
        why=why,
        command=_start_command(server),
    )


def _start_command(server: NameServerFacts) -> str:
    assert not is_known(server.info)
    host, port = split_address(server.address)
    if server.info.host_is_silent:
        return f"nc -vz -w 3 {quote(host)} {port}  # from another machine, too"
    if server.info.cause is Cause.NO_ANSWER:  # connected, so another server, or one with TLS only
        return f"bolide doctor -n {quote(server.address)} --tls"
    if is_loopback_host(host):
        return f"bolide namesrv --listen-port {port}"
    return f"bolide namesrv --listen-port {port} --bind-address {quote(host)}"


def _agreement(facts: ClusterFacts) -> Iterator[Finding]:
    servers = facts.answering
    if len(servers) < 2:
        return
    yield from or_ok(
        [*_missing_brokers(facts, servers), *_missing_topics(facts, servers)],
        "name-servers-agree",
        named(each.address for each in servers),
        "They know the same brokers and topics.",
    )


def _missing_brokers(facts: ClusterFacts, servers: list[NameServerFacts]) -> Iterator[Finding]:
    known = {server.address: _registrations(server) for server in servers}
    addresses = ";".join(each.address for each in facts.name_servers)
    for broker in facts.brokers:
        key = (broker.name, broker.broker_id, broker.address)
        lacking = [address for address, found in known.items() if key not in found]
        if not lacking:
            continue
        given = broker.setting("namesrvAddr")
        told = "" if given is None else f" Its namesrvAddr is {given or 'empty'}."
        yield Finding(
            id="name-servers-agree",
            severity=Severity.ERROR,
            subject=broker.label,
            measured=f"It is not registered with {named(lacking)}.{told}",
            why="Which brokers a client finds depends on the NameServer it asks; a broker registers"
            " with those of its own namesrvAddr only.",
            command=f"mqadmin updateBrokerConfig -b {quote(broker.found_at or broker.address)}"
            f" -k namesrvAddr -v {quote(addresses)}",
        )


def _missing_topics(facts: ClusterFacts, servers: list[NameServerFacts]) -> Iterator[Finding]:
    known = {each.address: each.topics for each in servers if is_known(each.topics)}
    for server in servers:
        if not is_known(server.topics):
            yield Finding(
                id="name-servers-agree",
                severity=Severity.UNKNOWN,
                subject=server.address,
                measured=f"Its topics are not known: {server.topics.reason}.",
            )
    everything = frozenset[str]().union(*known.values())
    for address, topics in known.items():
        if lacking := sorted(everything - topics):
            yield Finding(
                id="name-servers-agree",
                severity=Severity.WARNING,
                subject=address,
                measured=f"It lacks {len(lacking)} topics that another knows: {named(lacking)}.",
                why="A client that asks this NameServer gets no route for them. Right after a"
                " change this is a matter of seconds: brokers register at least every 60 s.",
                command=f"mqadmin topicList -n {quote(address)}",
            )


def _registrations(server: NameServerFacts) -> set[tuple[str, int, str]]:
    assert is_known(server.info)
    return {
        (name, broker_id, address)
        for name, route in server.info.broker_addr_table.items()
        for broker_id, address in route.broker_addrs.items()
    }


def hosts_of(facts: ClusterFacts) -> set[str]:
    """The hosts by which the answering NameServers are reached."""
    return {split_address(each.address)[0] for each in facts.answering}


def with_port(host: str, address: str) -> str:
    """A host with the port of another address."""
    return format_address((host, split_address(address)[1]))
