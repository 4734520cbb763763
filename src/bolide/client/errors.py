"""Errors raised by the client itself. A broker's refusal is `protocol.refusals.Refusal`.

ClientError
├── NoNameServer              no NameServer is known
│   └── NameServersUnreachable
├── RouteNotFound             the topic has no route
├── BrokerUnknown             no known route contains the broker
├── SendFailed                all tries of a send failed
│   └── SendTimedOut
├── BatchPartlySent           some batches of a list were stored, one was not
├── RequestTimedOut           no reply to a request arrived in time
├── CannotReply               the message is not a request
├── PopNotSupported           the broker serves only pulls
├── GroupTaken                the instance has a client of that group
└── WrongState                not started, started twice, or closed
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bolide.errors import BolideError
from bolide.protocol.refusals import Refusal
from bolide.remoting.errors import ConnectFailed, ConnectionLost, RemotingError, TlsFailed

if TYPE_CHECKING:
    from bolide.client.producer.results import SendResult

CONNECT_FAILED = 10001
TIMED_OUT = 10002
BROKER_UNKNOWN = 10003
NO_NAME_SERVER = 10004
ROUTE_NOT_FOUND = 10005
REQUEST_TIMED_OUT = 10006
CANNOT_REPLY = 10007


class ClientError(BolideError):
    """Base of client errors; `code` is the code of RocketMQ's clients, or -1."""

    code: int = -1


class NoNameServer(ClientError):
    """No NameServer is known."""

    code = NO_NAME_SERVER

    def __init__(self, text: str = "") -> None:
        super().__init__(
            text
            or "no NameServer is known: give name_server=, set NAMESRV_ADDR, or give"
            " address_server= with the URL that tells the list"
        )


class NameServersUnreachable(NoNameServer):
    """No NameServer answered; the last failure is the cause."""

    def __init__(self, addresses: Sequence[str], failure: RemotingError | None = None) -> None:
        is_running = isinstance(failure, TlsFailed | ConnectionLost)
        reason = failure if is_running else "start one, or correct the list"
        super().__init__(f"no NameServer answers, tried {', '.join(addresses)}: {reason}")
        self.addresses = tuple(addresses)


class RouteNotFound(ClientError):
    """The NameServer knows no broker with the topic."""

    code = ROUTE_NOT_FOUND

    def __init__(self, topic: str, purpose: str = "") -> None:
        lacking = f"no route to a queue to {purpose}" if purpose else "no route"
        super().__init__(
            f"topic {topic!r} has {lacking}: create it, check its permissions,"
            " or start its brokers (NameServers learn of them within 30 s)"
        )
        self.topic = topic


class BrokerUnknown(ClientError):
    """No known route contains the broker."""

    code = BROKER_UNKNOWN

    def __init__(self, broker_name: str) -> None:
        super().__init__(
            f"broker {broker_name!r} is not known, or has no master now: see whether it runs"
            " and has registered with the NameServer"
        )
        self.broker_name = broker_name


class SendFailed(ClientError):
    """No try of a send succeeded; the last failure is the cause.

    The message may have been stored nevertheless.
    """

    def __init__(
        self, topic: str, brokers: Sequence[str], seconds: float, cause: Exception | None
    ) -> None:
        super().__init__(_send_text(topic, brokers, seconds, cause))
        self.topic = topic
        self.brokers = tuple(brokers)
        self.code = _code_of(cause)


class SendTimedOut(SendFailed):
    """The send, or its last try, timed out; the message may have been stored nevertheless."""

    def __init__(
        self, topic: str, brokers: Sequence[str], seconds: float, cause: Exception | None
    ) -> None:
        super().__init__(topic, brokers, seconds, cause)
        self.code = TIMED_OUT


class BatchPartlySent(ClientError):
    """A batch failed with the cause; `results` are those of the batches before it."""

    def __init__(
        self, results: Sequence["SendResult"], sent: int, left: int, *, keyed: bool = False
    ) -> None:
        advice = (  # keyed messages are sent queue by queue, not in list order
            "send all again, their keys keep the topic from storing one twice"
            if keyed
            else f"send those from number {sent} on again"
        )
        super().__init__(
            f"{sent} messages were stored, {left} were not or may not have been: {advice}"
        )
        self.results = tuple(results)
        self.sent = sent
        self.left = left


class RequestTimedOut(ClientError):
    """The request was stored, and no reply arrived in time."""

    code = REQUEST_TIMED_OUT

    def __init__(self, topic: str, seconds: float) -> None:
        super().__init__(
            f"no reply to a request of topic {topic!r} within {seconds:.3g} s: see whether a"
            " consumer of it runs and replies, or give it more time"
        )
        self.topic = topic
        self.seconds = seconds


class CannotReply(ClientError):
    """The message is not a request, or lost its reply properties."""

    code = CANNOT_REPLY

    def __init__(self, message_id: str, missing: Sequence[str]) -> None:
        super().__init__(
            f"message {message_id} cannot be replied to, it has no {' and no '.join(missing)}:"
            " only what was sent by `request`, to a broker that marks its cluster, can"
        )
        self.message_id = message_id
        self.missing = tuple(missing)


class PopNotSupported(ClientError):
    """The broker is older than 5.0 and does not support POP."""

    def __init__(self, broker_name: str, address: str) -> None:
        super().__init__(
            f"broker {broker_name} at {address} does not serve pops: use a PushConsumer or a"
            " LitePullConsumer, which pull, or upgrade it to RocketMQ 5 or Bolide"
        )
        self.broker_name = broker_name
        self.address = address


class GroupTaken(ClientError):
    """One client instance has at most one producer and one consumer of a group."""

    def __init__(self, kind: str, group: str, client_id: str) -> None:
        super().__init__(
            f"there is a {kind} of group {group!r} in client {client_id} already: use that one,"
            " close it first, or give this one an instance_name of its own"
        )
        self.group = group


class WrongState(ClientError, RuntimeError):
    """The client is used before its start or after its close, or started twice."""


def _send_text(topic: str, brokers: Sequence[str], seconds: float, cause: Exception | None) -> str:
    reason = f": {cause}" if cause is not None else ""
    if not brokers:
        return f"nothing was sent to {topic!r} within {seconds:.3g} s{reason}"
    tries = "1 try" if len(brokers) == 1 else f"{len(brokers)} tries"
    return (
        f"sending to {topic!r} failed after {tries} in {seconds:.3g} s"
        f" (brokers {', '.join(brokers)}){reason}"
    )


def _code_of(cause: Exception | None) -> int:
    if isinstance(cause, Refusal | ClientError):
        return cause.code
    return CONNECT_FAILED if isinstance(cause, ConnectFailed) else -1
