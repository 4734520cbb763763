"""From a request frame to a handler, and from its reply or refusal to the bytes of the response."""

import logging
from collections.abc import Callable, Coroutine, Iterator
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from bolide.kernel import encode_frame
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.errors import ProtocolError
from bolide.protocol.frame import Frame, FrameFlag
from bolide.protocol.framing import MAX_FRAME_SIZE
from bolide.protocol.header import Header
from bolide.protocol.refusals import InvalidParameter, Refusal, ServerError

if TYPE_CHECKING:
    from bolide.remoting.connection import Connection

log = logging.getLogger(__name__)

H = TypeVar("H", bound=Header)

Mark = tuple[type[Header], tuple[RequestCode, ...], int | None]
"""What a handler was marked with: its header, its codes and its longest body."""


class Request(msgspec.Struct, Generic[H], frozen=True):
    """One request as its handler sees it."""

    header: H
    frame: Frame
    connection: "Connection"

    @property
    def body(self) -> bytes:
        return self.frame.body


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What a handler answers; a refusal is raised instead.

    `code` is for the answers that are neither: stored but not flushed, nothing to pull yet.
    """

    header: Header | None = None
    body: bytes = b""
    remark: str | None = None
    code: int = ResponseCode.SUCCESS


class DeferredReply:
    """Returned by a plain handler whose answer is not known yet: a promise, lighter than a task.

    Whoever keeps it calls `answer` or `fail`, once. When the connection is lost first, `on_lost`
    is called if somebody set it, and what is answered afterwards goes nowhere. A large answer had
    better wait while the promise `is_blocked`; `on_room` is called, once, when it no longer is.
    """

    __slots__ = (
        "_connection", "_dispatcher", "_frame", "_outcome", "is_lost", "on_lost", "on_room",
    )  # fmt: skip

    def __init__(self) -> None:
        self.on_lost: Callable[[], None] | None = None
        self.on_room: Callable[[], None] | None = None
        self.is_lost = False
        self._dispatcher: Dispatcher | None = None
        self._frame: Frame | None = None
        self._connection: Connection | None = None
        self._outcome: Reply | Exception | None = None

    def answer(self, reply: Reply) -> None:
        self._complete(reply)

    def fail(self, exc: Exception) -> None:
        """Answer with a refusal, or with the error that an exception becomes."""
        self._complete(exc)

    def connection_lost(self) -> None:
        """The connection is gone."""
        self.is_lost = True
        if self.on_lost is not None:
            self.on_lost()

    @property
    def is_blocked(self) -> bool:
        """The peer does not read: an answer would stay in memory."""
        return self._connection is not None and self._connection.is_blocked

    def peer_reads_again(self) -> None:
        """The peer reads again."""
        on_room, self.on_room = self.on_room, None
        if on_room is not None:
            on_room()

    def bind(
        self, dispatcher: "Dispatcher", frame: Frame, connection: "Connection", weight: int
    ) -> None:
        """Say where the answer goes; one that was given already goes there now.

        Args:
            weight: bytes of the request, which whoever keeps the promise may be holding.
        """
        self.address(dispatcher, frame, connection)
        connection.expect_reply(self, weight)
        if self._outcome is not None:
            self._complete(self._outcome)

    def address(self, dispatcher: "Dispatcher", frame: Frame, connection: "Connection") -> None:
        """As `bind`, for a connection that knows already what it owes."""
        self._dispatcher, self._frame, self._connection = dispatcher, frame, connection

    def _complete(self, outcome: Reply | Exception) -> None:
        if self.is_lost:
            return
        if self._dispatcher is None or self._frame is None or self._connection is None:
            self._outcome = outcome
            return
        reply = self._dispatcher.finish(self._frame, outcome, self._connection)
        self._connection.send_expected(self, reply)


class RequestHook(Protocol):
    """Sees the requests of a client before they are sent, and their responses."""

    def before(self, peer: str, request: Frame) -> None: ...

    def after(self, peer: str, request: Frame, response: Frame) -> None: ...


class Gate(Protocol):
    """Decides about every request before its handler sees it."""

    def admit(self, request: Frame, connection: "Connection") -> None:
        """Raises Refusal if the request may not be served."""
        ...

    def completed(self, request: Frame, response: Frame, connection: "Connection") -> None:
        """Called with each response before it is sent."""
        ...

    @property
    def keeps_requests(self) -> bool:
        """Whether `completed` needs the whole request, not just its number."""
        ...


def handles(
    header: type[H], *codes: RequestCode, max_body: int | None = None
) -> Callable[[Callable[[Any, Request[H]], Any]], Callable[[Any, Request[H]], Any]]:
    """Mark a method as the handler of `codes`; it gets a `Request` with that header.

    A plain method is called at once and must not block; it may return a `DeferredReply`. An `async`
    method runs as a task. A body over `max_body` bytes is refused before the method sees it.
    """

    def mark(method: Callable[[Any, Request[H]], Any]) -> Callable[[Any, Request[H]], Any]:
        method.__handles__ = (header, codes, max_body)  # type: ignore[attr-defined]
        return method

    return mark


class Route(NamedTuple):
    """Where requests of one code go."""

    header: type[Header]
    call: Callable[[Request[Any]], Any]
    is_async: bool
    max_body: int | None


class Dispatcher:
    """Sends each request to the one handler of its code and turns the outcome into a response."""

    def __init__(self, *groups: object, gate: Gate | None = None) -> None:
        self.routes: dict[int, Route] = {}
        self._gate = gate
        for group in groups:
            self._add(group)

    def dispatch(
        self, frame: Frame, connection: "Connection"
    ) -> bytes | Coroutine[Any, Any, bytes | None] | None:
        """Handle a request: the bytes of its response, an awaitable of them, or None if one-way."""
        route = self.routes.get(frame.code)
        if route is not None and route.is_async:
            return self._finish_async(route, frame, connection)
        try:
            self._admit(frame, connection)
            if route is None:
                return self._close(frame, _unsupported(frame), connection)
            outcome = route.call(_open(route, frame, connection))
            if isinstance(outcome, DeferredReply):
                whole = self._gate is not None and self._gate.keeps_requests
                kept = frame if whole else _stub(frame)
                outcome.bind(self, kept, connection, len(frame.body))
                return None
            response = _success(outcome)
        except Exception as exc:  # noqa: BLE001  the boundary: every failure becomes a response
            # The exception is not kept: it holds the frames it passed, and with them the body.
            response = _failure(frame, exc)
        return self._close(frame, response, connection)

    def finish(
        self, frame: Frame, outcome: Reply | Exception, connection: "Connection"
    ) -> bytes | None:
        """The bytes of a response that came later; None if the request was one-way."""
        if isinstance(outcome, Exception):
            return self._close(frame, _failure(frame, outcome), connection)
        return self._close(frame, _success(outcome), connection)

    async def _finish_async(
        self, route: Route, frame: Frame, connection: "Connection"
    ) -> bytes | None:
        try:
            self._admit(frame, connection)
            response = _success(await route.call(_open(route, frame, connection)))
        except Exception as exc:  # noqa: BLE001  the boundary, as above
            response = _failure(frame, exc)
        return self._close(frame, response, connection)

    def _admit(self, frame: Frame, connection: "Connection") -> None:
        if self._gate is not None:
            self._gate.admit(frame, connection)

    def _close(self, frame: Frame, response: Frame, connection: "Connection") -> bytes | None:
        try:
            if self._gate is not None:
                self._gate.completed(frame, response, connection)
            return _response(frame, response)
        except Exception as exc:  # noqa: BLE001  the boundary still: a hook or the reply is broken
            return _response(frame, _failure(frame, exc))

    def _add(self, group: object) -> None:
        for name, (header, codes, max_body) in _marked(type(group)):
            method = getattr(group, name)
            for code in codes:
                if code in self.routes:
                    raise ValueError(f"{code!r} has two handlers: {name} is the second")
                self.routes[code] = Route(header, method, iscoroutinefunction(method), max_body)


def _open(route: Route, frame: Frame, connection: "Connection") -> Request[Any]:
    if route.max_body is not None and len(frame.body) > route.max_body:
        raise InvalidParameter(
            f"a body of {len(frame.body)} bytes is over the limit of {route.max_body}"
        )
    return Request(route.header.from_fields(frame.fields), frame, connection)


def handled_codes(group: type) -> set[RequestCode]:
    """The codes that a class of handlers answers."""
    return {code for _, (_, codes, _) in _marked(group) for code in codes}


def _marked(group: type) -> Iterator[tuple[str, Mark]]:
    """The handlers of a class, by name, with what `handles` was told."""
    for name in dir(group):
        mark = getattr(getattr(group, name), "__handles__", None)
        if mark is not None:
            yield name, mark


def _stub(frame: Frame) -> Frame:
    """As much of a request as its response needs: many may wait, and fields and body are heavy."""
    return Frame(code=frame.code, flag=frame.flag, opaque=frame.opaque, encoding=frame.encoding)


def _success(reply: Reply) -> Frame:
    return Frame(
        code=reply.code,
        fields=reply.header.to_fields() if reply.header is not None else None,
        body=reply.body,
        remark=reply.remark,
    )


def _failure(frame: Frame, exc: Exception) -> Frame:
    if isinstance(exc, Refusal):
        return Frame(code=exc.code, remark=exc.remark)
    if isinstance(exc, ProtocolError):
        log.warning("request %s is malformed: %s", frame.code, exc)
        return Frame(code=ResponseCode.SYSTEM_ERROR, remark=str(exc))
    log.error("request %s failed", frame.code, exc_info=exc)
    return Frame(code=ResponseCode.SYSTEM_ERROR, remark=f"{type(exc).__name__}: {exc}")


def _unsupported(frame: Frame) -> Frame:
    # RocketMQ's own wording, leading blank included.
    remark = f" request type {frame.code} not supported"
    return Frame(code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)


def _response(frame: Frame, response: Frame) -> bytes | None:
    """Address the response to its request; a one-way request gets none, failures included."""
    if frame.flag & FrameFlag.ONE_WAY:
        return None
    response.opaque = frame.opaque
    response.flag = FrameFlag.RESPONSE
    response.encoding = frame.encoding
    encoded = encode_frame(response)
    if len(encoded) > MAX_FRAME_SIZE:
        raise ServerError(f"a reply of {len(encoded)} bytes is over the limit of {MAX_FRAME_SIZE}")
    return encoded
