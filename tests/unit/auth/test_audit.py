"""The audit of a server, apart from what broker and NameServer describe."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from bolide.auth.access import Identity
from bolide.auth.audit import (
    AUDITED,
    CONNECTION_LOST,
    MAX_NAMES,
    Auditor,
    Denials,
    Subject,
    changes,
    target_of,
)
from bolide.protocol.bodies.audit import AuditRecord
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import Frame
from bolide.protocol.header import NoHeader
from bolide.protocol.headers.access import PlainAclHeader
from bolide.protocol.refusals import InvalidParameter, NoPermission
from bolide.remoting.dispatch import Reply, Request, Route
from tests.support.aio import on_loop, until

CODE = RequestCode.DELETE_TOPIC_IN_BROKER


@dataclass
class Trail:
    """Keeps records."""

    records: list[AuditRecord] = field(default_factory=list)

    async def write(self, record: AuditRecord) -> None:
        self.write_soon(record)

    def write_soon(self, record: AuditRecord) -> None:
        self.records.append(record)


class Bench:
    """An auditor in front of one handler that sets `value`."""

    def __init__(self, handler: Any, *, is_async: bool = True, code: int = CODE) -> None:
        self.trail = Trail()
        self.value = 1
        self.identity = Identity("admin", "10.0.0.9:1", is_verified=True)
        auditor = Auditor(self.trail, lambda *_: self.identity, lambda: "broker-a", lambda: 5.0)
        self.routes = {code: Route(NoHeader, handler, is_async, None, None)}
        describe = lambda _: Subject({"topic": "T"}, lambda: {"value": self.value})  # noqa: E731
        auditor.take_over(self.routes, {code: describe}, {})
        self.code = code

    async def call(self) -> Any:
        frame = Frame(code=self.code)
        request: Request[Any] = Request(NoHeader(), frame, None)  # type: ignore[arg-type]
        return await self.routes[self.code].call(request)


@on_loop
async def test_a_change_is_recorded_with_who_and_what_before_the_answer() -> None:
    async def handler(_: Request[Any]) -> Reply:
        bench.value = 2
        return Reply(remark="fine")

    bench = Bench(handler)
    await bench.call()

    assert bench.trail.records == [
        AuditRecord(
            time=5000, server="broker-a", user="admin", peer="10.0.0.9:1",
            request="DELETE_TOPIC_IN_BROKER", target={"topic": "T"}, code=0, remark="fine",
            before={"value": 1}, after={"value": 2},
        )
    ]  # fmt: skip


@on_loop
async def test_a_name_without_a_signature_is_recorded_as_not_verified() -> None:
    bench = Bench(lambda _: Reply(), is_async=False)
    bench.identity = Identity("admin", "10.0.0.9:1")
    await bench.call()
    assert bench.trail.records[0].user == "admin (not verified)"


@on_loop
async def test_a_refusal_is_recorded_with_what_it_changed_nevertheless() -> None:
    def handler(_: Request[Any]) -> Reply:
        bench.value = 3
        raise InvalidParameter("half of it")

    bench = Bench(handler, is_async=False)
    with pytest.raises(InvalidParameter):
        await bench.call()

    (record,) = bench.trail.records
    assert (record.code, record.remark) == (ResponseCode.INVALID_PARAMETER, "half of it")
    assert (record.before, record.after) == ({"value": 1}, {"value": 3})


@on_loop
async def test_a_lost_connection_hides_no_change() -> None:
    async def handler(_: Request[Any]) -> Reply:
        bench.value = 4
        await asyncio.Event().wait()
        return Reply()

    bench = Bench(handler)
    task = asyncio.ensure_future(bench.call())
    await until(lambda: bench.value == 4)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    (record,) = bench.trail.records
    assert (record.code, record.after) == (CONNECTION_LOST, {"value": 4})


@on_loop
async def test_requests_of_other_purposes_keep_their_route() -> None:
    def handler(_: Request[Any]) -> Reply:
        return Reply()

    bench = Bench(handler, is_async=False, code=RequestCode.SEND_MESSAGE)
    assert bench.routes[RequestCode.SEND_MESSAGE].call is handler


def test_only_what_differs_is_shown() -> None:
    before = {"T": {"perm": 6, "order": False}, "same": 1, "gone": {"a": 1}}
    after = {"T": {"perm": 4, "order": False}, "same": 1, "new": 2}
    assert changes(before, after) == (
        {"T": {"perm": 6}, "gone": {"a": 1}, "new": None},
        {"T": {"perm": 4}, "gone": None, "new": 2},
    )


def test_a_changed_secret_is_named_and_not_shown() -> None:
    before, after = {"tls.key": "a", "keyPassword": "b"}, {"tls.key": "c", "keyPassword": None}
    assert changes(before, after, frozenset(before)) == (
        {"tls.key": "(secret)", "keyPassword": "(secret)"},
        {"tls.key": "(secret)", "keyPassword": None},
    )
    old, new = {"password": "a", "perm": 6}, {"password": "b", "perm": 6}
    assert changes({"T": old}, {"T": new}) == (
        {"T": {"password": "(secret)"}},
        {"T": {"password": "(secret)"}},
    )
    assert changes({}, {"T": new})[1] == {"T": {"password": "(secret)", "perm": 6}}


def test_a_topic_or_user_is_shown_whatever_its_name() -> None:
    before, after = {"secret": {"perm": 6}, "secretary": None}, {"secretary": {"admin": True}}
    assert changes(before, after) == (
        {"secret": {"perm": 6}, "secretary": None},
        {"secret": None, "secretary": {"admin": True}},
    )


def test_very_many_changes_are_cut() -> None:
    _, after = changes({}, {str(number): number for number in range(MAX_NAMES + 7)})
    assert len(after) == MAX_NAMES + 1
    assert after["…"] == "7 more"


def test_a_header_is_shown_without_its_secret() -> None:
    header = PlainAclHeader(access_key="shop", secret_key="abc", admin=True)
    assert target_of(header) == {"accessKey": "shop", "admin": True}


# ---- denied requests


def denied(denials: Denials, count: int, code: int = CODE, **fields: str) -> None:
    for number in range(count):
        frame = Frame(code=code, fields=fields)
        denials.add(frame, f"10.0.0.{number % 3}:1", NoPermission("no"))


@on_loop
async def test_a_denied_request_is_recorded_with_what_it_claimed() -> None:
    trail = Trail()
    denials = Denials(trail, lambda: "broker-a", lambda: 5.0)
    denied(denials, 1, topic="T", AccessKey="mallory", Signature="x", secretKey="s")
    denials.end_window()

    assert trail.records == [
        AuditRecord(
            time=5000, server="broker-a", user="mallory", peer="10.0.0.0:1",
            request="DELETE_TOPIC_IN_BROKER", target={"topic": "T"}, code=16, remark="no",
            denied=True,
        )
    ]  # fmt: skip


@on_loop
async def test_a_flood_of_denied_requests_becomes_one_number() -> None:
    trail = Trail()
    denials = Denials(trail, lambda: "broker-a", lambda: 5.0)
    denied(denials, 10_000)
    assert len(trail.records) == Denials.LIMIT
    denials.end_window()

    assert len(trail.records) == Denials.LIMIT + 1
    last = trail.records[-1]
    assert (last.count, last.denied) == (10_000 - Denials.LIMIT, True)
    assert last.peer == "10.0.0.0, 10.0.0.1, 10.0.0.2"
    denied(denials, 1)  # the next minute begins
    assert trail.records[-1].count == 1
    denials.end_window()


@on_loop
async def test_denied_requests_of_other_purposes_are_not_recorded() -> None:
    trail = Trail()
    denials = Denials(trail, lambda: "broker-a", lambda: 5.0)
    denied(denials, 3, RequestCode.SEND_MESSAGE_V2)
    assert not trail.records
    assert RequestCode.SEND_MESSAGE_V2 not in AUDITED


@on_loop
async def test_what_a_peer_claims_is_cut() -> None:
    trail = Trail()
    denials = Denials(trail, lambda: "broker-a", lambda: 5.0)
    denied(denials, 1, topic="T" * 100_000, AccessKey="\ud800")
    denials.end_window()
    assert len(trail.records[0].target["topic"]) < 600
    assert trail.records[0].user == "?"
