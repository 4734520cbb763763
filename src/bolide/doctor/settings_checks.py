"""Checks of settings that are fine on a laptop, and not on a network or for messages of value."""

from collections.abc import Iterator, Mapping
from shlex import quote

from bolide.doctor.broker_checks import unasked
from bolide.doctor.facts import BrokerFacts, ClusterFacts, NameServerFacts, is_known
from bolide.doctor.findings import Finding, Severity
from bolide.remoting.address import host_of, is_loopback_host, split_address

_CONTROL = "authenticationEnabled=true authorizationEnabled=true"
_FIRST_USER = """INIT_AUTHENTICATION_USER='{"username":"NAME","password":"PASSWORD"}'"""


def check(facts: ClusterFacts) -> Iterator[Finding]:
    for server in facts.answering:
        yield from _name_server_access(server)
    for broker in facts.brokers:
        if not is_known(broker.connected):
            continue
        if not is_known(broker.config):
            yield unasked("settings", broker.label, "Its settings", broker.config)
            continue
        yield from _access(broker, broker.config)
        yield from _encryption(broker, broker.config)
        yield from _ha_port(broker)
        yield from _automatic_topics(broker, broker.config, facts)


def _is_on(config: Mapping[str, str], key: str) -> bool:
    return config.get(key, "").lower() == "true"


def _name_server_access(server: NameServerFacts) -> Iterator[Finding]:
    name, subject = "access-control", f"NameServer {server.address}"
    if is_loopback_host(host_of(server.address)):
        return
    if not is_known(server.config):
        # Whoever cannot read the settings is kept out by something.
        yield unasked(name, subject, "Its settings", server.config)
        return
    if _is_on(server.config, "authenticationEnabled"):
        measured = "Requests must be signed."
        yield Finding(id=name, severity=Severity.OK, subject=subject, measured=measured)
        return
    yield Finding(
        id=name,
        severity=Severity.WARNING,
        subject=subject,
        measured="It is reached over the network, and access control is off.",
        why="Whoever reaches it can register a broker and get the messages of others.",
        command=f"BOLIDE_NAMESRV_{_FIRST_USER} bolide namesrv -c namesrv.conf {_CONTROL}",
    )


def _access(broker: BrokerFacts, config: Mapping[str, str]) -> Iterator[Finding]:
    name = "access-control"
    signed = _is_on(config, "authenticationEnabled") or _is_on(config, "aclEnable")
    decided = _is_on(config, "authorizationEnabled") or _is_on(config, "aclEnable")
    if signed and decided:
        yield Finding(
            id=name, severity=Severity.OK, subject=broker.label,
            measured="Requests must be signed, and each user has permissions.",
        )  # fmt: skip
    elif signed:
        yield Finding(
            id=name, severity=Severity.WARNING, subject=broker.label,
            measured="Requests must be signed, but authorizationEnabled is false.",
            why="Every user may do everything.",
            command="bolide broker -c broker.conf authorizationEnabled=true",
        )  # fmt: skip
    elif _is_local(broker, config):
        yield Finding(
            id=name, severity=Severity.OK, subject=broker.label,
            measured="Access control is off, and it is reached from its own machine only.",
        )  # fmt: skip
    else:
        everything = _is_on(config, "allowRemoteAdmin") or not broker.is_ours
        yield Finding(
            id=name,
            severity=Severity.WARNING,
            subject=broker.label,
            measured="It is reached over the network, and access control is off.",
            why="Whoever reaches it can read and send all messages"
            + (", and change and delete everything." if everything else "."),
            command=f"BOLIDE_BROKER_{_FIRST_USER} bolide broker -c broker.conf {_CONTROL}",
        )


def _is_local(broker: BrokerFacts, config: Mapping[str, str]) -> bool:
    """Whether only its machine reaches it. RocketMQ's broker listens on every interface unless it
    has a bindAddress, which it has since 5.0, whatever it announces."""
    if not is_loopback_host(host_of(broker.address)):
        return False
    return "bindAddress" in config and is_loopback_host(config["bindAddress"])


def _encryption(broker: BrokerFacts, config: Mapping[str, str]) -> Iterator[Finding]:
    if _is_local(broker, config) or is_loopback_host(host_of(broker.address)):
        return
    if not broker.is_ours:  # RocketMQ's mode is a system property
        yield Finding(
            id="encryption", severity=Severity.UNKNOWN, subject=broker.label,
            measured="Whether it offers TLS is not among its settings.",
            command=f"openssl s_client -connect {quote(broker.address)} </dev/null",
        )  # fmt: skip
        return
    mode = config.get("tls.server.mode", "permissive")
    if mode == "disabled" or not config.get("tls.server.certPath"):
        yield Finding(
            id="encryption", severity=Severity.NOTE, subject=broker.label,
            measured="It serves plain text only.",
            why="Whoever is on the way can read messages and repeat requests.",
            command="bolide broker -c broker.conf tls.server.certPath=server.pem"
            " tls.server.keyPath=server.key",
        )  # fmt: skip
    else:
        yield Finding(
            id="encryption", severity=Severity.OK, subject=broker.label,
            measured=f"It serves TLS: tls.server.mode is {mode}.",
        )  # fmt: skip


def _ha_port(broker: BrokerFacts) -> Iterator[Finding]:
    """RocketMQ's master has no control there; Bolide's takes its machine and haAllowedReplicas."""
    if not broker.is_master or broker.is_ours is not False or not is_known(broker.ha):
        return
    yield Finding(
        id="ha-port",
        severity=Severity.WARNING,
        subject=broker.label,
        measured=f"Its HA port is open: {broker.ha_address}.",
        why="Whoever reaches it can copy the whole log, with access control on, too: RocketMQ's"
        " brokers check nothing there. Let slaves only through the firewall.",
        command=f"sudo iptables -I INPUT -p tcp --dport {split_address(broker.ha_address)[1]}"
        " ! -s SLAVE -j DROP",
    )


def _automatic_topics(
    broker: BrokerFacts, config: Mapping[str, str], facts: ClusterFacts
) -> Iterator[Finding]:
    name = "automatic-topics"
    if not broker.is_master:
        return
    if not _is_on(config, "autoCreateTopicEnable"):
        measured = "Topics are created by an operator only."
        yield Finding(id=name, severity=Severity.OK, subject=broker.label, measured=measured)
        return
    yield Finding(
        id=name,
        severity=Severity.NOTE,
        subject=broker.label,
        measured="A send to a topic that does not exist creates it.",
        why="A misspelled name is a new topic without consumers, and a new topic is on one broker"
        " only at first.",
        command=f"mqadmin updateBrokerConfig {facts.option} {broker.option}"
        " -k autoCreateTopicEnable -v false",
    )
