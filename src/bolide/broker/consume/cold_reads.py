"""Flow control of cold reads (`ColdDataCgCtrService`): pulls of messages that are not in memory.

With `coldDataFlowControlEnable` the bytes that each group reads from the disk are counted, in
windows of 5 s. A group over its threshold, or any group that reads from the disk while all together
are over the global one, is held back until the window ends: push consumers are told that the broker
is busy and ask again later, pulls of others wait and then get one message. Reads from memory are
never held back.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from bolide import properties
from bolide.broker.metadata.clients import ClientTable
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.model.names import is_system_group
from bolide.protocol import fastjson
from bolide.protocol.bodies.consumers import ColdReadInfo, ColdReadTally
from bolide.protocol.bodies.heartbeat import ConsumeType
from bolide.protocol.codes import RequestCode
from bolide.protocol.header import NoHeader
from bolide.protocol.headers.pull import PullHeader
from bolide.protocol.headers.runtime import ReadAheadHeader
from bolide.protocol.refusals import InvalidParameter, SystemBusy
from bolide.remoting.dispatch import Reply, Request, handles
from bolide.store.config import StoreConfig

log = logging.getLogger(__name__)

WINDOW = 5.0
HOLD = 3.0
"""Seconds for which a pull waits that is not of a push consumer."""
_FORGET_AFTER = 60.0
_MAX_BODY = 64 * 1024
_MAX_THRESHOLDS = 10_000
_MAX_LONG = 2**63 - 1
_MODES = {0: True, 1: False}
"""MADV_NORMAL and MADV_RANDOM: whether the system reads ahead."""


@dataclass(slots=True, kw_only=True)
class ColdReads:
    """What groups have read from the disk, and their thresholds; belongs to one event loop."""

    cell: ConfigCell[BrokerConfig]
    clients: ClientTable
    now: Callable[[], float] = time.time
    hold: float = HOLD
    thresholds: dict[str, int] = field(default_factory=dict)
    """Thresholds that an administrator has set, in bytes for each window."""
    _tallies: dict[str, ColdReadTally] = field(default_factory=dict)
    _total: int = 0
    _window_end: float = 0.0

    async def admit(self, header: PullHeader) -> PullHeader:
        """Hold back a pull that needs the disk if its group has read too much from there.

        Returns the header to read by.

        Raises:
            SystemBusy: the pull is of a push consumer, which asks again later.
        """
        if not self._is_over(header.consumer_group):
            return header
        group = self.clients.consumer_group(header.consumer_group)
        if group is not None and group.consume_type is ConsumeType.CONSUME_PASSIVELY:
            raise SystemBusy("This consumer group is reading cold data. It has been flow control")
        await asyncio.sleep(self.hold)
        return msgspec.structs.replace(header, max_msg_nums=1)

    def add(self, group: str, size: int) -> None:
        """Count bytes that a group has read from the disk."""
        if not size or not self.cell.value.cold_data_flow_control_enable or is_system_group(group):
            return
        self._begin_window()
        now = int(self.now() * 1000)
        tally = self._tallies.get(group)
        if tally is None:
            tally = self._tallies[group] = ColdReadTally(create_time_mills=now)
        tally.cold_acc += size
        tally.last_cold_read_time_mills = now
        self._total += size

    def info(self) -> ColdReadInfo:
        self._begin_window()
        config = self.cell.value
        return ColdReadInfo(
            runtime_table=self._tallies,
            config_table=self.thresholds,
            cg_cold_read_threshold=config.cg_cold_read_threshold,
            global_cold_read_threshold=config.global_cold_read_threshold,
            global_acc=self._total,
        )

    def _is_over(self, group: str) -> bool:
        config = self.cell.value
        if not config.cold_data_flow_control_enable or is_system_group(group):
            return False
        self._begin_window()
        tally = self._tallies.get(group)
        if tally is None:
            return False
        if tally.cold_acc >= self.thresholds.get(group, config.cg_cold_read_threshold):
            return True
        return self._total >= config.global_cold_read_threshold

    def _begin_window(self) -> None:
        """Begin the next window if the last one has ended; forgets groups that read no more."""
        now = self.now()
        if now < self._window_end and self._window_end - now <= WINDOW:  # not if set back
            return
        self._window_end, self._total = now + WINDOW, 0
        oldest = int((now - _FORGET_AFTER) * 1000)
        for group, tally in list(self._tallies.items()):
            tally.cold_acc = 0
            if tally.last_cold_read_time_mills <= oldest:
                del self._tallies[group]


class ColdReadHandlers:
    """Requests about cold reads: thresholds of groups, and whether the system reads ahead."""

    def __init__(self, cold_reads: ColdReads, store_cell: ConfigCell[StoreConfig]) -> None:
        self._cold_reads = cold_reads
        self._store_cell = store_cell

    @handles(NoHeader, RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, max_body=_MAX_BODY)
    def update(self, request: Request[NoHeader]) -> Reply:
        texts = properties.parse(request.body.decode(errors="replace"))
        thresholds = {group: _threshold(group, text) for group, text in texts.items()}
        self._set(self._cold_reads.thresholds | thresholds)
        log.info("%s sets thresholds of cold reads: %s", request.connection.peer, thresholds)
        return Reply()

    @handles(NoHeader, RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, max_body=_MAX_BODY)
    def remove(self, request: Request[NoHeader]) -> Reply:
        group = request.body.decode(errors="replace")
        self._cold_reads.thresholds.pop(group, None)
        log.info("%s removes the threshold of cold reads of %s", request.connection.peer, group)
        return Reply()

    @handles(NoHeader, RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)
    def show(self, request: Request[NoHeader]) -> Reply:
        return Reply(body=fastjson.encode(self._cold_reads.info()))

    @handles(ReadAheadHeader, RequestCode.SET_COMMITLOG_READ_MODE)
    def set_read_mode(self, request: Request[ReadAheadHeader]) -> Reply:
        mode = request.header.mode
        if mode not in _MODES:
            raise InvalidParameter(
                f"set commitlog readahead mode param value error: {mode} is neither 0, to read"
                " ahead, nor 1, not to"
            )
        text = "true" if _MODES[mode] else "false"
        self._store_cell.apply(self._store_cell.changes({"dataReadAheadEnable": text}))
        log.info("%s sets dataReadAheadEnable=%s", request.connection.peer, text)
        return Reply(remark=f"set commitlog readahead mode success, mode: {mode}")

    def _set(self, thresholds: Mapping[str, int]) -> None:
        if len(thresholds) > _MAX_THRESHOLDS:
            raise InvalidParameter(
                f"{len(thresholds)} groups would have a threshold of cold reads, at most"
                f" {_MAX_THRESHOLDS} may: remove some"
            )
        self._cold_reads.thresholds = dict(thresholds)


def _threshold(group: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 19 or int(text) > _MAX_LONG:
        raise InvalidParameter(f"group {group}: {text!r} is not a number of bytes")
    return int(text)
