"""What a client itself refuses or fails at. A broker's refusal is `protocol.refusals.Refusal`.

ClientError
├── NoNameServer              nobody to ask for routes
│   └── NameServersUnreachable
├── RouteNotFound             no broker has the topic
├── BrokerUnknown             no route names this broker
├── SendFailed                all tries of a send failed
│   └── SendTimedOut
├── BatchPartlySent           some batches of a list were stored, one was not
├── RequestTimedOut           a request was sent, and no reply came in time
├── CannotReply               a message does not say where its reply goes
├── PopNotSupported           a broker that only serves pulls
├── GroupTaken                the instance has one of that group
└── WrongState                not started, started twice, or closed
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bolide.errors import BolideError
from bolide.protocol.refusals import Refusal
from bolide.remoting.errors import ConnectFailed

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
    """Something this client could not do; `code` is what RocketMQ's clients call it, or -1."""

    code: int = -1


class NoNameServer(ClientError):
    """There is nobody to ask for routes."""

    code = NO_NAME_SERVER

    def __init__(self, text: str = "") -> None:
        super().__init__(
            text
            or "no NameServer is known: give name_server=, set NAMESRV_ADDR, or give"
            " address_server= with the URL that tells the list"
        )


class NameServersUnreachable(NoNameServer):
    """Every NameServer of the list was tried; the last failure is the cause."""

    def __init__(self, addresses: Sequence[str]) -> None:
        super().__init__(
            f"no NameServer answers, tried {', '.join(addresses)}: start one, or correct the list"
        )
        self.addresses = tuple(addresses)


class RouteNotFound(ClientError):
    """No NameServer knows a broker that has the topic."""

    code = ROUTE_NOT_FOUND

    def __init__(self, topic: str, purpose: str = "") -> None:
        lacking = f"no route to a queue to {purpose}" if purpose else "no route"
        super().__init__(
            f"topic {topic!r} has {lacking}: create it, check its permissions,"
            " or start its brokers (NameServers learn of them within 30 s)"
        )
        self.topic = topic


class BrokerUnknown(ClientError):
    """No route that this client has names the broker."""

    code = BROKER_UNKNOWN

    def __init__(self, broker_name: str) -> None:
        super().__init__(
            f"broker {broker_name!r} is not known, or has no master now: see whether it runs"
            " and has registered with the NameServer"
        )
        self.broker_name = broker_name


class SendFailed(ClientError):
    """No try of a send succeeded; the last failure is the cause. It may still have been stored."""

    def __init__(
        self, topic: str, brokers: Sequence[str], seconds: float, cause: Exception | None
    ) -> None:
        super().__init__(_send_text(topic, brokers, seconds, cause))
        self.topic = topic
        self.brokers = tuple(brokers)
        self.code = _code_of(cause)


class SendTimedOut(SendFailed):
    """The time for the send, or for its last try, was over; it may still have been stored."""

    def __init__(
        self, topic: str, brokers: Sequence[str], seconds: float, cause: Exception | None
    ) -> None:
        super().__init__(topic, brokers, seconds, cause)
        self.code = TIMED_OUT


class BatchPartlySent(ClientError):
    """`results` are those of the batches before the one that failed, which is the cause."""

    def __init__(
        self, results: Sequence["SendResult"], sent: int, left: int, *, keyed: bool = False
    ) -> None:
        advice = (  # keyed ones are sent queue by queue, not in their order
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
    """The request was stored; whoever should reply did not, or not in time."""

    code = REQUEST_TIMED_OUT

    def __init__(self, topic: str, seconds: float) -> None:
        super().__init__(
            f"no reply to a request of topic {topic!r} within {seconds:.3g} s: see whether a"
            " consumer of it runs and replies, or give it more time"
        )
        self.topic = topic
        self.seconds = seconds


class CannotReply(ClientError):
    """A message is no request, or lost what says where its reply goes."""

    code = CANNOT_REPLY

    def __init__(self, message_id: str, missing: Sequence[str]) -> None:
        super().__init__(
            f"message {message_id} cannot be replied to, it has no {' and no '.join(missing)}:"
            " only what was sent by `request`, to a broker that marks its cluster, can"
        )
        self.message_id = message_id
        self.missing = tuple(missing)


class PopNotSupported(ClientError):
    """The broker does not know the request: it is older than 5.0."""

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
    """Used before its start or after its end, or started twice."""


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
