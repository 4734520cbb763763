"""Request dispatch: route each request frame to its handler and encode the reply or refusal."""

import logging
from collections.abc import Callable, Coroutine, Iterator
from inspect import iscoroutinefunction
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from bolide.kernel import encode_frame
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.errors import ProtocolError
from bolide.protocol.frame import Frame, FrameFlag
from bolide.protocol.framing import MAX_FRAME_SIZE
from bolide.protocol.header import Header
from bolide.protocol.refusals import InvalidParameter, Refusal, ServerError
from bolide.remoting.latencies import OTHER, RpcLatencies, RpcOutcome

if TYPE_CHECKING:
    from bolide.remoting.connection import Connection

log = logging.getLogger(__name__)

H = TypeVar("H", bound=Header)

HandlerSpec = tuple[type[Header], tuple[RequestCode, ...], int | None, Header | None]
"""Arguments of `handles`: header class, request codes, maximum body size, header of refusals."""


class Request(msgspec.Struct, Generic[H], frozen=True):
    """One request as its handler sees it."""

    header: H
    frame: Frame
    connection: "Connection"

    @property
    def body(self) -> bytes:
        return self.frame.body


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a handler; refusals are raised instead.

    `code` serves results that are neither success nor refusal: a message stored but not flushed,
    a pull that found no message yet.
    """

    header: Header | None = None
    body: bytes = b""
    remark: str | None = None
    code: int = ResponseCode.SUCCESS


class DeferredReply:
    """Returned by a synchronous handler that replies later; lighter than a task.

    The handler's side calls `answer` or `fail` exactly once. If the connection is lost first,
    `on_lost` is called if set, and a later reply is discarded. A large reply should wait while
    `is_blocked` is true; `on_room` is then called once when the peer reads again. `translate`
    changes the reply, but no refusal, before it is sent.
    """

    __slots__ = (
        "_connection", "_dispatcher", "_frame", "_outcome", "_started", "is_long_polling",
        "is_lost", "on_lost", "on_room", "translate",
    )  # fmt: skip

    def __init__(self) -> None:
        self.on_lost: Callable[[], None] | None = None
        self.on_room: Callable[[], None] | None = None
        self.translate: Callable[[Reply], Reply] | None = None
        self.is_lost = False
        self.is_long_polling = False
        """Whether the request waits for messages."""
        self._started = 0.0
        self._dispatcher: Dispatcher | None = None
        self._frame: Frame | None = None
        self._connection: Connection | None = None
        self._outcome: Reply | Exception | None = None

    def answer(self, reply: Reply) -> None:
        self._complete(reply)

    def fail(self, exc: Exception) -> None:
        """Reply with a refusal, or with the error response for another exception."""
        self._complete(exc)

    def connection_lost(self) -> None:
        """Called by the connection when it is lost before the reply was sent."""
        self.is_lost = True
        if self.on_lost is not None:
            self.on_lost()

    @property
    def is_blocked(self) -> bool:
        """Whether the peer is not reading, so that a reply would stay in memory."""
        return self._connection is not None and self._connection.is_blocked

    def peer_reads_again(self) -> None:
        """Called by the connection when the peer, after back-pressure, reads again."""
        on_room, self.on_room = self.on_room, None
        if on_room is not None:
            on_room()

    def bind(
        self,
        dispatcher: "Dispatcher",
        frame: Frame,
        connection: "Connection",
        weight: int,
        started: float,
    ) -> None:
        """Register this reply with its connection; a reply given before is sent now.

        Args:
            weight: bytes of the request, which may stay in memory until the reply is sent.
            started: when the request arrived, by `time.monotonic`.
        """
        self.address(dispatcher, frame, connection, started)
        connection.expect_reply(self, weight)
        if self._outcome is not None:
            self._complete(self._outcome)

    def address(
        self, dispatcher: "Dispatcher", frame: Frame, connection: "Connection", started: float
    ) -> None:
        """Set the destination only, for a reply already registered with its connection."""
        self._dispatcher, self._frame, self._connection = dispatcher, frame, connection
        self._started = started

    def _complete(self, outcome: Reply | Exception) -> None:
        if self.is_lost:
            return
        if self._dispatcher is None or self._frame is None or self._connection is None:
            self._outcome = outcome
            return
        if self.translate is not None and isinstance(outcome, Reply):
            outcome = self.translate(outcome)
        reply = self._dispatcher.finish(
            self._frame,
            outcome,
            self._connection,
            self._started,
            is_long_polling=self.is_long_polling,
        )
        self._connection.send_expected(self, reply)


class RequestHook(Protocol):
    """Observes each request of a client before it is sent, and its response."""

    def before(self, peer: str, request: Frame) -> None: ...

    def after(self, peer: str, request: Frame, response: Frame) -> None: ...


class Gate(Protocol):
    """Admits or refuses every request before its handler runs."""

    def admit(self, request: Frame, connection: "Connection") -> None:
        """Check a request. Raises Refusal if it must not be served."""
        ...

    def completed(self, request: Frame, response: Frame, connection: "Connection") -> None:
        """Called for each response before it is sent."""
        ...

    @property
    def keeps_requests(self) -> bool:
        """Whether `completed` needs the complete request, not just its code and opaque number."""
        ...


def handles(
    header: type[H],
    *codes: RequestCode,
    max_body: int | None = None,
    refused_with: Header | None = None,
) -> Callable[[Callable[[Any, Request[H]], Any]], Callable[[Any, Request[H]], Any]]:
    """Declare a method as the handler of `codes`; it receives a `Request` with that header.

    A synchronous method is called on the event loop and must not block; it may return a
    `DeferredReply`. An `async` method runs as a task. Bodies over `max_body` bytes are refused
    before the method is called.

    Refusals carry the fields of `refused_with`: those that Java's processor sends whatever the
    outcome is, because they are primitives in its response header.
    """

    def declare(method: Callable[[Any, Request[H]], Any]) -> Callable[[Any, Request[H]], Any]:
        method.__handles__ = (header, codes, max_body, refused_with)  # type: ignore[attr-defined]
        return method

    return declare


class Route(NamedTuple):
    """The handler of one request code."""

    header: type[Header]
    call: Callable[[Request[Any]], Any]
    is_async: bool
    max_body: int | None
    refused_with: Header | None


_WITH_PASSWORDS = {
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
    RequestCode.AUTH_CREATE_USER,
    RequestCode.AUTH_UPDATE_USER,
}


class Dispatcher:
    """Passes each request to the handler of its code and turns the outcome into a response."""

    def __init__(
        self, *groups: object, gate: Gate | None = None, latencies: RpcLatencies | None = None
    ) -> None:
        self.routes: dict[int, Route] = {}
        self.latencies = latencies or RpcLatencies()
        self._gate = gate
        for group in groups:
            self._add(group)

    def dispatch(
        self, frame: Frame, connection: "Connection"
    ) -> bytes | Coroutine[Any, Any, bytes | None] | None:
        """Handle a request.

        Returns:
            The bytes of the response, a coroutine that returns them, or None for a one-way request
            and for a reply sent later.
        """
        route = self.routes.get(frame.code)
        if route is not None and route.is_async:
            return self._finish_async(route, frame, connection)
        started = monotonic()
        try:
            self._admit(frame, connection)
            if route is None:
                return self._close(frame, _unsupported(frame), connection, started)
            outcome = route.call(_request_of(route, frame, connection))
            if isinstance(outcome, DeferredReply):
                whole = self._gate is not None and self._gate.keeps_requests
                retained = frame if whole else _stub(frame)
                outcome.bind(self, retained, connection, len(frame.body), started)
                return None
            response = _success(outcome)
        except Exception as exc:  # noqa: BLE001  boundary: every failure becomes a response
            # No reference to the exception is kept: its traceback would keep the body alive.
            response = self._failure(frame, exc)
        return self._close(frame, response, connection, started)

    def finish(
        self,
        frame: Frame,
        outcome: Reply | Exception,
        connection: "Connection",
        started: float,
        *,
        is_long_polling: bool = False,
    ) -> bytes | None:
        """Encode a deferred response; None if the request was one-way."""
        if isinstance(outcome, Exception):
            response = self._failure(frame, outcome)
        else:
            response = _success(outcome)
        return self._close(frame, response, connection, started, is_long_polling=is_long_polling)

    async def _finish_async(
        self, route: Route, frame: Frame, connection: "Connection"
    ) -> bytes | None:
        started = monotonic()
        try:
            self._admit(frame, connection)
            response = _success(await route.call(_request_of(route, frame, connection)))
        except Exception as exc:  # noqa: BLE001  boundary, as above
            response = self._failure(frame, exc)
        return self._close(frame, response, connection, started)

    def _admit(self, frame: Frame, connection: "Connection") -> None:
        if self._gate is not None:
            self._gate.admit(frame, connection)

    def _close(
        self,
        frame: Frame,
        response: Frame,
        connection: "Connection",
        started: float,
        *,
        is_long_polling: bool = False,
    ) -> bytes | None:
        outcome = OTHER  # a client chooses the code: it must not fill the table
        if frame.code in self.routes:
            outcome = RpcOutcome(frame.code, response.code, is_long_polling, frame.is_one_way)
        self.latencies.add(outcome, monotonic() - started)
        try:
            if self._gate is not None:
                self._gate.completed(frame, response, connection)
            return _response(frame, response)
        except Exception as exc:  # noqa: BLE001  boundary: a hook or the encoding of the reply failed
            return _response(frame, self._failure(frame, exc))

    def _failure(self, frame: Frame, exc: Exception) -> Frame:
        response = _failure(frame, exc)
        route = self.routes.get(frame.code)
        if route is not None and route.refused_with is not None:
            response.fields = route.refused_with.to_fields()
        return response

    def _add(self, group: object) -> None:
        for name, (header, codes, max_body, refused_with) in _handlers_of(type(group)):
            method = getattr(group, name)
            for code in codes:
                if code in self.routes:
                    raise ValueError(f"{code!r} has two handlers: {name} is the second")
                is_async = iscoroutinefunction(method)
                self.routes[code] = Route(header, method, is_async, max_body, refused_with)


def _request_of(route: Route, frame: Frame, connection: "Connection") -> Request[Any]:
    if route.max_body is not None and len(frame.body) > route.max_body:
        raise InvalidParameter(
            f"a body of {len(frame.body)} bytes is over the limit of {route.max_body}"
        )
    return Request(route.header.from_fields(frame.fields), frame, connection)


def handled_codes(group: type) -> set[RequestCode]:
    """Return the request codes that a handler class serves."""
    return {code for _, (_, codes, *_) in _handlers_of(group) for code in codes}


def _handlers_of(group: type) -> Iterator[tuple[str, HandlerSpec]]:
    """Yield the handler methods of a class by name, with the arguments of `handles`."""
    for name in dir(group):
        spec = getattr(getattr(group, name), "__handles__", None)
        if spec is not None:
            yield name, spec


def _stub(frame: Frame) -> Frame:
    """Copy what the response needs of a request, so that fields and body can be freed."""
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
        shown = "(it may hold a password)" if frame.code in _WITH_PASSWORDS else exc
        log.warning("request %s is malformed: %s", frame.code, shown)
        return Frame(code=ResponseCode.SYSTEM_ERROR, remark=str(exc))
    log.error("request %s failed", frame.code, exc_info=exc)
    return Frame(code=ResponseCode.SYSTEM_ERROR, remark=f"{type(exc).__name__}: {exc}")


def _unsupported(frame: Frame) -> Frame:
    # RocketMQ's own wording, leading blank included.
    remark = f" request type {frame.code} not supported"
    return Frame(code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)


def _response(frame: Frame, response: Frame) -> bytes | None:
    """Encode the response to a request; None for a one-way request, even if it failed."""
    if frame.flag & FrameFlag.ONE_WAY:
        return None
    response.opaque = frame.opaque
    response.flag = FrameFlag.RESPONSE
    response.encoding = frame.encoding
    encoded = encode_frame(response)
    if len(encoded) > MAX_FRAME_SIZE:
        raise ServerError(f"a reply of {len(encoded)} bytes is over the limit of {MAX_FRAME_SIZE}")
    return encoded
