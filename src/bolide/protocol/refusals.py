"""Refusals: one exception class for each response code that is not a success.

A server raises a refusal and the dispatcher writes the response; a client gets the same class from
`refusal_for`. `retriable`: the same request may succeed later or at another broker.
"""

from typing import ClassVar

from bolide.errors import BolideError
from bolide.protocol.codes import ResponseCode


class Refusal(BolideError):
    """A request was refused; the remark says why."""

    code: ClassVar[int] = ResponseCode.SYSTEM_ERROR
    retriable: ClassVar[bool] = False
    by_code: ClassVar[dict[int, type["Refusal"]]] = {}

    def __init_subclass__(
        cls, code: ResponseCode | None = None, *, retriable: bool = False
    ) -> None:
        super().__init_subclass__()
        if code is None:
            return
        if code in Refusal.by_code:
            raise TypeError(f"{cls.__name__} and {Refusal.by_code[code].__name__} share {code!r}")
        cls.code = code
        cls.retriable = retriable
        Refusal.by_code[code] = cls

    def __init__(self, remark: str = "") -> None:
        super().__init__(remark)
        self.remark = remark


class UnknownRefusal(Refusal):
    """A peer refused with a code that has no class of its own."""

    def __init__(self, code: int, remark: str = "") -> None:
        super().__init__(remark)
        self.code = code  # type: ignore[misc]

    def __str__(self) -> str:
        return f"response code {self.code}: {self.remark}"


def refusal_for(code: int, remark: str | None) -> Refusal:
    """Return the exception for a response code."""
    kind = Refusal.by_code.get(code)
    return kind(remark or "") if kind else UnknownRefusal(code, remark or "")


class ServerError(Refusal, code=ResponseCode.SYSTEM_ERROR, retriable=True):
    """Something went wrong in the server; its log has the details."""


class SystemBusy(Refusal, code=ResponseCode.SYSTEM_BUSY, retriable=True):
    """The server sheds load; wait a little, or try another broker."""


class RequestCodeNotSupported(Refusal, code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED):
    """The server does not know this request."""


class ServiceNotAvailable(Refusal, code=ResponseCode.SERVICE_NOT_AVAILABLE, retriable=True):
    """The server cannot do this now: full disk, slave role or shutdown."""


class NoPermission(Refusal, code=ResponseCode.NO_PERMISSION):
    """Not allowed, by permission bits, access control or a black list."""


class TopicNotFound(Refusal, code=ResponseCode.TOPIC_NOT_EXIST, retriable=True):
    """No such topic, or no broker serves it now."""


class QueryNotFound(Refusal, code=ResponseCode.QUERY_NOT_FOUND):
    """No message or value under that key, offset or name."""


class InvalidParameter(Refusal, code=ResponseCode.INVALID_PARAMETER):
    """A value of the request is out of its bounds."""


class TransactionFailed(Refusal, code=ResponseCode.TRANSACTION_FAILED):
    """The transaction could not be ended."""


class MessageIllegal(Refusal, code=ResponseCode.MESSAGE_ILLEGAL):
    """The message is too large or malformed; the remark says what to change."""


class VersionNotSupported(Refusal, code=ResponseCode.VERSION_NOT_SUPPORTED):
    """The server requires another version of this request."""


class TopicExists(Refusal, code=ResponseCode.TOPIC_EXIST_ALREADY):
    """A topic of that name exists."""


class SubscriptionMalformed(Refusal, code=ResponseCode.SUBSCRIPTION_PARSE_FAILED):
    """The filter expression cannot be read."""


class SubscriptionNotFound(Refusal, code=ResponseCode.SUBSCRIPTION_NOT_EXIST, retriable=True):
    """The group has not subscribed to the topic; its next heartbeat may change that."""


class SubscriptionOutdated(Refusal, code=ResponseCode.SUBSCRIPTION_NOT_LATEST, retriable=True):
    """The broker does not have this version of the subscription until the next heartbeat."""


class GroupNotFound(Refusal, code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST):
    """No such consumer group; create it, or let the broker do so."""


class FilterNotFound(Refusal, code=ResponseCode.FILTER_DATA_NOT_EXIST, retriable=True):
    """The broker has no filter for this subscription."""


class FilterOutdated(Refusal, code=ResponseCode.FILTER_DATA_NOT_LATEST, retriable=True):
    """The broker has an older filter for this subscription."""


class NoBuyerId(Refusal, code=ResponseCode.NO_BUYER_ID):
    """The message lacks the id that determines its unit."""


class NotInUnit(Refusal, code=ResponseCode.NOT_IN_CURRENT_UNIT):
    """The message belongs to another unit."""


class ConsumerNotOnline(Refusal, code=ResponseCode.CONSUMER_NOT_ONLINE):
    """No consumer of the group is connected."""


class ConsumerTimedOut(Refusal, code=ResponseCode.CONSUME_MSG_TIMEOUT, retriable=True):
    """The consumer did not answer the broker in time."""


class NoMessage(Refusal, code=ResponseCode.NO_MESSAGE):
    """There is no such message."""


class PollingFull(Refusal, code=ResponseCode.POLLING_FULL, retriable=True):
    """Too many long polls are pending on this queue."""


class PollingTimedOut(Refusal, code=ResponseCode.POLLING_TIMEOUT, retriable=True):
    """No message arrived before the long-polling deadline."""


class BrokerNotFound(Refusal, code=ResponseCode.BROKER_NOT_EXIST, retriable=True):
    """No such broker."""


class DispatchIncomplete(Refusal, code=ResponseCode.BROKER_DISPATCH_NOT_COMPLETE, retriable=True):
    """The broker has not caught up with its log."""


class BroadcastConsumption(Refusal, code=ResponseCode.BROADCAST_CONSUMPTION):
    """The group broadcasts: the broker stores no offsets for it."""


class FlowControl(Refusal, code=ResponseCode.FLOW_CONTROL, retriable=True):
    """The client sends too fast and should back off."""


class NotLeaderForQueue(Refusal, code=ResponseCode.NOT_LEADER_FOR_QUEUE, retriable=True):
    """Another broker leads this queue of a static topic."""


class IllegalOperation(Refusal, code=ResponseCode.ILLEGAL_OPERATION):
    """The operation is not allowed on this message."""


class GoAway(Refusal, code=ResponseCode.GO_AWAY, retriable=True):
    """The server is shutting down; connect again or use another one."""
