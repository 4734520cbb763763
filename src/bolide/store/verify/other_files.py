"""Checks the other files of a store directory: tables, checkpoint, leftovers of crashes."""

from pathlib import Path

from bolide.protocol import fastjson
from bolide.store.checkpoint import Checkpoint
from bolide.store.layout import Layout
from bolide.store.tables import (
    CONSUMER_FILTERS,
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    GROUPS,
    TOPICS,
    TableKind,
    decode_table,
)
from bolide.store.verify.report import Part, Report

_KINDS: tuple[TableKind[object], ...] = (  # type: ignore[assignment]
    TOPICS,
    GROUPS,
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    CONSUMER_FILTERS,
)
_CHECKPOINT_SIZE = 4096
_UNFINISHED = (".commitlog-", ".index-", ".removed-")


def check_tables(root: Path, report: Report) -> frozenset[str] | None:
    """Check the tables; returns the topic names, or None without a topic table."""
    topics = None
    shapes = {kind.file_name: kind.shape for kind in _KINDS}
    directory = root / "config"
    for path in sorted(directory.glob("*.json")) if directory.is_dir() else ():
        data = path.read_bytes()
        if not data.strip():
            report.add_note(f"{path} is empty")
            continue
        report.tables += 1
        try:
            found = decode_table(data, shapes.get(path.name, dict))
        except fastjson.BadJson as exc:
            report.damage(Part.TABLES, path, 0, str(exc))
            continue
        if path.name == TOPICS.file_name:
            topics = frozenset(getattr(found, "topic_config_table", {}))
    return topics


def read_checkpoint(root: Path, report: Report) -> Checkpoint:
    path = root / "checkpoint"
    if not path.exists():
        return Checkpoint()
    data = path.read_bytes()
    if len(data) != _CHECKPOINT_SIZE:
        reason = f"is {len(data)} bytes long instead of {_CHECKPOINT_SIZE}"
        report.damage(Part.CHECKPOINT, path, len(data), reason)
    return Checkpoint.decode(data)


def check_checkpoint(root: Path, found: Checkpoint, report: Report) -> None:
    """Check that the log reaches the recovery point of the checkpoint."""
    recovery_point = found.recovery_point
    if recovery_point and recovery_point.position > report.log_end:
        reason = f"it says the log reaches to {recovery_point.position}"
        report.damage(Part.CHECKPOINT, root / "checkpoint", 0, reason, recovery_point.position)


def report_leftovers(layout: Layout, report: Report) -> None:
    """Add notes on files that a crash left, and on unknown files."""
    root = layout.root
    parents = {directory.parent for directory in layout.log_directories} | {root}
    for path in sorted(path for parent in parents for path in parent.glob(".*-*")):
        if path.name.startswith(_UNFINISHED):
            report.add_note(f"{path}: left from something that was not finished")
    for directory in layout.log_directories:
        _report_unknown(directory, report)
    for path in sorted((root / "config").glob("*.tmp")):
        report.add_note(f"{path}: left from a table that was being saved")
    if kept := sorted((root / "cut").glob("*")):
        report.add_note(f"{root / 'cut'}: {len(kept)} files with records that were cut off")
    for name in ("consumequeue_ext", "timerlog", "timerwheel"):
        if (root / name).exists():
            report.add_note(f"{root / name}: is not looked at")


def _report_unknown(directory: Path, report: Report) -> None:
    for path in sorted(directory.iterdir()) if directory.is_dir() else ():
        if not path.name.isdigit():
            report.add_note(f"{path}: is no log file")
        elif not path.stat().st_size:
            report.add_note(f"{path}: has no bytes; the next start removes it")
