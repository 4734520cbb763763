"""Implementation of `bolide store verify` and `bolide store dump`."""

import os
import sys
import time
from pathlib import Path

import msgspec

from bolide.cli.command_line import program_name
from bolide.config import load, options_of, read_file
from bolide.store.config import StoreConfig
from bolide.store.config import check as check_config
from bolide.store.dump import BodyForm, Bound, Selection, describe, dump
from bolide.store.layout import Layout
from bolide.store.verify import Report, verify

_FIRST_AFTER = 2.0
"""Seconds before the first progress line."""
_INTERVAL_TERMINAL = 0.2
_INTERVAL_FILE = 10.0
_MEGABYTE = 1_000_000


def run_verify(directory: Path, file: Path | None, *, repair: bool, silent: bool) -> Report:
    """Verify a store, with a progress line on standard error."""
    layout = Layout.of(_config(file, directory)) if file else Layout.read_off(directory)
    line = ProgressLine()
    try:
        return verify(layout, repair=repair, progress=_no_progress if silent else line)
    finally:
        line.close()


def print_report(report: Report, *, quiet: bool) -> None:
    for finding in report.findings:
        print(f"{finding.file} at {finding.offset}: {finding.reason}")
    hidden = sum(report.damages.values()) - len(report.findings)
    if hidden:
        print(f"and {hidden} more")
    if quiet:
        return
    for note in report.notes:
        print(f"note: {note}")
    for done in report.repairs:
        print(f"repaired: {done}")
    compacted = f", {report.compacted} records in compaction logs" if report.compacted else ""
    print(
        f"{report.records} records in {report.log_files} log files"
        f" ({report.log_start} to {report.log_end}),"
        f" {report.units} units in {report.queues} consume queues,"
        f" {report.index_entries} entries in {report.index_files} index files,"
        f" {report.tables} tables{compacted}: {report.seconds:.1f} s"
    )
    kinds = ", ".join(f"{part} {count}" for part, count in report.damages.items())
    print(f"damaged: {kinds}" if kinds else "sound")


def print_json_report(report: Report) -> None:
    """Print the report as one line of JSON."""
    values = msgspec.to_builtins(report, enc_hook=str)
    values["findings"] = [_camel_case(finding) for finding in values["findings"]]
    print(msgspec.json.encode({"sound": report.sound} | _camel_case(values)).decode())


def _config(file: Path, directory: Path) -> StoreConfig:
    """The store settings of a broker.conf, with `directory` as the root."""
    options = options_of(StoreConfig)
    known = {*options, *(alias for found in options.values() for alias in found.aliases)}
    texts = {key: text for key, text in read_file(file).items() if key in known}
    config = load(StoreConfig, texts | {"storePathRootDir": str(directory)})
    check_config(config)
    return config


def _camel_case(values: dict[str, object]) -> dict[str, object]:
    """The same values with camelCase keys, as in the output of `bolide store dump`."""
    words = {name: name.split("_") for name in values}
    return {
        first + "".join(map(str.capitalize, rest)): values[name]
        for name, (first, *rest) in words.items()
    }


def _no_progress(_done: int, _total: int) -> None: ...


class ProgressLine:
    """Progress on standard error: one overwritten line on a terminal, else occasional lines."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._next = self._began + _FIRST_AFTER
        self._terminal = sys.stderr.isatty()
        self._open = False

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + (_INTERVAL_TERMINAL if self._terminal else _INTERVAL_FILE)
        rate = done / _MEGABYTE / (now - self._began)
        text = f"{done / _MEGABYTE:,.0f} of {total / _MEGABYTE:,.0f} MB, {rate:,.0f} MB/s"
        self._open = self._terminal
        start, end = ("\r\x1b[K", "") if self._terminal else ("", "\n")
        print(f"{start}{text}", end=end, file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._open:
            print(file=sys.stderr)


def parse_selection(
    topic: str | None, queue: int | None, key: str | None, first: str | None, last: str | None
) -> Selection:
    """Raises ConfigError if `first` or `last` is neither an offset nor a time."""
    return Selection(
        topic=topic,
        queue_id=queue,
        key=key,
        first=Bound.parse(first) if first else None,
        last=Bound.parse(last) if last else None,
    )


def print_records(path: Path, selection: Selection, limit: int | None, body: str) -> None:
    """Print records as JSON lines. Raises ConfigError, OSError."""
    encoder, form = msgspec.json.Encoder(), BodyForm(body)
    try:
        for count, record in enumerate(dump(path, selection, _warn)):
            if count == limit:
                break
            sys.stdout.buffer.write(encoder.encode(describe(record, form)) + b"\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader closed the pipe. Without this, Python reports the error again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _warn(text: str) -> None:
    print(f"{program_name()}: {text}", file=sys.stderr)
