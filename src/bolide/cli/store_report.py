"""What `bolide store verify` runs and prints."""

from pathlib import Path

import msgspec

from bolide.cli.progress import ProgressLine
from bolide.config import load, options_of, read_file
from bolide.store.config import StoreConfig
from bolide.store.config import check as check_config
from bolide.store.layout import Layout
from bolide.store.verify import Report, verify


def look(directory: Path, file: Path | None, *, repair: bool, silent: bool) -> Report:
    """Verify a store, with a line on standard error that tells how far it is."""
    layout = Layout.of(_config(file, directory)) if file else Layout.read_off(directory)
    line = ProgressLine()
    try:
        return verify(layout, repair=repair, progress=_nothing if silent else line)
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
    print(
        f"{report.records} records in {report.log_files} log files"
        f" ({report.log_start} to {report.log_end}),"
        f" {report.units} units in {report.queues} consume queues,"
        f" {report.index_entries} entries in {report.index_files} index files,"
        f" {report.tables} tables: {report.seconds:.1f} s"
    )
    kinds = ", ".join(f"{part} {count}" for part, count in report.damages.items())
    print(f"damaged: {kinds}" if kinds else "sound")


def print_document(report: Report) -> None:
    """One line of JSON."""
    values = msgspec.to_builtins(report, enc_hook=str)
    values["findings"] = [_camel(finding) for finding in values["findings"]]
    print(msgspec.json.encode({"sound": report.sound} | _camel(values)).decode())


def _config(file: Path, directory: Path) -> StoreConfig:
    """The store's settings among those of a broker; the directory named is the root."""
    options = options_of(StoreConfig)
    known = {*options, *(alias for found in options.values() for alias in found.aliases)}
    texts = {key: text for key, text in read_file(file).items() if key in known}
    config = load(StoreConfig, texts | {"storePathRootDir": str(directory)})
    check_config(config)
    return config


def _camel(values: dict[str, object]) -> dict[str, object]:
    """The same under names as `bolide store dump` has them."""
    words = {name: name.split("_") for name in values}
    return {
        first + "".join(map(str.capitalize, rest)): values[name]
        for name, (first, *rest) in words.items()
    }


def _nothing(_done: int, _total: int) -> None: ...
