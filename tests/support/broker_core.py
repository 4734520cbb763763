"""A broker on a memory store, assembled as a real one is, whose peers are driven byte by byte."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from bolide.broker.assembly import assemble
from bolide.broker.components import Surroundings
from bolide.broker.dedup.duplicates import Duplicates
from bolide.broker.dedup.windows import DedupWindows
from bolide.broker.filters.filters import NotCompiled
from bolide.broker.gate import Gate, Hooks
from bolide.broker.replicas.role import configured_role
from bolide.broker.settings.config import BrokerConfig
from bolide.broker.tables import Tables
from bolide.config import ConfigCell
from bolide.kernel import COMPILED, Units, decode_frame
from bolide.model.message import Host
from bolide.model.names import SCHEDULE_TOPIC
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode
from bolide.protocol.errors import ProtocolError
from bolide.protocol.frame import Frame
from bolide.protocol.framing import FrameDecoder
from bolide.protocol.header import Header
from bolide.protocol.headers.pull import PullHeader
from bolide.protocol.message_id import UniqueIdMaker
from bolide.protocol.refusals import Refusal
from bolide.remoting.calls import ConnectionLimits
from bolide.remoting.connection import Connection, FastPath
from bolide.remoting.dispatch import Dispatcher, Request
from bolide.remoting.wire import Outbox
from bolide.store.appending import AppendRoom
from bolide.store.config import FlushMode, StoreConfig
from bolide.store.memory_store import MemoryStore
from bolide.store.message_store import MessageStore
from tests.support.aio import until
from tests.support.clock import FakeClock
from tests.support.transport import FakeTransport
from tests.support.wire import request_bytes

if COMPILED:
    from bolide.broker.fast_path._pulls import read_pull
    from bolide.broker.fast_path.sends import is_plain_topic

HOST = Host("10.0.0.1", 10911)
MAX_LEVEL = 18
NAMES = {"broker_name": "broker-a", "broker_ip1": "10.0.0.1"}


class BrokerCore:
    """Use it inside an event loop, and `await stop()` at the end.

    Topics are `T` with four queues and those that are given. Two cores are alike to the last bit.
    """

    def __init__(
        self,
        directory: Path,
        *topics: TopicConfig,
        gate: Gate | None = None,
        hooks: Hooks | None = None,
        mode: FlushMode = FlushMode.ASYNC,
        store: MemoryStore | None = None,
        store_class: type[MemoryStore] = MemoryStore,
        **settings: Any,
    ) -> None:
        self.clock = FakeClock(1_700_000_000.0)
        self.store_cell = ConfigCell(StoreConfig(root=directory / "store", flush_mode=mode))
        self.store = store or store_class(self.store_cell, clock=self.clock)
        self.store.__enter__()
        self.cell = ConfigCell(BrokerConfig(**NAMES | settings))
        tables = Tables.below(directory, None)
        known = TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4)
        tables.topics.value.topic_config_table = {
            each.topic_name: each for each in (known, *topics)
        }
        self.gate = gate or Gate(hooks)
        self.hooks = self.gate.hooks
        given = Surroundings(
            cell=self.cell,
            store_cell=self.store_cell,
            store=cast("MessageStore", self.store),  # it stands in for the files
            host=HOST,
            gate=self.gate,
            now=self.clock,
            ignored={},
            role=configured_role(self.cell.value),
            unique_ids=UniqueIdMaker(b"\x0a\0\0\1", 1, 1),
        )
        self.tables = self.parts = parts = assemble(given, tables)
        self.topics = parts.topics
        self.statistics = parts.statistics
        self.durability = parts.durability
        self.long_polling = parts.long_polling
        self.intake = parts.intake
        self.background = parts.background
        self.expiring = parts.expiring
        self.duplicates = parts.duplicates
        self.transactions = parts.transactions
        self.dispatcher = parts.dispatcher
        for part in (self.durability, self.intake, self.long_polling, self.duplicates.windows):
            part.start()

    @property
    def fast_path(self) -> Any:
        """The fast path; there is none without compiled modules."""
        assert self.parts.fast_path is not None
        return self.parts.fast_path

    @property
    def plans(self) -> Any:
        return self.fast_path.plans

    async def stop(self) -> None:
        self.long_polling.stop()
        self.duplicates.windows.stop()
        self.intake.stop()
        self.durability.stop()
        await self.background.stop()

    def connect(
        self, *, fast: bool = True, prepared: bool = True, limits: ConnectionLimits | None = None
    ) -> "Peer":
        """A new peer.

        Args:
            fast: its connection has a fast path, if there are compiled modules.
            prepared: what the fast path can serve is prepared without a first request, so that
                a test of one request is a test of the fast path.
        """
        path: FastPath | None = self.parts.fast_path if fast else None
        if path is not None and prepared:
            path = PreparingFastPath(self)
        return Peer(self.dispatcher, fast=path, on_close=self.parts.connection_lost, limits=limits)

    @property
    def log(self) -> list[tuple[int, bytes]]:
        """All that the store was given, byte for byte."""
        return self.store.log.items()

    def new_duplicates(self) -> Duplicates:
        """As a restart makes them: they know nothing yet."""
        windows = DedupWindows(
            cell=self.cell,
            store=self.store,
            topics=self.topics,
            background=self.background,
            waiting=self._waiting,
            now=self.clock,
        )
        self.topics.on_change.add(windows.topics_changed)
        return Duplicates(windows, store=self.store, intake=self.intake, now=self.clock)

    def _waiting(self) -> dict[int, tuple[int, int]]:
        """No task delivers delayed messages here: all of them wait."""
        return {
            level: (0, self.store.max_offset(SCHEDULE_TOPIC, level - 1))
            for level in range(1, MAX_LEVEL + 1)
        }


class WholeLogStore(MemoryStore):
    """Offers all older records before the room for new ones, as the files of a log do.

    So the fast path can end transactions whose half messages lie there. It copies the whole log
    each time: for short ones.
    """

    def reserve(self) -> AppendRoom | None:
        room = super().reserve()
        if room is not None:
            older = b"".join(data for _, data in self.log.items())
            assert len(older) == room.physical_offset, "the log has a gap"
            room.target, room.at, room.readable_from = bytearray(older) + room.target, len(older), 0
        return room

    def publish(
        self, room: AppendRoom, size: int, count: int, last_record: int, changed: Sequence[Units]
    ) -> tuple[int, int]:
        room.target = memoryview(room.target)[room.at :]
        return super().publish(room, size, count, last_record, changed)


class PreparingFastPath:
    """The fast path of a core with plans for everything that it can serve.

    It stands in for the first request of each kind, which gate and handlers would decide about.
    """

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self._path = core.fast_path

    def serve(self, data: bytes, position: int, connection: Connection, until: float) -> int:
        self.prepare_sends(connection)
        self.prepare_pull(data, position, connection)
        return int(self._path.serve(data, position, connection, until))

    def prepare_sends(self, connection: Connection) -> None:
        core, config = self._core, self._core.cell.value
        if config.start_accept_send_request_time_stamp > 0 or not core.store.takes_raw_records:
            return
        plans = self._path.plans.of(connection).sends
        for group in (b"producers", b"group", b"g"):
            plans.ends.add(group)
            plans.ends.update(group + b"\0" + each.topic_name.encode() for each in core.topics)
        for target in (self._path.sends._flow.halves, self._path.sends._flow.ops):
            target.open_queue(0, core.store.tail(target.topic, 0))
        for topic in core.topics:
            if not is_plain_topic(topic, config):
                continue
            target = self._path.sends._target(topic.topic_name.encode(), topic)
            for queue_id in range(target.queues):
                if (queue := core.store.find_queue(target.name, queue_id)) is not None:
                    target.open_queue(queue_id, queue.tail)
            kinds = [plans.singles, plans.batches]
            if not config.reject_transaction_message:
                kinds.append(plans.halves)
            for targets in kinds:
                targets[target.topic] = target

    def prepare_pull(self, data: bytes, position: int, connection: Connection) -> None:
        found = read_pull(data, position)
        sender = self._path.plans.of(connection)
        if found is None or ((known := sender.pulls.get(found[1])) and known.is_open):
            return
        try:
            frame = decode_frame(data[position + 4 : found[0]])
            request = Request(PullHeader.from_fields(frame.fields), frame, connection)
            admitted = self._core.parts.pulls.admission.admit(request)
        except (ProtocolError, Refusal, NotCompiled):
            return
        sender.candidate = found[1], frame.opaque
        self._path.pulls.prepare(request, admitted)


class Peer:
    """A client of a core: what it sends is received at once, what it gets is kept."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        fast: FastPath | None = None,
        on_close: Callable[[Connection], None] | None = None,
        limits: ConnectionLimits | None = None,
    ) -> None:
        self._outbox = Outbox()
        self._decoder = FrameDecoder()
        self._opaque = 0
        self._answers: dict[int, Frame] = {}
        self.connection = Connection(
            dispatcher,
            limits or ConnectionLimits(),
            outbox=self._outbox,
            on_close=on_close,
            fast=fast,
        )
        self.transport = FakeTransport()
        self.transport.attach(self.connection)

    def receive(self, data: bytes) -> None:
        self.connection.data_received(data)

    @property
    def written(self) -> bytes:
        """All bytes that the broker sent."""
        self._outbox.flush()
        return b"".join(self.transport.writes)

    def answer(self, opaque: int) -> Frame | None:
        """The response to a request, if there is one by now."""
        self._outbox.flush()
        writes, self.transport.writes = self.transport.writes, []
        for frame in self._decoder.feed(b"".join(writes)):
            assert frame.opaque not in self._answers, "answered twice"
            self._answers[frame.opaque] = frame
        return self._answers.get(opaque)

    def ask(
        self,
        code: RequestCode,
        header: Header | dict[str, str],
        body: bytes = b"",
        *,
        one_way: bool = False,
    ) -> int:
        """Send a request; its number is what `answer` wants."""
        self._opaque += 1
        fields = header.to_fields() if isinstance(header, Header) else header
        self.receive(request_bytes(code, fields, opaque=self._opaque, body=body, one_way=one_way))
        return self._opaque

    async def call(
        self, code: RequestCode, header: Header | dict[str, str], body: bytes = b""
    ) -> Frame:
        """Send a request and wait for its response, whatever its code."""
        opaque = self.ask(code, header, body)
        await until(lambda: self.answer(opaque))
        found = self.answer(opaque)
        assert found is not None
        return found
