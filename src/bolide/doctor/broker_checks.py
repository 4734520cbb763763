"""Checks of single brokers: address, ports, clock, disk, load, limits and version."""

from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from shlex import quote
from typing import NamedTuple

from bolide.doctor.facts import (
    BrokerFacts,
    Cause,
    ClusterFacts,
    Unanswered,
    is_known,
    named,
    number_in,
)
from bolide.doctor.findings import Finding, Severity, or_ok
from bolide.doctor.name_server_checks import hosts_of
from bolide.remoting.address import host_of, is_loopback_host, split_address

_CLOCK_WARNING, _CLOCK_ERROR = 2.0, 60.0
"""Seconds by which clocks must differ at least."""
_CLOCK_WIDTH = 5.0
"""Bounds farther apart than this tell nothing."""
_FEW_FILES = 65_536
_FEW_MAPS = 65_530
_MANY_BYTES_UNDISPATCHED = 64 * 1024 * 1024
_SLOW_QUEUE_MS = 1000


def check(facts: ClusterFacts) -> Iterator[Finding]:
    if facts.answering and not facts.brokers:
        yield _no_brokers(facts)
    for broker in facts.brokers:
        yield from _reachable(broker, facts)
    for broker in facts.brokers:
        if is_known(broker.connected):
            yield from _identity(broker)
            yield from _loopback(broker, facts)
            yield from _vip(broker)
            yield from _clock(broker)
            yield from _disk(broker, facts)
            yield from _load(broker, facts)
    yield from _limits(facts)
    yield from _versions(facts)


def _no_brokers(facts: ClusterFacts) -> Finding:
    return Finding(
        id="broker-registered",
        severity=Severity.ERROR,
        subject=named(each.address for each in facts.answering),
        measured="No broker is registered.",
        why="Without a broker there is nowhere to send messages to. A broker registers with the"
        " NameServers of its namesrvAddr.",
        command=f"bolide broker -c broker.conf {facts.option}",
    )


def unasked(name: str, subject: str, what: str, answer: Unanswered) -> Finding:
    """That a check could not be done, and why."""
    return Finding(
        id=name,
        severity=Severity.UNKNOWN,
        subject=subject,
        measured=f"{what} could not be read: {answer.reason}.",
        why="Administration may need credentials, or be allowed on the broker's machine only."
        if answer.cause is Cause.NO_PERMISSION
        else "",
        command="export BOLIDE_ACCESS_KEY=… BOLIDE_SECRET_KEY=…"
        if answer.cause is Cause.NO_PERMISSION
        else "",
    )


# ---- addresses


def _reachable(broker: BrokerFacts, facts: ClusterFacts) -> Iterator[Finding]:
    name = "broker-reachable"
    if is_known(broker.connected):
        if not is_known(broker.runtime) and broker.runtime.cause is Cause.NO_ANSWER:
            yield Finding(
                id=name,
                severity=Severity.ERROR,
                subject=broker.label,
                measured=f"It takes connections, and does not answer: {broker.runtime.reason}.",
                why="Clients wait for each request until it times out. The process may be paused or"
                " overloaded, be another server, or speak TLS only.",
                command=f"bolide doctor {facts.option} --tls",
            )
            return
        took = broker.connected * 1000
        measured = f"Connected in {took:.0f} ms."
        yield Finding(id=name, severity=Severity.OK, subject=broker.label, measured=measured)
        return
    measured = f"Nothing answers at the address that it announces: {broker.connected.reason}."
    if broker.found_at:
        host = split_address(broker.found_at)[0]
        yield Finding(
            id=name,
            severity=Severity.ERROR,
            subject=broker.label,
            measured=f"{measured} The broker answers at {broker.found_at}.",
            why="Clients connect to the announced address, whatever the address of the NameServer.",
            command=f"bolide broker -c broker.conf brokerIP1={quote(host)}",
        )
        return
    yield Finding(
        id=name,
        severity=Severity.ERROR,
        subject=broker.label,
        measured=measured,
        why=_why_unreachable(broker),
        command=_unreachable_command(broker, facts),
    )


def _why_unreachable(broker: BrokerFacts) -> str:
    host = host_of(broker.address)
    if is_loopback_host(host):
        return (
            "It announces the loopback address, which is another machine for everybody else:"
            " brokerIP1 must be an address that clients reach. If the broker is on this machine, it"
            " has ended without unregistering."
        )
    if _is_internal(host):
        return (
            "It announces an address that may exist only inside its container or network:"
            " brokerIP1 must be an address that clients reach. If it is reachable otherwise, the"
            " broker has ended without unregistering, or a firewall drops the connection."
        )
    return (
        "The broker has ended without unregistering (NameServers forget it after two minutes), a"
        " firewall drops the connection, or brokerIP1 is not an address that clients reach."
    )


def _unreachable_command(broker: BrokerFacts, facts: ClusterFacts) -> str:
    host = host_of(broker.address)
    others = sorted(each for each in hosts_of(facts) if not is_loopback_host(each))
    if (is_loopback_host(host) or _is_internal(host)) and others:
        return f"bolide broker -c broker.conf brokerIP1={others[0]}"
    return f"bolide broker -c broker.conf {facts.option}"


def _identity(broker: BrokerFacts) -> Iterator[Finding]:
    told = broker.setting("brokerName")
    if told is not None and told != broker.name:
        yield Finding(
            id="broker-identity",
            severity=Severity.ERROR,
            subject=broker.label,
            measured=f"The broker that answers there is {told}.",
            why="Messages for one broker reach another one, usually because both announce the same"
            " address.",
            command="bolide broker -c broker.conf brokerIP1=ADDRESS",
        )


def _loopback(broker: BrokerFacts, facts: ClusterFacts) -> Iterator[Finding]:
    host = host_of(broker.address)
    others = sorted(each for each in hosts_of(facts) if not is_loopback_host(each))
    if is_loopback_host(host) and others:
        yield Finding(
            id="broker-address-loopback",
            severity=Severity.WARNING,
            subject=broker.label,
            measured=f"It announces {host}, and the NameServer is used as {named(others)}.",
            why="It is reachable from here, but clients on other machines would connect to"
            " themselves.",
            command=f"bolide broker -c broker.conf brokerIP1={others[0]}",
        )


def _vip(broker: BrokerFacts) -> Iterator[Finding]:
    host, port = split_address(broker.address)
    subject, name = broker.label, "vip-port"
    if is_known(broker.vip):
        measured = f"Port {port - 2} is open."
        yield Finding(id=name, severity=Severity.OK, subject=subject, measured=measured)
        return
    yield Finding(
        id=name,
        severity=Severity.NOTE,
        subject=subject,
        measured=f"Port {port - 2} is closed: {broker.vip.reason}.",
        why="Java clients before 4.5, and those with vipChannelEnabled, send to this port.",
        command=f"sudo iptables -I INPUT -p tcp --dport {port - 2} -j ACCEPT"
        if not is_loopback_host(host)
        else "export JAVA_TOOL_OPTIONS=-Dcom.rocketmq.sendMessageWithVIPChannel=false",
    )


def _is_internal(host: str) -> bool:
    """Whether a host is a private address, or a name that only some network knows."""
    try:
        return ip_address(host.partition("%")[0]).is_private
    except ValueError:
        return "." not in host


# ---- clock, disk, load


def _clock(broker: BrokerFacts) -> Iterator[Finding]:
    name, clock = "clock-difference", broker.clock
    if not is_known(clock):
        yield unasked(name, broker.label, "Its clock", clock)
        return
    severity = Severity.OK
    if clock.certain >= _CLOCK_ERROR:
        severity = Severity.ERROR
    elif clock.certain >= _CLOCK_WARNING:
        severity = Severity.WARNING
    elif clock.possible - clock.certain > _CLOCK_WIDTH:
        severity = Severity.UNKNOWN
    is_wrong = severity in {Severity.WARNING, Severity.ERROR}
    yield Finding(
        id=name,
        severity=severity,
        subject=broker.label,
        measured=f"Its clock minus this one is {clock}.",
        why="Delivery times, expiry, offsets by time and the age of messages are reckoned with the"
        " clocks of clients and brokers."
        if is_wrong
        else "",
        command="sudo timedatectl set-ntp true" if is_wrong else "",
    )


def _disk(broker: BrokerFacts, facts: ClusterFacts) -> Iterator[Finding]:
    name, ratios = "disk-usage", _disk_ratios(broker)
    if not ratios:
        answer = broker.runtime
        lacking = Unanswered("its runtime figures lack it", Cause.UNSUPPORTED)
        reason = lacking if is_known(answer) else answer
        yield unasked(name, broker.label, "Its disk usage", reason)
        return
    cleaning, refusing = _disk_limit(broker, _CLEANING), _disk_limit(broker, _REFUSING)
    used = max(ratios)
    if cleaning is None or refusing is None:
        keys = " or ".join(each.key for each in (_CLEANING, _REFUSING))
        told = Unanswered(f"{used:.0%} is used, and {keys} is not a number")
        yield unasked(name, broker.label, "The limits of its disk usage", told)
        return
    severity, why = Severity.OK, ""
    if used >= refusing:
        severity = Severity.ERROR
        why = f"At {refusing:.0%} a broker refuses messages: its disk is full."
    elif used >= cleaning:
        severity = Severity.WARNING
        why = (
            f"Over diskMaxUsedSpaceRatio, {cleaning:.0%}, files are deleted as soon as they are"
            f" expired, at 85% usually before that, and at {refusing:.0%} messages are refused."
        )
    hours = broker.setting("fileReservedTime") or "72"
    kept = number_in(hours)
    fewer = max(int(kept) // 2, 1) if kept is not None else 24
    yield Finding(
        id=name,
        severity=severity,
        subject=broker.label,
        measured=f"{used:.0%} of its disk is used; files are kept for {hours} hours.",
        why=why,
        command=f"mqadmin updateBrokerConfig {facts.option} {broker.option}"
        f" -k fileReservedTime -v {fewer}"
        if why
        else "",
    )


class _Limit(NamedTuple):
    key: str
    default: float


_CLEANING = _Limit("diskMaxUsedSpaceRatio", 75)
_REFUSING = _Limit("diskSpaceWarningLevelRatio", 90)
"""Disk usage at which brokers refuse messages; Java's is a system property that no request
tells."""


def _disk_limit(broker: BrokerFacts, limit: _Limit) -> float | None:
    """A share of the disk; None if the broker's is not a number."""
    text = broker.setting(limit.key)
    percent = number_in(text) if text else limit.default
    return None if percent is None else percent / 100


def _disk_ratios(broker: BrokerFacts) -> list[float]:
    found = (broker.figure("commitLogDiskRatio"), broker.figure("consumeQueueDiskRatio"))
    return [ratio for ratio in found if ratio is not None and ratio >= 0]


def _load(broker: BrokerFacts, facts: ClusterFacts) -> Iterator[Finding]:
    if not is_known(broker.runtime):
        yield unasked("broker-load", broker.label, "Its load", broker.runtime)
        return
    yield from or_ok(
        _overload(broker, facts),
        "broker-load",
        broker.label,
        "No request waits, and every message is dispatched to its queue.",
    )


def _overload(broker: BrokerFacts, facts: ClusterFacts) -> Iterator[Finding]:
    look = f"mqadmin brokerStatus {facts.option} {broker.option}"
    waits = broker.figure("sendThreadPoolQueueHeadWaitTimeMills") or 0
    if waits >= _SLOW_QUEUE_MS:
        yield Finding(
            id="broker-load", severity=Severity.WARNING, subject=broker.label, command=look,
            measured=f"The oldest send has waited for {waits / 1000:.1f} s.",
            why="A broker that is this late refuses sends as busy.",
        )  # fmt: skip
    behind = broker.figure("dispatchBehindBytes") or 0
    if behind >= _MANY_BYTES_UNDISPATCHED:
        yield Finding(
            id="broker-load", severity=Severity.WARNING, subject=broker.label, command=look,
            measured=f"{behind / 2**20:.0f} MiB of the log are not in the queues yet.",
            why="Consumers do not see these messages.",
        )  # fmt: skip
    permission = broker.setting("brokerPermission")
    if permission not in {None, "6", "7"}:
        yield Finding(
            id="broker-permission", severity=Severity.WARNING, subject=broker.label,
            measured=f"brokerPermission is {permission}: it takes no messages or delivers none.",
            why="Intended while a broker is drained; otherwise producers or consumers miss it.",
            command=f"mqadmin updateBrokerConfig {facts.option} {broker.option}"
            " -k brokerPermission -v 6",
        )  # fmt: skip


# ---- limits and versions


def _limits(facts: ClusterFacts) -> Iterator[Finding]:
    silent = []
    for broker in facts.brokers:
        files, maps = broker.figure("bolideOpenFileLimit"), broker.figure("bolideMapLimit")
        if files is None:
            if is_known(broker.connected):
                silent.append(broker.label)
            continue
        few = [*_few_descriptors(broker, files, maps), *_plain_kernel(broker)]
        yield from or_ok(few, "broker-limits", broker.label, f"It may open {files:.0f} files.")
    if silent:
        yield Finding(
            id="broker-limits",
            severity=Severity.UNKNOWN,
            subject=named(silent),
            measured="The limits of open files and memory maps are not known: RocketMQ's brokers do"
            " not tell them, and Bolide's only to whom may read their figures.",
            command="cat /proc/$(pgrep -f BrokerStartup)/limits",
        )


def _few_descriptors(broker: BrokerFacts, files: float, maps: float | None) -> Iterable[Finding]:
    if files < _FEW_FILES:
        yield Finding(
            id="broker-limits", severity=Severity.WARNING, subject=broker.label,
            measured=f"It may open {files:.0f} files.",
            why="Each connection and each queue needs one; a broker at its limit refuses"
            " connections.",
            command="ulimit -n 1048576  # in the shell that starts it; of a service: systemctl edit"
            " bolide-broker, then [Service] LimitNOFILE=1048576",
        )  # fmt: skip
    if maps is not None and maps < _FEW_MAPS:
        yield Finding(
            id="broker-limits", severity=Severity.WARNING, subject=broker.label,
            measured=f"It may map {maps:.0f} files into memory.",
            why="Each file of the log is mapped.",
            command="sudo sysctl -w vm.max_map_count=655360",
        )  # fmt: skip


def _plain_kernel(broker: BrokerFacts) -> Iterator[Finding]:
    if is_known(broker.runtime) and broker.runtime.get("bolideKernel") == "python":
        yield Finding(
            id="compiled-kernel", severity=Severity.WARNING, subject=broker.label,
            measured="It runs without the compiled modules.",
            why="It takes a fraction of the messages that it could.",
            command="pip install Cython && pip install --force-reinstall --no-binary bolide bolide",
        )  # fmt: skip


def _versions(facts: ClusterFacts) -> Iterator[Finding]:
    found: dict[str, list[str]] = {}
    unknown = 0
    for broker in facts.brokers:
        if is_known(broker.runtime):
            found.setdefault(_version(broker.runtime), []).append(broker.label)
        else:
            unknown += 1
            reason = broker.runtime if broker.silence is None else broker.silence
            yield unasked("version-mix", broker.label, "Its version", reason)
    if len(found) == 1 and not unknown:
        ((version, names),) = found.items()
        measured = f"All brokers are {version}."
        subject = named(names)
        yield Finding(id="version-mix", severity=Severity.OK, subject=subject, measured=measured)
    elif len(found) > 1:
        parts = "; ".join(f"{version}: {named(names)}" for version, names in sorted(found.items()))
        yield Finding(
            id="version-mix",
            severity=Severity.WARNING,
            subject=f"{len(found)} versions",
            measured=f"The brokers differ: {parts}.",
            why="What a client may use depends on the broker that it reaches. Expected during an"
            " upgrade only.",
            command=f"mqadmin clusterList {facts.option}",
        )


def _version(figures: object) -> str:
    assert isinstance(figures, dict)
    own = figures.get("bolideVersion")
    announced = figures.get("brokerVersionDesc", "of unknown version")
    return f"Bolide {own} ({announced})" if own else f"RocketMQ {announced}"
