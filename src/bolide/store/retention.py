"""Retention: deletes commit log files by age, hour of the day and disk usage, or on request.

A commit log file is as old as its last message. Expired files are deleted at the hours of
`deleteWhen`, above `diskMaxUsedSpaceRatio`, or on request. Above `diskSpaceCleanForciblyRatio` the
oldest files are deleted even before they expire, and above `diskSpaceWarningLevelRatio` appends
are refused. The last file is never deleted. Consume queues and index are trimmed to the log.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bolide.protocol.record import Record, read_record
from bolide.protocol.record_errors import BadRecord
from bolide.store.commit_log import CommitLog, LogFile
from bolide.store.config import StoreConfig
from bolide.store.disk import Disk
from bolide.store.health import DISK_SPACE, Health
from bolide.store.key_index import KeyIndex
from bolide.store.queue_table import QueueTable

log = logging.getLogger(__name__)

_MANUAL_ROUNDS = 20


@dataclass(frozen=True, slots=True)
class Grounds:
    """Which files may be deleted in this round."""

    expired: bool
    forced: bool


def grounds(config: StoreConfig, *, hour: int, used: float, by_hand: bool) -> Grounds:
    """Decide by the hour of the day and the used share of the disk, 0 to 1."""
    return Grounds(
        expired=by_hand or hour in config.delete_hours or used > config.disk_max_used_ratio,
        forced=config.clean_forcibly and used > config.disk_clean_forcibly_ratio,
    )


def due(last_timestamps: Sequence[float], now: float, config: StoreConfig, given: Grounds) -> int:
    """Return how many of the oldest files to delete, by the time (s) of each one's last message."""
    kept_for = config.file_reserved_hours * 3600
    count = 0
    for last in last_timestamps[: config.delete_batch_max]:
        if not (given.forced or (given.expired and now - last >= kept_for)):
            break
        count += 1
    return count


class Retention:
    """Runs on the maintenance thread. `pause` sleeps between deletions and may return early."""

    def __init__(  # noqa: PLR0913  it works on every part of the store
        self,
        commit_log: CommitLog,
        queues: QueueTable,
        index: KeyIndex | None,
        *,
        health: Health,
        config: Callable[[], StoreConfig],
        disk: Disk,
        clock: Callable[[], float],
        pause: Callable[[float], object],
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._health = health
        self._config = config
        self._disk = disk
        self._clock = clock
        self._pause = pause
        self._manual_rounds = 0
        self._trimmed_to = commit_log.min_offset
        self._retired_since: dict[Path, float] = {}
        self.may_go: Callable[[int], bool] = lambda _: True
        """Veto: called with the end of a file that is due; False keeps the file for now."""
        self.is_copied: Callable[[int], bool] = lambda _: True
        """As `may_go`, for messages that have to be copied first (compaction topics)."""

    def delete_expired_soon(self) -> None:
        """Delete expired files in the next rounds whatever the hour (request 329)."""
        self._manual_rounds = _MANUAL_ROUNDS

    def run(self) -> list[Path]:
        """Run one round; returns the log files deleted. Blocks."""
        config, now = self._config(), self._clock()
        used = self._used_ratio(config)
        self._check_disk(config, used)
        hour = datetime.fromtimestamp(now).astimezone().hour
        given = grounds(config, hour=hour, used=used, by_hand=self._manual_rounds > 0)
        self._manual_rounds = max(self._manual_rounds - 1, 0)
        removed = []
        for file in self._due(config, now, given):
            if not (self.may_go(file.end) and self.is_copied(file.end)):
                break
            self._log.retire(file)
            self._retired_since[file.path] = now
            removed += self._remove_retired(config, now)
            self._pause(config.delete_log_files_interval)
        removed += self._remove_retired(config, now)
        self._trim()
        if removed:
            log.info(
                "removed %s commit log files, the log begins at %s",
                len(removed),
                self._log.min_offset,
            )
        return removed

    def _used_ratio(self, config: StoreConfig) -> float:
        """Used share of the disk; of several log directories the least full counts (as in Java)."""
        logs = [self._disk.used_ratio(path) for path in config.new_log_directories if path.exists()]
        return max(min(logs, default=0.0), self._disk.used_ratio(config.root))

    def _check_disk(self, config: StoreConfig, used: float) -> None:
        if used > config.disk_warning_ratio:
            reason = f"{config.root} is {used:.0%} full, diskSpaceWarningLevelRatio is"
            self._health.refuse(DISK_SPACE, f"{reason} {config.disk_warning_ratio:.0%}")
        else:
            self._health.allow(DISK_SPACE)

    def _due(self, config: StoreConfig, now: float, given: Grounds) -> Sequence[LogFile]:
        files = self._log.files
        if len(files) < 2 or not (given.expired or given.forced):
            return ()
        oldest = files[: min(len(files) - 1, config.delete_batch_max)]
        oldest = tuple(file for file in oldest if file.end <= self._log.flushed)
        last = [_first_timestamp(files[number + 1]) for number in range(len(oldest))]
        return oldest[: due(last, now, config, given)]

    def _remove_retired(self, config: StoreConfig, now: float) -> list[Path]:
        removed = self._log.remove_retired()
        if any(
            now - self._retired_since.get(file.path, now) >= config.destroy_forcibly_after
            for file in self._log.retired
        ):
            removed += self._log.remove_retired(forcibly=True)
        for path in removed:
            self._retired_since.pop(path, None)
        return removed

    def _trim(self) -> None:
        begin = self._log.min_offset
        if begin == self._trimmed_to:
            return
        interval = self._config().delete_queue_files_interval
        self._queues.raise_minimum(begin, lambda: self._pause(interval))
        if self._index:
            self._index.trim(begin)
        self._trimmed_to = begin


def _first_timestamp(file: LogFile) -> float:
    """Store time of a file's first message; the file before it has nothing newer."""
    try:
        first = read_record(file.view)
    except BadRecord:
        return file.path.stat().st_mtime
    return first.store_timestamp / 1000 if isinstance(first, Record) else file.path.stat().st_mtime
