"""Refusals: one exception class for each response code that is not a success.

A server raises one and the dispatcher writes the response; a client gets the same class back from
`refusal_for`. `retriable` says that the same request may succeed later or at another broker.
"""

from typing import ClassVar

from bolide.errors import BolideError
from bolide.protocol.codes import ResponseCode


class Refusal(BolideError):
    """A request was refused; the remark says why. Its own code is for codes we do not know."""

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
    """A peer refused with a code that this version has no class for."""

    def __init__(self, code: int, remark: str = "") -> None:
        super().__init__(remark)
        self.code = code  # type: ignore[misc]

    def __str__(self) -> str:
        return f"response code {self.code}: {self.remark}"


def refusal_for(code: int, remark: str | None) -> Refusal:
    """The exception for a response code, ready to raise."""
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
    """Nothing is stored under that key, offset or name."""


class InvalidParameter(Refusal, code=ResponseCode.INVALID_PARAMETER):
    """A value of the request is out of its bounds."""


class GoAway(Refusal, code=ResponseCode.GO_AWAY, retriable=True):
    """The server is shutting down; connect again or use another one."""
