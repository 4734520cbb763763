"""Signed requests: the fast path serves those that are right, and the gate decides about others."""

import asyncio
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bolide.auth.access import Identity, OpenAccess
from bolide.broker.gate import MAX_ACCESS_KEY, Gate
from bolide.kernel import COMPILED
from bolide.protocol import fastjson
from bolide.protocol.batch import encode_item
from bolide.protocol.bodies.heartbeat import Heartbeat, ProducerGroup
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import Frame, HeaderEncoding
from bolide.protocol.framing import encode_frame
from bolide.protocol.refusals import NoPermission
from bolide.protocol.signature import ACCESS_KEY, SIGNATURE, is_signed_by, signature
from tests.support.aio import on_loop, until
from tests.support.broker import pull_header, send_header
from tests.support.broker_core import BrokerCore, Peer
from tests.unit.broker.test_gate import ENCODINGS, HALF, NAMED, core_in

ALICE, BOB = "alice", "bob"
SECRETS = {ALICE: b"secret of alice", BOB: b"secret of bob"}
_NEEDS_FAST_PATH = pytest.mark.skipif(not COMPILED, reason="there is no fast path")
OK, DENIED = ResponseCode.SUCCESS, ResponseCode.NO_PERMISSION


class TwoAccounts(OpenAccess):
    """Alice may do everything, Bob nothing with the topic T."""

    verifies_identity = True

    def __init__(self) -> None:
        super().__init__()
        self.secrets = dict(SECRETS)
        self.trusted = False
        """Whether no signature is needed, as at a white-listed address."""

    def check(self, request: Frame, peer: str) -> Identity:
        if self.trusted:
            return Identity(None, peer)
        fields = request.fields or {}
        access_key = fields.get(ACCESS_KEY)
        if access_key is None or access_key not in self.secrets:
            raise NoPermission(f"no account {access_key}")
        secret = self.secrets[access_key]
        if not is_signed_by(fields, request.body, secret, request.version):
            raise NoPermission("wrong signature")
        if access_key == BOB and "T" in (fields.get("b"), fields.get("topic")):
            raise NoPermission("not for Bob")
        return Identity(access_key, peer, is_verified=True)

    def check_found(self, request: Frame, peer: str, topic: str) -> None:
        if self.check(request, peer).access_key == BOB and topic == "T":
            raise NoPermission("not for Bob")

    def may_send(self, identity: Identity, topic: str) -> bool:
        return identity.access_key == ALICE or topic != "T"

    def secret_of(self, identity: Identity) -> bytes | None:
        return None if identity.access_key is None else self.secrets[identity.access_key]

    def rotate(self, access_key: str, secret: bytes) -> None:
        self.secrets[access_key] = secret
        self.on_changed()


class Wish(NamedTuple):
    """A request before it is signed."""

    code: int
    fields: dict[str, str]
    body: bytes = b""

    def signed(self, by: str = ALICE, secret: bytes | None = None) -> "Wish":
        fields = {**self.fields, ACCESS_KEY: by}
        fields[SIGNATURE] = signature(fields, self.body, secret or SECRETS[by])
        return self._replace(fields=fields)

    def changed(self, **fields: str) -> "Wish":
        return self._replace(fields=self.fields | fields)

    def without(self, *names: str) -> "Wish":
        return self._replace(fields={k: v for k, v in self.fields.items() if k not in names})

    def encode(self, opaque: int, encoding: HeaderEncoding) -> bytes:
        return encode_frame(
            Frame(
                code=self.code, fields=self.fields, body=self.body, opaque=opaque, encoding=encoding
            )
        )


def send(number: int, topic: str = "T", **given: Any) -> Wish:
    header = send_header(topic, **{"properties": NAMED, "born_timestamp": 1000 + number} | given)
    return Wish(RequestCode.SEND_MESSAGE_V2, header.to_short(), b"hello %d" % number)


def batch(number: int) -> Wish:
    fields = send_header("T", batch=True, properties={"shared": "1"}).to_short()
    body = encode_item(0, b"x%d" % number, "")
    return Wish(RequestCode.SEND_BATCH_MESSAGE, fields, body)


def pull(number: int, code: RequestCode = RequestCode.PULL_MESSAGE) -> Wish:
    return Wish(code, pull_header(commit_offset=number).to_fields())


def end(number: int, halves: list[Frame]) -> Wish:
    stored = halves[number].fields or {}
    return Wish(
        RequestCode.END_TRANSACTION,
        {
            "topic": "T",
            "producerGroup": "producers",
            "tranStateTableOffset": stored["queueOffset"],
            "commitLogOffset": str(int(stored["msgId"][-16:], 16)),
            "commitOrRollback": "8",
            "msgId": stored["transactionId"],
        },
    )


KINDS: dict[str, Callable[[int], Wish]] = {
    "plain sends": send,
    "half messages": partial(send, properties=HALF, sys_flag=4),
    "batches": batch,
    "pulls": pull,
    "lite pulls": partial(pull, code=RequestCode.LITE_PULL_MESSAGE),
}
ENDS = "ends of transactions"
TAMPERED = {
    RequestCode.SEND_MESSAGE_V2: {"e": "1"},
    RequestCode.SEND_BATCH_MESSAGE: {"e": "1"},
    RequestCode.PULL_MESSAGE: {"commitOffset": "77"},
    RequestCode.LITE_PULL_MESSAGE: {"commitOffset": "77"},
    RequestCode.END_TRANSACTION: {"commitOrRollback": "12"},
}
"""By request code, a field that changes what a request does, but not who may do it."""


def in_json(wish: Wish, opaque: int, old: str, new: str) -> bytes:
    """A request whose JSON header is changed as text."""
    data = wish.encode(opaque, HeaderEncoding.JSON)
    size = int.from_bytes(data[4:8])
    header = data[8 : 8 + size].replace(old.encode(), new.encode(), 1)
    assert header != data[8 : 8 + size]
    return struct.pack(">II", 4 + len(header) + len(wish.body), len(header)) + header + wish.body


def with_field(wish: Wish, opaque: int, encoding: HeaderEncoding, name: str, text: str) -> bytes:
    """A request with one more field in front, whether or not it has one of that name."""
    if encoding is HeaderEncoding.JSON:
        return in_json(wish, opaque, '"extFields":{', f'"extFields":{{"{name}":"{text}",')
    data = wish.encode(opaque, encoding)
    size = int.from_bytes(data[4:8]) & 0xFFFFFF
    more = struct.pack(">h", len(name)) + name.encode() + struct.pack(">i", len(text))
    more += text.encode()
    fields = int.from_bytes(data[25:29]) + len(more)
    rest = data[8:25] + struct.pack(">i", fields) + more + data[29:]
    return struct.pack(">II", 4 + len(rest), 1 << 24 | size + len(more)) + rest


def topic_name(wish: Wish) -> str:
    return "b" if "b" in wish.fields else "topic"


Variant = Callable[[Wish, Wish, int, HeaderEncoding], bytes]


def plainly(change: Callable[[Wish, Wish], Wish]) -> Variant:
    def make(wish: Wish, other: Wish, opaque: int, encoding: HeaderEncoding) -> bytes:
        return change(wish, other).encode(opaque, encoding)

    return make


def _flip(text: str) -> str:
    return ("B" if text[0] == "A" else "A") + text[1:]


VARIANTS: dict[str, tuple[int, Variant]] = {
    "wrong signature": (
        DENIED, plainly(lambda wish, _: wish.signed().changed(
            Signature=_flip(wish.signed().fields[SIGNATURE])))),
    "signature cut short": (
        DENIED, plainly(lambda wish, _: wish.signed().changed(
            Signature=wish.signed().fields[SIGNATURE][:-1]))),
    "signature without its padding": (
        DENIED, plainly(lambda wish, _: wish.signed().changed(
            Signature=wish.signed().fields[SIGNATURE].rstrip("=") + "A"))),
    "no signature": (DENIED, plainly(lambda wish, _: wish.signed().without(SIGNATURE))),
    "no access key": (DENIED, plainly(lambda wish, _: wish.signed().without(ACCESS_KEY))),
    "unsigned": (DENIED, plainly(lambda wish, _: wish)),
    "an account that may not": (DENIED, plainly(lambda wish, _: wish.signed(BOB))),
    "another access key, same secret": (
        DENIED, plainly(lambda wish, _: wish.signed(BOB, SECRETS[ALICE]))),
    "same access key, another secret": (
        DENIED, plainly(lambda wish, _: wish.signed(ALICE, SECRETS[BOB]))),
    "unknown access key": (
        DENIED, plainly(lambda wish, _: wish.signed("carol", SECRETS[ALICE]))),
    "body tampered with": (
        DENIED, plainly(lambda wish, _: wish.signed()._replace(body=wish.body + b"!"))),
    "field tampered with": (
        DENIED, plainly(lambda wish, _: wish.signed().changed(**TAMPERED[wish.code]))),  # type: ignore[index]
    "field added": (DENIED, plainly(lambda wish, _: wish.signed().changed(extra="x"))),
    "signature of another request": (
        DENIED, plainly(lambda wish, other: wish.signed().changed(
            Signature=other.signed().fields[SIGNATURE]))),
    "a signed field that is not known": (
        OK, plainly(lambda wish, _: wish.changed(extra="x").signed())),
    "a security token": (OK, plainly(lambda wish, _: wish.changed(SecurityToken="t").signed())),
    "topic twice, the last one counts": (
        OK, lambda wish, _, opaque, encoding: with_field(
            wish.signed(), opaque, encoding, topic_name(wish), "U")),
    "topic twice, and the first one signed": (
        DENIED, lambda wish, _, opaque, encoding: with_field(
            wish.signed().changed(**{topic_name(wish): "U"}), opaque, encoding,
            topic_name(wish), "T")),
    "access key twice": (
        OK, lambda wish, _, opaque, encoding: with_field(
            wish.signed(), opaque, encoding, ACCESS_KEY, BOB)),
    "access key twice, the last one another": (
        DENIED, lambda wish, _, opaque, encoding: with_field(
            wish.signed().changed(AccessKey=BOB), opaque, encoding, ACCESS_KEY, ALICE)),
    "signature twice": (
        DENIED, lambda wish, _, opaque, encoding: with_field(
            wish.signed().changed(Signature="x"), opaque, encoding, SIGNATURE,
            wish.signed().fields[SIGNATURE])),
}  # fmt: skip
JSON_VARIANTS: dict[str, tuple[int, Variant]] = {
    "access key with an escape": (
        OK, lambda wish, _, opaque, __: in_json(
            wish.signed(), opaque, '"alice"', r'"\u0061lice"')),
    "name of the access key with an escape": (
        OK, lambda wish, _, opaque, __: in_json(
            wish.signed(), opaque, '"AccessKey"', r'"\u0041ccessKey"')),
    "name of the signature with an escape": (
        OK, lambda wish, _, opaque, __: in_json(
            wish.signed(), opaque, '"Signature"', r'"Signatur\u0065"')),
    "blanks": (
        OK, lambda wish, _, opaque, __: in_json(
            wish.signed(), opaque, '"extFields":{', '"extFields" : { ')),
}  # fmt: skip


async def reply(peer: Peer, data: bytes, opaque: int) -> Frame:
    peer.receive(data)
    await until(lambda: peer.answer(opaque))
    found = peer.answer(opaque)
    assert found is not None
    return found


async def served(core: BrokerCore) -> int:
    await asyncio.sleep(0)  # the burst ends
    figures = core.fast_path.fall_throughs
    return int(figures.served_sends + figures.served_pulls)


async def run(
    directory: Path,
    kind: str,
    variant: Variant,
    encoding: HeaderEncoding,
    *,
    fast: bool,
    together: bool,
) -> tuple[list[Frame], list[tuple[int, bytes]], int]:
    """Send right requests with another one between them.

    Returns the replies from that one on, the log, and how many of the right ones around it were
    served by the fast path.
    """
    async with core_in(directory, Gate(access=TwoAccounts())) as core:
        peer, make = core.connect(fast=fast, prepared=False), KINDS.get(kind)
        await reply(peer, send(0).signed().encode(1000, encoding), 1000)  # something to pull
        if make is None:
            half = KINDS["half messages"]
            halves = [
                await reply(peer, half(each).signed().encode(2000 + each, encoding), 2000 + each)
                for each in range(6)
            ]
            make = partial(end, halves=halves)
        for opaque in range(3):
            answer = await reply(peer, make(opaque).signed().encode(opaque, encoding), opaque)
            assert answer.code == OK
        before = await served(core) if fast else 0
        frames = [
            make(3).signed().encode(3, encoding),
            variant(make(4), make(3), 4, encoding),
            make(5).signed().encode(5, encoding),
        ]
        for piece in [b"".join(frames)] if together else frames:
            peer.receive(piece)
        await until(lambda: all(map(peer.answer, range(3, 6))))
        found = [peer.answer(opaque) for opaque in range(3, 6)]
        count = await served(core) - before if fast else 0
        return [each for each in found if each is not None], core.log, count


@pytest.mark.parametrize("together", [False, True], ids=["one by one", "in one piece"])
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("kind", [*KINDS, ENDS])
@on_loop
async def test_both_ways_decide_the_same_about_signatures(
    tmp_path: Path, kind: str, encoding: HeaderEncoding, together: bool
) -> None:
    is_json = encoding is HeaderEncoding.JSON
    variants = VARIANTS | (JSON_VARIANTS if is_json else {})
    for number, (name, (code, variant)) in enumerate(variants.items()):
        there = tmp_path / str(number)
        how = partial(run, kind=kind, variant=variant, encoding=encoding, together=together)
        by_handlers, log, _ = await how(there / "handlers", fast=False)
        assert [each.code for each in by_handlers] == [OK, code, OK], name
        if COMPILED:
            by_path, path_log, count = await how(there / "path", fast=True)
            assert by_path == by_handlers, name
            assert path_log == log, name
            if kind != ENDS:  # of halves that lie behind what the test's store lets it look at
                assert count >= 2, f"{name}: the right ones are served by the fast path"


async def run_transactions(
    directory: Path, variant: Variant, encoding: HeaderEncoding, *, fast: bool
) -> tuple[list[Frame], list[tuple[int, bytes]], int]:
    """Send transactions, a half message and its end in one piece; the end of the fourth varies."""
    replies: list[Frame] = []
    async with core_in(directory, Gate(access=TwoAccounts())) as core:
        peer, half = core.connect(fast=fast, prepared=False), KINDS["half messages"]
        before = 0
        for number in range(5):
            where = {"queueOffset": str(number), "msgId": f"{core.store.log.written:016X}"}
            stored = Frame(fields=where | {"transactionId": NAMED["UNIQ_KEY"]})
            wish = end(0, [stored])
            other = wish.changed(commitLogOffset="1")
            ends = wish.signed().encode(number, encoding)
            if number == 3:
                before = await served(core) if fast else 0
                ends = variant(wish, other, number, encoding)
            peer.receive(half(number).signed().encode(100 + number, encoding) + ends)
            await until(lambda: all(map(peer.answer, (number, 100 + number))))  # noqa: B023
            replies += [each for each in (peer.answer(number), peer.answer(100 + number)) if each]
        return replies, core.log, await served(core) - before if fast else 0


@pytest.mark.skipif(not COMPILED, reason="there is no fast path")
@pytest.mark.parametrize("encoding", ENCODINGS)
@on_loop
async def test_ends_of_transactions_are_verified_on_the_fast_path(
    tmp_path: Path, encoding: HeaderEncoding
) -> None:
    is_json = encoding is HeaderEncoding.JSON
    right = plainly(lambda wish, _: wish.signed())
    variants = VARIANTS | (JSON_VARIANTS if is_json else {}) | {"right": (OK, right)}
    for number, (name, (code, variant)) in enumerate(variants.items()):
        there = tmp_path / str(number)
        by_handlers, log, _ = await run_transactions(there / "0", variant, encoding, fast=False)
        assert [each.code for each in by_handlers] == [OK] * 6 + [code, OK, OK, OK], name
        by_path, path_log, count = await run_transactions(there / "1", variant, encoding, fast=True)
        assert by_path == by_handlers, name
        assert path_log == log, name
        assert count >= 3 + (name == "right"), f"{name}: two halves and an end"


@pytest.mark.parametrize("fast", [False, pytest.param(True, marks=_NEEDS_FAST_PATH)])
@pytest.mark.parametrize("state", ["8", "12"], ids=["commit", "rollback"])
@pytest.mark.parametrize("claim", [{}, {"topic": "U"}], ids=["no topic", "another topic"])
@on_loop
async def test_nobody_ends_a_transaction_of_a_topic_that_he_may_not_send_to(
    tmp_path: Path, fast: bool, state: str, claim: dict[str, str]
) -> None:
    async with core_in(tmp_path, Gate(access=TwoAccounts())) as core:
        await core.topics.update(TopicConfig(topic_name="U", read_queue_nums=4, write_queue_nums=4))
        peer = core.connect(fast=fast, prepared=False)

        async def transaction(number: int, by: str, topic: str) -> tuple[int, int]:
            """The response code of Bob's end, and how many of the two requests fell through."""
            before = sum(core.fast_path.fall_throughs.counts.values()) if fast else 0
            where = {"queueOffset": str(number), "msgId": f"{core.store.log.written:016X}"}
            stored = Frame(fields=where | {"transactionId": NAMED["UNIQ_KEY"]})
            half = send(number, topic, properties=HALF, sys_flag=4).signed(by)
            wish = end(0, [stored]).without("topic").changed(commitOrRollback=state, **claim)
            ends = wish.signed(BOB).encode(number, ENCODINGS[0])
            peer.receive(half.encode(100 + number, ENCODINGS[0]) + ends)
            await until(lambda: all(map(peer.answer, (number, 100 + number))))
            answer = peer.answer(number)
            assert answer is not None
            fell = sum(core.fast_path.fall_throughs.counts.values()) - before if fast else 0
            return answer.code, fell

        # Bob may send to U, and so ends transactions of the group by plans. A plan may be dropped
        # and made anew at any time; one transaction without a request to the handlers shows it.
        for number in range(20):
            code, fell = await transaction(number, BOB, "U")
            assert code == OK
            if number >= 4 and fell == 0:
                break
        assert fell == 0, "his are served"
        alices = [await transaction(number + 1 + each, ALICE, "T") for each in range(4)]
        assert [code for code, _ in alices] == [DENIED] * 4
        if fast:
            commits = 2 if state == "8" else 0  # rollbacks are not counted
            assert await served(core) >= 4 + 3 + commits, "halves of both, and ends of Bob"


@on_loop
async def test_nobody_is_asked_about_a_message_of_a_topic_that_he_may_not_send_to(
    tmp_path: Path,
) -> None:
    beat = Heartbeat(client_id="c", producer_data_set=[ProducerGroup("producers")])
    joining = Wish(RequestCode.HEART_BEAT, {}, fastjson.encode(beat))
    async with core_in(tmp_path, Gate(access=TwoAccounts())) as core:
        alice, bob = core.connect(fast=False), core.connect(fast=False)
        check_back, half = core.transactions.check_back, KINDS["half messages"](1).signed()
        assert (await reply(bob, joining.signed(BOB).encode(1, ENCODINGS[0]), 1)).code == OK
        assert (await reply(alice, half.encode(2, ENCODINGS[0]), 2)).code == OK
        core.clock.advance(100)
        told = bob.written
        assert await check_back.run_round() == 0, "as if no producer were connected"
        assert bob.written == told
        assert (await reply(alice, joining.signed().encode(3, ENCODINGS[0]), 3)).code == OK
        for _ in range(2):
            assert await check_back.run_round() == 1
            core.clock.advance(100)
        assert bob.written == told


@pytest.mark.skipif(not COMPILED, reason="there is no fast path")
@on_loop
async def test_the_end_of_a_transaction_is_prepared_for_the_topic_that_it_names(
    tmp_path: Path,
) -> None:
    async with core_in(tmp_path, Gate(access=TwoAccounts())) as core:
        peer, half = core.connect(prepared=False), KINDS["half messages"]
        halves = [
            await reply(peer, half(each).signed().encode(100 + each, ENCODINGS[0]), 100 + each)
            for each in range(2)
        ]
        for number, more in enumerate(({}, {"topic": "U"})):
            wish = end(number, halves).without("topic").changed(**more)
            await reply(peer, wish.signed().encode(number, ENCODINGS[0]), number)
        ends = core.plans.of(peer.connection).sends.signed[b"alice"].ends
        assert ends == {b"producers", b"producers\0U"}


@pytest.mark.skipif(not COMPILED, reason="there is no fast path")
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("kind", KINDS)
@on_loop
async def test_right_ones_are_served_by_the_fast_path_from_the_second_on(
    tmp_path: Path, kind: str, encoding: HeaderEncoding
) -> None:
    async with core_in(tmp_path, Gate(access=TwoAccounts())) as core:
        peer = core.connect(prepared=False)
        await reply(peer, send(0).signed().encode(1000, encoding), 1000)
        make, first = KINDS[kind], await served(core)
        await reply(peer, make(0).signed().encode(0, encoding), 0)
        was_first = await served(core) - first
        for opaque in range(1, 6):
            await reply(peer, make(opaque).signed().encode(opaque, encoding), opaque)
        assert await served(core) - first == 5 + was_first
        assert was_first == (kind == "plain sends"), "prepared by the first send of all"


def doubled(data: bytes) -> bytes:
    """A binary request with all its fields twice, as Java's clients write signed ones."""
    size = int.from_bytes(data[4:8]) & 0xFFFFFF
    fields = data[29 : 8 + size]
    rest = data[8:25] + struct.pack(">i", 2 * len(fields)) + 2 * fields + data[8 + size :]
    return struct.pack(">II", 4 + len(rest), 1 << 24 | size + len(fields)) + rest


@pytest.mark.skipif(not COMPILED, reason="there is no fast path")
@pytest.mark.parametrize("kind", KINDS)
@on_loop
async def test_fields_that_are_written_twice_are_the_same_fields(tmp_path: Path, kind: str) -> None:
    binary = HeaderEncoding.ROCKETMQ
    async with core_in(tmp_path, Gate(access=TwoAccounts())) as core:
        peer, make = core.connect(prepared=False), KINDS[kind]
        await reply(peer, doubled(send(0).signed().encode(1000, binary)), 1000)
        before = await served(core)
        for opaque in range(4):
            data = doubled(make(opaque).signed().encode(opaque, binary))
            assert (await reply(peer, data, opaque)).code == OK
        assert await served(core) - before >= 3
        wrong = make(9).signed().changed(**TAMPERED[make(9).code])  # type: ignore[index]
        assert (await reply(peer, doubled(wrong.encode(9, binary)), 9)).code == DENIED


@pytest.mark.skipif(not COMPILED, reason="there is no fast path")
@pytest.mark.parametrize("kind", KINDS)
@on_loop
async def test_accounts_that_take_turns_on_a_connection_have_plans_of_their_own(
    tmp_path: Path, kind: str
) -> None:
    access = TwoAccounts()
    access.secrets["carol"] = b"secret of carol"
    async with core_in(tmp_path, Gate(access=access)) as core:
        peer, make = core.connect(prepared=False), KINDS[kind]
        await reply(peer, send(0).signed().encode(1000, ENCODINGS[0]), 1000)
        before = await served(core)
        for opaque in range(8):
            by = ("carol", ALICE)[opaque % 2]
            data = make(opaque).signed(by, access.secrets[by]).encode(opaque, ENCODINGS[0])
            assert (await reply(peer, data, opaque)).code == OK
        assert await served(core) - before >= 6
        plans = len(core.plans)
        data = make(9).signed(ALICE, access.secrets["carol"]).encode(9, ENCODINGS[0])
        assert (await reply(peer, data, 9)).code == DENIED
        assert len(core.plans) == plans
        core.plans.forget(peer.connection)
        assert len(core.plans) == 0


@pytest.mark.parametrize("together", [False, True], ids=["one by one", "in one piece"])
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("kind", KINDS)
@on_loop
async def test_a_new_secret_stops_a_stream_at_once(
    tmp_path: Path, kind: str, encoding: HeaderEncoding, together: bool
) -> None:
    access = TwoAccounts()
    async with core_in(tmp_path, Gate(access=access)) as core:
        peer, make = core.connect(prepared=False), KINDS[kind]
        await reply(peer, send(0).signed().encode(1000, encoding), 1000)
        for opaque in range(4):
            data = make(opaque).signed().encode(opaque, encoding)
            assert (await reply(peer, data, opaque)).code == OK
        access.rotate(ALICE, b"another")
        stored = len(core.log)
        frames = [make(opaque).signed().encode(opaque, encoding) for opaque in range(4, 7)]
        for piece in [b"".join(frames)] if together else frames:
            peer.receive(piece)
        await until(lambda: all(map(peer.answer, range(4, 7))))
        codes = {peer.answer(opaque).code for opaque in range(4, 7)}  # type: ignore[union-attr]
        assert (codes, len(core.log)) == ({DENIED}, stored)
        for opaque in range(7, 10):
            data = make(opaque).signed(ALICE, b"another").encode(opaque, encoding)
            assert (await reply(peer, data, opaque)).code == OK


@pytest.mark.skipif(not COMPILED, reason="there is no fast path")
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("kind", KINDS)
@on_loop
async def test_where_no_signature_is_needed_none_is_verified_but_keys_are_kept_apart(
    tmp_path: Path, kind: str, encoding: HeaderEncoding
) -> None:
    access = TwoAccounts()
    access.trusted = True
    async with core_in(tmp_path, Gate(access=access)) as core:
        peer, make = core.connect(prepared=False), KINDS[kind]
        await reply(peer, send(0).encode(1000, encoding), 1000)
        before = await served(core)
        for opaque in range(8):
            wish = make(opaque).changed(AccessKey="anybody", Signature="any")
            assert (await reply(peer, wish.encode(opaque, encoding), opaque)).code == OK
        assert await served(core) - before == 7, "all but the first one that has this key"
        access.trusted = False
        access.on_changed()
        wish = make(9).changed(AccessKey="anybody", Signature="any")
        assert (await reply(peer, wish.encode(9, encoding), 9)).code == DENIED


@pytest.mark.skipif(not COMPILED, reason="there is no fast path")
@on_loop
async def test_a_long_access_key_is_served_but_not_kept(tmp_path: Path) -> None:
    access = TwoAccounts()
    async with core_in(tmp_path, Gate(access=access)) as core:
        peer = core.connect(prepared=False)
        for size, kept in ((MAX_ACCESS_KEY, 1), (MAX_ACCESS_KEY + 1, 0)):
            name = "k" * size
            access.rotate(name, b"s")
            for opaque in (size, 1000 + size):
                data = send(opaque).signed(name, b"s").encode(opaque, ENCODINGS[0])
                assert (await reply(peer, data, opaque)).code == OK
            assert len(core.plans) == kept


@pytest.mark.skipif(not COMPILED, reason="there is no fast path")
@on_loop
async def test_plans_of_many_access_keys_on_one_connection_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bolide.broker.fast_path.plans.MAX_PLANS", 10)
    access = TwoAccounts()
    access.trusted = True
    async with core_in(tmp_path, Gate(access=access)) as core:
        peer = core.connect(prepared=False)
        for opaque in range(100):
            data = send(opaque).changed(AccessKey=f"k{opaque}").encode(opaque, ENCODINGS[0])
            assert (await reply(peer, data, opaque)).code == OK
            assert len(core.plans) <= 10
            assert len(core.plans.of(peer.connection).sends.signed) <= 10
