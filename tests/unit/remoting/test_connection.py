"""`Connection` on a transport without a socket."""

import asyncio
import time

import pytest

from bolide.protocol.frame import Frame, FrameFlag
from bolide.protocol.framing import FrameDecoder, encode_frame, frame_size
from bolide.remoting import connection as connection_module
from bolide.remoting.calls import ConnectionLimits
from bolide.remoting.connection import Connection, FastPath, finish_all
from bolide.remoting.dispatch import DeferredReply, Dispatcher
from bolide.remoting.errors import CallTimedOut, ConnectionLost
from bolide.remoting.wire import MemoryBudget, Outbox
from tests.support.aio import on_loop, until
from tests.support.echo import ECHO, WAIT, Echo
from tests.support.transport import FakeTransport
from tests.support.wire import request_bytes, response_of

GARBAGE = b"\xff\xff\xff\xff not a frame"


@pytest.fixture(autouse=True)
def long_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make turns long, so that a busy machine does not end one within a test."""
    monkeypatch.setattr(connection_module, "_TURN", 60.0)


class Wired:
    """A connection with its handlers and transport."""

    def __init__(
        self, limits: ConnectionLimits | None = None, fast: FastPath | None = None
    ) -> None:
        self.echo = Echo()
        self.opened: list[Connection] = []
        self.closed: list[Connection] = []
        self.outbox = Outbox()
        self.held = MemoryBudget(10**9, lambda: None)
        self.connection = Connection(
            Dispatcher(self.echo),
            limits or ConnectionLimits(),
            outbox=self.outbox,
            memory_budget=self.held,
            on_open=self.opened.append,
            on_close=self.closed.append,
            fast=fast,
        )
        self.transport = FakeTransport()
        self.transport.attach(self.connection)

    def receive(self, *frames: bytes) -> None:
        self.connection.data_received(b"".join(frames))
        self.outbox.flush()

    def respond(self, request: Frame, **fields: bytes) -> None:
        answer = Frame(flag=FrameFlag.RESPONSE, opaque=request.opaque, **fields)  # type: ignore[arg-type]
        self.receive(encode_frame(answer))

    @property
    def sent(self) -> Frame:
        """The last frame written."""
        self.outbox.flush()
        return response_of(self.transport.writes[-1])


def small(**limits: int | bool) -> ConnectionLimits:
    return ConnectionLimits(write_high_water=1000, **limits)  # type: ignore[arg-type]


# Receiving


@on_loop
async def test_replies_to_one_buffer_leave_in_one_write_and_in_order() -> None:
    wired = Wired()
    wired.receive(*(request_bytes(ECHO, opaque=number) for number in range(5)))
    (written,) = wired.transport.writes
    single = [request_bytes(ECHO, opaque=number) for number in range(5)]
    expected = Wired()
    for request in single:
        expected.receive(request)
    assert written == b"".join(expected.transport.writes)


@on_loop
async def test_a_request_in_pieces_is_answered_once_it_is_whole() -> None:
    wired = Wired()
    request = request_bytes(ECHO, body=b"whole")
    for byte in request[:-1]:
        wired.receive(bytes([byte]))
    assert wired.transport.writes == []
    wired.receive(request[-1:])
    assert wired.sent.body == b"whole"


@on_loop
async def test_what_came_before_garbage_is_answered_before_the_close() -> None:
    wired = Wired()
    wired.receive(request_bytes(ECHO, opaque=3), GARBAGE)
    assert wired.sent.opaque == 3
    assert wired.transport.is_closing()
    wired.receive(request_bytes(ECHO, opaque=4))
    assert wired.sent.opaque == 3


@on_loop
async def test_a_frame_over_the_limit_closes_the_connection() -> None:
    wired = Wired(ConnectionLimits(max_frame_size=100))
    wired.receive(request_bytes(ECHO, body=bytes(100))[:4])
    assert wired.transport.is_closing()


@on_loop
async def test_a_response_nobody_waits_for_is_passed_over() -> None:
    wired = Wired()
    wired.respond(Frame(opaque=99))
    assert wired.transport.writes == []
    assert not wired.transport.is_closing()


@on_loop
async def test_too_many_requests_under_way_are_told_it_is_busy() -> None:
    wired = Wired(ConnectionLimits(max_requests=1))
    wired.receive(request_bytes(WAIT, opaque=1), request_bytes(WAIT, opaque=2))
    assert (wired.sent.opaque, wired.sent.code) == (2, 2)
    wired.receive(request_bytes(WAIT, opaque=3, one_way=True))
    assert wired.sent.opaque == 2
    wired.echo.release.set()
    await wired.connection.finish()
    assert wired.sent.opaque == 1


@on_loop
async def test_answers_leave_before_the_end_of_a_peer_that_says_no_more() -> None:
    wired = Wired()
    wired.connection.data_received(request_bytes(ECHO, opaque=3))
    wired.connection.eof_received()
    assert wired.sent.opaque == 3


@on_loop
async def test_a_peer_with_many_bytes_under_way_is_not_read_until_some_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "_MAX_IN_FLIGHT", 10_000)
    wired = Wired()
    wired.receive(*(request_bytes(WAIT, opaque=number, body=bytes(6000)) for number in range(3)))
    assert 18_000 < wired.connection.held < 21_000, "the third waits as the bytes that came"
    assert not wired.transport.is_read
    wired.echo.release.set()
    await until(lambda: wired.transport.is_read)
    assert wired.connection.held == 0
    answers = FrameDecoder().feed(b"".join(wired.transport.writes))
    assert [answer.opaque for answer in answers] == [0, 1, 2]


@on_loop
async def test_a_request_under_way_before_garbage_is_answered_before_the_close() -> None:
    wired = Wired()
    wired.receive(request_bytes(WAIT, opaque=3), GARBAGE)
    assert not wired.transport.is_closing()
    wired.echo.release.set()
    await wired.connection.wait_closed()
    assert wired.sent.opaque == 3


@on_loop
async def test_fields_of_requests_under_way_count_as_held() -> None:
    wired = Wired()
    wired.receive(request_bytes(WAIT, {"value": "x" * 5000}))
    assert wired.connection.held > 5000
    wired.echo.release.set()
    await wired.connection.finish()


@on_loop
async def test_what_an_aborted_connection_held_is_given_back_once_and_at_once() -> None:
    wired = Wired()
    wired.receive(request_bytes(WAIT, body=bytes(5000)), b"\0\0")
    assert wired.held.total == wired.connection.held > 5000
    wired.connection.abort()
    assert (wired.held.total, wired.connection.held) == (0, 0)
    await wired.connection.wait_closed()
    await until(lambda: wired.connection.is_idle)
    assert wired.held.total == 0


@on_loop
async def test_nothing_can_be_sent_once_the_end_was_announced() -> None:
    wired = Wired()
    finishing = asyncio.create_task(wired.connection.finish())
    await asyncio.sleep(0)
    with pytest.raises(ConnectionLost):
        await wired.connection.notify(Frame(code=1))
    await finishing


# Flow control


@on_loop
async def test_a_server_stops_at_the_high_water_mark_and_goes_on_where_it_stopped() -> None:
    wired = Wired(small())
    wired.receive(*(request_bytes(ECHO, opaque=number, body=bytes(600)) for number in range(6)))
    assert wired.echo.seen.qsize() == 2
    assert not wired.transport.is_read
    assert not wired.connection.is_idle
    wired.transport.drain()
    assert wired.echo.seen.qsize() == 4
    assert not wired.transport.is_read
    for _ in range(2):
        wired.transport.drain()
    assert wired.echo.seen.qsize() == 6
    assert wired.transport.is_read
    assert wired.connection.is_idle


@on_loop
async def test_many_requests_at_once_are_served_in_turns_and_nothing_is_read_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "_TURN", -1.0)  # a turn is over after one request
    wired = Wired()
    wired.receive(*(request_bytes(ECHO, opaque=number) for number in range(4)), GARBAGE)
    for served in range(1, 5):
        assert wired.echo.seen.qsize() == served
        assert not wired.transport.is_read
        await asyncio.sleep(0)
    assert [response_of(data).opaque for data in wired.transport.writes] == [0, 1, 2, 3]
    assert wired.transport.is_closing()


@on_loop
async def test_reading_goes_on_after_the_last_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "_TURN", -1.0)
    wired = Wired()
    wired.receive(*(request_bytes(ECHO) for _ in range(3)))
    assert not wired.transport.is_read
    for _ in range(2):
        await asyncio.sleep(0)
    assert wired.transport.is_read
    assert wired.connection.is_idle


@on_loop
async def test_a_connection_lost_between_two_turns_does_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "_TURN", -1.0)
    wired = Wired()
    wired.receive(*(request_bytes(ECHO) for _ in range(3)))
    wired.connection.abort()
    await wired.connection.wait_closed()
    assert wired.echo.seen.qsize() == 1


@on_loop
async def test_garbage_behind_a_backlog_closes_only_after_the_backlog() -> None:
    wired = Wired(small())
    wired.receive(*(request_bytes(ECHO, body=bytes(1200)) for _ in range(2)), GARBAGE)
    assert not wired.transport.is_closing()
    for _ in range(2):
        wired.transport.drain()
    assert wired.echo.seen.qsize() == 2
    assert wired.transport.is_closing()


@on_loop
async def test_a_client_reads_on_while_it_cannot_write() -> None:
    wired = Wired(small(always_read=True))
    calls = [
        asyncio.create_task(wired.connection.call(Frame(code=ECHO, body=bytes(1200)), 5.0))
        for _ in range(2)
    ]
    await asyncio.sleep(0)
    assert len(wired.transport.writes) == 1  # the second waits until the transport is writable
    assert wired.transport.is_read
    wired.respond(wired.sent, body=b"first")
    assert (await calls[0]).body == b"first"
    wired.transport.drain()
    await asyncio.sleep(0)
    wired.respond(wired.sent, body=b"second")
    assert (await calls[1]).body == b"second"


@on_loop
async def test_callers_that_wait_for_room_do_not_overfill_it_together() -> None:
    wired = Wired(small(always_read=True))
    notices = [
        asyncio.create_task(wired.connection.notify(Frame(code=ECHO, body=bytes(1200))))
        for _ in range(5)
    ]
    for written in range(1, 6):
        for _ in range(3):
            await asyncio.sleep(0)
        assert len(wired.transport.writes) == written
        wired.transport.drain()
    await asyncio.gather(*notices)


@on_loop
async def test_what_a_peer_does_not_read_counts_as_held_until_it_reads() -> None:
    wired = Wired(small())
    wired.receive(request_bytes(ECHO, body=bytes(500)))
    assert wired.held.total == 0, "there is room for it"
    wired.receive(request_bytes(ECHO, body=bytes(5000)))
    assert wired.connection.is_blocked
    assert wired.held.total == wired.connection.held > 5500
    wired.connection.send_expected(deferred := DeferredReply(), b"nothing is owed")
    wired.connection.expect_reply(deferred, 0)
    wired.connection.send_expected(deferred, bytes(7000))
    assert wired.held.total == wired.connection.held > 12_500
    wired.transport.drain()
    assert not wired.connection.is_blocked
    assert (wired.held.total, wired.connection.held) == (0, 0)


@pytest.mark.parametrize("end", ["abort", "close"])
@on_loop
async def test_what_was_not_read_is_given_back_once_the_connection_is_gone(end: str) -> None:
    wired = Wired(small())
    wired.receive(*(request_bytes(ECHO, body=bytes(5000)) for _ in range(2)))
    assert wired.held.total > 10_000
    getattr(wired.connection, end)()
    await wired.connection.wait_closed()
    assert (wired.held.total, wired.connection.held) == (0, 0)


@on_loop
async def test_who_holds_too_much_that_it_does_not_read_can_be_closed() -> None:
    wired = Wired(small())
    wired.connection._memory_budget = MemoryBudget(20_000, wired.connection.abort)
    for number in range(1, 5):
        wired.connection.expect_reply(deferred := DeferredReply(), 0)
        wired.connection.send_expected(deferred, bytes(6000))
        assert wired.transport.aborted == (number == 4)


# Calls


@on_loop
async def test_a_notice_that_waits_for_room_keeps_no_permit() -> None:
    permits = asyncio.Semaphore(1)
    deaf, other = (Wired(ConnectionLimits(write_high_water=9, one_way_calls=permits)) for _ in "12")
    await deaf.connection.notify(Frame(code=ECHO))
    deaf.outbox.flush()
    assert deaf.connection.is_blocked
    waiting = asyncio.create_task(deaf.connection.notify(Frame(code=ECHO)))
    await asyncio.sleep(0)
    await asyncio.wait_for(other.connection.notify(Frame(code=ECHO)), 5.0)
    assert not waiting.done()
    deaf.transport.drain()
    await waiting
    assert (deaf.sent.opaque, other.sent.opaque) == (2, 1)


@on_loop
async def test_a_call_is_numbered_and_a_notice_is_marked_one_way() -> None:
    wired = Wired()
    call = asyncio.create_task(wired.connection.call(Frame(code=ECHO), 5.0))
    await asyncio.sleep(0)
    assert (wired.sent.opaque, wired.sent.flag) == (1, 0)
    wired.respond(wired.sent)
    await call
    await wired.connection.notify(Frame(code=ECHO))
    assert (wired.sent.opaque, wired.sent.flag) == (2, FrameFlag.ONE_WAY)


@on_loop
async def test_a_call_without_an_answer_times_out_and_is_forgotten() -> None:
    wired = Wired()
    with pytest.raises(CallTimedOut) as caught:
        await wired.connection.call(Frame(code=ECHO), 0.01)
    assert (caught.value.code, caught.value.seconds) == (ECHO, 0.01)
    assert wired.connection.is_idle
    wired.respond(Frame(opaque=1))


@on_loop
async def test_a_call_that_never_gets_to_be_sent_times_out() -> None:
    wired = Wired(small(always_read=True))
    await wired.connection.notify(Frame(code=ECHO, body=bytes(2000)))
    with pytest.raises(CallTimedOut):
        await wired.connection.call(Frame(code=ECHO), 0.01)
    assert len(wired.transport.writes) == 1


@on_loop
async def test_a_closed_connection_refuses_calls_and_fails_those_that_wait() -> None:
    wired = Wired(small(always_read=True))
    waiting = asyncio.create_task(wired.connection.call(Frame(code=ECHO, body=bytes(2000)), 5.0))
    blocked = asyncio.create_task(wired.connection.notify(Frame(code=ECHO)))
    await asyncio.sleep(0)
    wired.connection.abort()
    for call in (waiting, blocked):
        with pytest.raises(ConnectionLost):
            await call
    with pytest.raises(ConnectionLost):
        await wired.connection.call(Frame(code=ECHO), 5.0)
    with pytest.raises(ConnectionLost):
        await wired.connection.notify(Frame(code=ECHO))


# Life


@on_loop
async def test_opening_and_closing_are_told_once() -> None:
    wired = Wired()
    assert wired.opened == [wired.connection]
    assert wired.connection.peer == "10.0.0.9:4711"
    assert not wired.connection.is_closed
    wired.connection.close()
    wired.connection.close()
    await wired.connection.wait_closed()
    assert wired.closed == [wired.connection]
    assert wired.connection.is_closed


@on_loop
async def test_only_whole_frames_count_as_activity() -> None:
    wired = Wired()
    wired.connection.last_active = 0.0
    wired.receive(request_bytes(ECHO)[:-1])
    assert wired.connection.last_active == 0.0
    wired.receive(request_bytes(ECHO)[-1:])
    assert wired.connection.last_active > 0.0


@on_loop
async def test_a_finishing_connection_answers_what_is_under_way_and_begins_no_more() -> None:
    wired = Wired(small())
    wired.receive(request_bytes(WAIT, opaque=1))
    wired.receive(*(request_bytes(ECHO, opaque=number, body=bytes(1200)) for number in (2, 3)))
    finishing = asyncio.create_task(wired.connection.finish())
    await asyncio.sleep(0)
    wired.transport.drain()  # the client reads again, which must not start further requests
    wired.receive(request_bytes(ECHO, opaque=4))
    assert wired.echo.seen.qsize() == 1
    assert wired.transport.is_read, "unread bytes would reset the connection"
    wired.echo.release.set()
    await finishing
    assert wired.sent.opaque == 1
    await wired.connection.finish()


@on_loop
async def test_what_does_not_finish_in_time_is_aborted_and_counted() -> None:
    slow, quick = Wired(), Wired()
    slow.receive(request_bytes(WAIT))
    assert await finish_all([slow.connection, quick.connection], 0.01) == 1
    assert (slow.transport.aborted, quick.transport.aborted) == (True, False)
    assert slow.connection.is_gone
    assert await finish_all([], 0.0) == 0


# Answers that are owed


@on_loop
async def test_an_expected_reply_counts_as_in_flight_until_it_is_sent() -> None:
    wired, deferred = Wired(), DeferredReply()
    wired.connection.expect_reply(deferred, 5000)
    assert not wired.connection.is_idle
    assert wired.held.total == wired.connection.held > 5000
    wired.connection.send_expected(deferred, b"bytes")
    wired.outbox.flush()
    assert wired.transport.writes == [b"bytes"]
    assert wired.connection.is_idle
    assert (wired.held.total, wired.connection.held) == (0, 0)


@on_loop
async def test_a_lost_connection_releases_the_bytes_of_expected_replies() -> None:
    wired, deferred = Wired(), DeferredReply()
    wired.connection.expect_reply(deferred, 5000)
    wired.transport.close()
    await wired.connection.wait_closed()
    assert deferred.is_lost
    assert wired.held.total == 0
    wired.connection.send_expected(deferred, b"too late")
    assert (wired.held.total, wired.transport.writes) == (0, [])


@on_loop
async def test_reading_pauses_while_expected_replies_hold_many_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "_MAX_IN_FLIGHT", 10_000)
    wired, deferred = Wired(), DeferredReply()
    wired.connection.expect_reply(deferred, 10_000)
    assert not wired.transport.is_read
    wired.receive(request_bytes(ECHO, opaque=3))
    assert wired.transport.writes == []
    wired.connection.send_expected(deferred, None)
    await until(lambda: wired.transport.is_read)
    assert wired.sent.opaque == 3


@on_loop
async def test_expected_replies_count_towards_the_request_limit() -> None:
    wired = Wired(ConnectionLimits(max_requests=1))
    wired.connection.expect_reply(DeferredReply(), 0)
    wired.receive(request_bytes(ECHO, opaque=2))
    assert (wired.sent.opaque, wired.sent.code) == (2, 2)


@on_loop
async def test_a_finishing_connection_sends_expected_replies_before_it_closes() -> None:
    wired, deferred = Wired(), DeferredReply()
    wired.connection.expect_reply(deferred, 0)
    finishing = asyncio.create_task(wired.connection.finish())
    await asyncio.sleep(0.01)
    assert not finishing.done()
    wired.connection.send_expected(deferred, b"bytes")
    await finishing
    assert wired.transport.writes == [b"bytes"]


@on_loop
async def test_a_finishing_connection_that_is_lost_waits_for_nothing() -> None:
    wired = Wired()
    wired.connection.expect_reply(DeferredReply(), 0)
    finishing = asyncio.create_task(wired.connection.finish())
    await asyncio.sleep(0)
    wired.connection.abort()
    await finishing


@on_loop
async def test_replies_expected_before_garbage_are_sent_before_the_close() -> None:
    wired, deferred = Wired(), DeferredReply()
    wired.connection.expect_reply(deferred, 0)
    wired.receive(GARBAGE)
    assert not wired.transport.is_closing()
    wired.connection.send_expected(deferred, b"bytes")
    await wired.connection.wait_closed()
    assert wired.transport.writes == [b"bytes"]


@pytest.mark.parametrize(("size", "writes"), [(100, 1), (100_000, 2)], ids=["small", "large"])
@on_loop
async def test_small_replies_are_joined_and_large_ones_are_not_copied(
    size: int, writes: int
) -> None:
    wired = Wired()
    for letter in (b"a", b"b"):
        wired.connection.put(letter * size)
    wired.outbox.flush()
    assert len(wired.transport.writes) == writes
    assert b"".join(wired.transport.writes) == b"a" * size + b"b" * size


# The fast path


class Quick:
    """A fast path that serves frames ending with `!` and records its calls."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    def serve(self, data: bytes, position: int, connection: Connection, until: float) -> int:
        self.asked.append(data[position:])
        while size := frame_size(data, position):
            end = position + size
            if end > len(data) or data[end - 1 : end] != b"!":
                break
            position = end
            connection.put(b"!")
            if time.monotonic() > until:
                break
        return position


def quick(opaque: int = 0) -> bytes:
    return request_bytes(ECHO, opaque=opaque, body=b"quick!")


def slow(opaque: int) -> bytes:
    return request_bytes(ECHO, opaque=opaque, body=b"slow")


def written(wired: Wired) -> list[int | str]:
    """Opaque numbers of the handlers' replies, and `!` for each reply of the fast path."""
    wired.outbox.flush()
    data, found = b"".join(wired.transport.writes), list[int | str]()
    while data:
        if data.startswith(b"!"):
            found.append("!")
            data = data[1:]
            continue
        size = frame_size(data)
        found.append(response_of(data[:size]).opaque)
        data = data[size:]
    return found


@on_loop
async def test_what_the_fast_path_knows_never_becomes_a_frame() -> None:
    fast = Quick()
    wired = Wired(fast=fast)
    wired.receive(quick(), quick())
    assert written(wired) == ["!", "!"]
    assert fast.asked == [quick() * 2]
    assert wired.echo.seen.empty()


@on_loop
async def test_what_it_does_not_know_takes_the_ordinary_way_in_the_order_of_arrival() -> None:
    wired = Wired(fast=Quick())
    wired.receive(slow(1), quick(), quick(), slow(2), slow(3), quick())
    assert written(wired) == [1, "!", "!", 2, 3, "!"]


@pytest.mark.parametrize("cut", [1, 4, 7, 8, 40, -1])
@on_loop
async def test_a_frame_in_pieces_is_for_the_ordinary_way_and_what_follows_is_not(cut: int) -> None:
    fast = Quick()
    wired = Wired(fast=fast)
    wired.receive(quick(), quick(2)[:cut])
    wired.receive(quick(2)[cut:])
    assert written(wired) == ["!", 2]
    assert len(fast.asked) == 1, "it is not asked in the middle of a frame"
    wired.receive(quick())
    assert written(wired) == ["!", 2, "!"]


@on_loop
async def test_behind_a_frame_in_pieces_the_rest_of_the_bytes_is_served_ahead() -> None:
    fast = Quick()
    wired = Wired(fast=fast)
    wired.receive(quick(2)[:9])
    wired.receive(quick(2)[9:], quick(), quick())
    assert written(wired) == [2, "!", "!"]


@on_loop
async def test_behind_a_blocked_peer_nothing_is_served_out_of_turn() -> None:
    fast = Quick()
    wired = Wired(small(), fast=fast)
    wired.receive(*(request_bytes(ECHO, opaque=number, body=bytes(600)) for number in range(4)))
    assert not wired.transport.is_read
    asked = len(fast.asked)
    wired.receive(quick(9))
    assert len(fast.asked) == asked
    wired.transport.drain()
    wired.outbox.flush()
    wired.transport.drain()
    assert written(wired) == [0, 1, 2, 3, "!"]


@on_loop
async def test_what_came_before_garbage_is_served_before_the_close() -> None:
    wired = Wired(fast=Quick())
    wired.receive(quick(), slow(1), GARBAGE, quick())
    assert written(wired) == ["!", 1]
    assert wired.transport.is_closing()


@on_loop
async def test_a_finishing_connection_asks_the_fast_path_no_more() -> None:
    fast = Quick()
    wired = Wired(fast=fast)
    finishing = asyncio.create_task(wired.connection.finish())
    await asyncio.sleep(0)
    wired.receive(quick())
    await finishing
    assert (fast.asked, written(wired)) == ([], [])


@on_loop
async def test_with_too_many_requests_under_way_the_fast_path_is_not_asked() -> None:
    fast = Quick()
    wired = Wired(ConnectionLimits(max_requests=1), fast=fast)
    wired.connection.expect_reply(DeferredReply(), 0)
    wired.receive(quick(5))
    assert fast.asked == []
    assert (wired.sent.opaque, wired.sent.code) == (5, 2)


@on_loop
async def test_only_what_is_served_counts_as_activity_with_a_fast_path_too() -> None:
    wired = Wired(fast=Quick())
    wired.connection.last_active = 0.0
    wired.receive(quick()[:5])
    assert wired.connection.last_active == 0.0
    wired.receive(quick()[5:])
    assert wired.connection.last_active > 0.0
    wired.connection.last_active = 0.0
    wired.receive(quick())
    assert wired.connection.last_active > 0.0


@on_loop
async def test_both_ways_together_get_one_turn_and_the_rest_waits_as_the_bytes_that_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "_TURN", -1.0)  # a turn is over after one request
    wired = Wired(fast=Quick())
    frames = [slow(1), quick(), quick(), slow(2), quick(), slow(3)[:9]]
    wired.receive(*frames)
    answers: list[int | str] = [1, "!", "!", 2, "!"]
    for served in range(1, 6):
        assert written(wired) == answers[:served]
        assert not wired.transport.is_read
        assert wired.held.total == wired.connection.held == len(b"".join(frames[served:]))
        assert not wired.connection.is_idle
        await asyncio.sleep(0)
    assert wired.transport.is_read
    wired.receive(slow(3)[9:])
    await asyncio.sleep(0)
    assert written(wired) == [*answers, 3]
    assert (wired.held.total, wired.connection.is_idle) == (0, True)


@on_loop
async def test_a_turn_has_one_end_however_often_the_two_ways_alternate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "_TURN", 0.01)
    wired = Wired(fast=Quick())
    seen = wired.echo.seen.put_nowait

    def see_slowly(it: tuple[str | None, bytes]) -> None:
        time.sleep(0.004)
        seen(it)

    monkeypatch.setattr(wired.echo.seen, "put_nowait", see_slowly)
    wired.receive(*(slow(number) + quick() for number in range(20)))
    assert 1 <= wired.echo.seen.qsize() <= 3
    await until(lambda: wired.transport.is_read)
    assert wired.echo.seen.qsize() == 20


@on_loop
async def test_what_comes_while_the_rest_waits_waits_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "_TURN", -1.0)
    wired = Wired(fast=Quick())
    wired.receive(slow(1), slow(2)[:20])
    wired.receive(slow(2)[20:], quick())
    await until(lambda: wired.transport.is_read)
    assert written(wired) == [1, 2, "!"]


@pytest.mark.parametrize("end", ["abort", "finish"])
@on_loop
async def test_what_waits_for_its_turn_is_not_begun_when_the_connection_ends(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "_TURN", -1.0)
    wired = Wired(fast=Quick())
    wired.receive(slow(1), slow(2), quick(), GARBAGE)
    if end == "abort":
        wired.connection.abort()
        await wired.connection.wait_closed()
    else:
        await wired.connection.finish()
    assert written(wired) == [1]
    assert wired.echo.seen.qsize() == 1
    assert wired.held.total == 0


@on_loop
async def test_who_is_closed_for_what_it_holds_is_served_no_further() -> None:
    wired = Wired(fast=Quick())
    wired.connection._memory_budget = MemoryBudget(5000, wired.connection.abort)
    wired.receive(request_bytes(WAIT, body=bytes(6000)), slow(2), quick())
    assert wired.transport.aborted
    assert (wired.echo.seen.qsize(), written(wired)) == (0, [])
    await wired.connection.wait_closed()
    await until(lambda: wired.connection.is_idle)
