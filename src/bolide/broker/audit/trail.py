"""Writes audit records to the system topic `rmq_sys_bolide_audit`.

Records take the way of all messages into the store, so they are as durable, and are deleted by
retention with the log files that hold them. No client may send to the topic or pull from it: it has
neither permission. BOLIDE_READ_AUDIT reads it, which is itself a request that administers.
"""

import logging
from collections.abc import Callable

import msgspec

from bolide.auth.audit import Auditor
from bolide.broker.background import ADMIN, on_thread
from bolide.broker.components import Surroundings
from bolide.broker.produce.durability import Durability
from bolide.broker.produce.intake import Intake
from bolide.kernel import read_record
from bolide.logs import AUDIT_LOGGER
from bolide.model.names import AUDIT_TOPIC
from bolide.protocol.bodies.audit import AuditEntry, AuditPage, AuditRecord
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.headers.access import ReadAuditHeader
from bolide.protocol.hosts import pack_host
from bolide.protocol.record import Record, RecordDraft
from bolide.protocol.record_errors import BadRecord, RecordTooLarge
from bolide.protocol.refusals import InvalidParameter
from bolide.remoting.dispatch import Reply, Request, handles
from bolide.store.appending import Appended
from bolide.store.contract import Store
from bolide.store.errors import StoreClosed, StoreUnwritable
from bolide.store.reading import ReadLimits

log = logging.getLogger(AUDIT_LOGGER)

_TOPIC = AUDIT_TOPIC.encode()
_MAX_SIZE = 64 * 1024
_MAX_PAGE = 500
_PAGE_BYTES = 2 * 1024 * 1024


class TopicTrail:
    """Appends records to the audit topic; belongs to one event loop.

    A record that the store does not take is written to the log of the process instead.
    """

    def __init__(
        self,
        intake: Intake,
        durability: Durability,
        store_host: bytes,
        now: Callable[[], float],
    ) -> None:
        self._intake = intake
        self._durability = durability
        self._store_host = store_host
        self._now = now

    async def write(self, record: AuditRecord) -> None:
        data = _encoded(record)
        appended = self._append(data)
        if appended is None:
            return
        try:
            outcome = await self._durability.wait_durable(appended)
        except StoreUnwritable as exc:
            _report(data, exc)
        else:
            if outcome != ResponseCode.SUCCESS:
                log.warning("an audit record may not be on the disk yet: %s", data.decode())

    def write_soon(self, record: AuditRecord) -> None:
        self._append(_encoded(record))

    def _append(self, data: bytes) -> Appended | None:
        born = int(self._now() * 1000)
        host = self._store_host
        try:
            return self._intake.append(RecordDraft(_TOPIC, data, b"", 0, born, host, host))
        except (StoreUnwritable, StoreClosed, RecordTooLarge) as exc:
            _report(data, exc)
            return None


def _report(data: bytes, exc: Exception) -> None:
    log.error("the store does not take an audit record (%s): %s", exc, data.decode())


def _encoded(record: AuditRecord) -> bytes:
    data = msgspec.json.encode(record)
    if len(data) > _MAX_SIZE:
        left_out = {"…": f"left out: the record has {len(data)} bytes"}
        small = msgspec.structs.replace(record, before={}, after=left_out)
        data = msgspec.json.encode(small)
    return data


def auditor_of(given: Surroundings, intake: Intake, durability: Durability) -> Auditor:
    """The auditor of a broker."""
    trail = TopicTrail(intake, durability, pack_host(given.host), given.now)
    cell = given.cell
    return Auditor(trail, given.gate.identify, lambda: cell.value.broker_name, given.now)


class AuditHandlers:
    """Serves the audit log."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @handles(ReadAuditHeader, RequestCode.BOLIDE_READ_AUDIT)
    async def read(self, request: Request[ReadAuditHeader]) -> Reply:
        header = request.header
        if not 0 < header.max_num <= _MAX_PAGE:
            raise InvalidParameter(f"maxNum={header.max_num}: must be from 1 to {_MAX_PAGE}")
        page = await on_thread(ADMIN, self._read, header)
        return Reply(body=msgspec.json.encode(page))

    def _read(self, header: ReadAuditHeader) -> AuditPage:
        """Read a page. Blocks."""
        low, end = self._store.min_offset(AUDIT_TOPIC, 0), self._store.max_offset(AUDIT_TOPIC, 0)
        begin = header.begin
        if begin < 0:
            begin = self._store.offset_at(AUDIT_TOPIC, 0, header.since) if header.since > 0 else 0
        begin = max(begin, low)
        if begin >= end:
            return AuditPage(next_begin=begin)
        limits = ReadLimits(
            max_count=header.max_num, max_size=_PAGE_BYTES, max_scanned=header.max_num
        )
        found = self._store.read(AUDIT_TOPIC, 0, begin, limits)
        entries = [entry for data in found.records if (entry := _entry(data)) is not None]
        after = max(found.next_offset, begin + 1)
        return AuditPage(entries=entries, next_begin=after, is_last=after >= end)


def _entry(data: bytes | memoryview) -> AuditEntry | None:
    """Decode a stored record; None, and a line in the log, if it is damaged."""
    try:
        record = read_record(data, check_crc=True)
        assert isinstance(record, Record)
        decoded = msgspec.json.decode(bytes(record.body), type=AuditRecord)
    except (BadRecord, msgspec.DecodeError, UnicodeError) as exc:
        log.warning("an audit record cannot be read: %s", exc)
        return None
    return AuditEntry(offset=record.queue_offset, record=decoded)
