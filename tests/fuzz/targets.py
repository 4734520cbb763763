"""The list of fuzz targets.

A target is a function of bytes that may raise only what it is allowed to. Hypothesis calls it in
`test_targets.py`, with valid encodings and mutations of them; atheris calls it in `make fuzz`,
guided by coverage, with the kernel built with AddressSanitizer.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import msgspec

from bolide.admin.access import BadDocument
from bolide.broker.filters.sql.values import BadExpression
from bolide.controller.errors import ControllerStoreDamaged
from bolide.errors import ConfigError
from bolide.kernel import COMPILED
from bolide.model.message_checks import InvalidMessage
from bolide.protocol.errors import ProtocolError
from bolide.protocol.record_errors import BadRecord
from bolide.store.replica_log import LogMismatch
from tests.fuzz import access_files, codecs, replication, samples

Seeds = Callable[[], Iterable[bytes]]


@dataclass(frozen=True, slots=True)
class Target:
    """One thing to fuzz."""

    name: str
    run: Callable[[bytes], object]
    seeds: Seeds
    allowed: tuple[type[Exception], ...] = (ProtocolError,)
    examples: int = 200
    """How many Hypothesis tries in the suite."""

    def __call__(self, data: bytes) -> None:
        """Raises what the target must not raise."""
        with suppress(*self.allowed):
            self.run(data)


def texts(*given: str) -> Seeds:
    return lambda: (text.encode() for text in given)


def _with_number(numbers: int, seeds: Seeds) -> Seeds:
    """Seeds after a byte that chooses one of several decoders."""
    return lambda: (bytes([number]) + seed for number in range(numbers) for seed in seeds())


def _later(module: str, name: str) -> Callable[..., Any]:
    """A function of a module that is imported when it is called.

    The code of a whole broker takes long to instrument; few targets need it.
    """

    def call(*data: bytes) -> Any:
        return getattr(import_module(f"tests.fuzz.{module}"), name)(*data)

    return call


_SQL = texts(
    "a > 3 AND b IS NOT NULL\0a\x015\x02b\x01x\x02", "TAGS IN ('A', 'B')\0TAGS\x01A\x02",
    "a BETWEEN 1 AND 2.5 OR NOT (b = TRUE)\0a\x012\x02b\x01true\x02", "n = 3\0n\x013\x02",
    "name CONTAINS 'x' AND -3 < n\0name\x01axb\x02n\x01-2\x02", "a NOT IN ('x')\0a\x01y\x02",
    "s STARTSWITH 'a' OR s NOT ENDSWITH 'b'\0s\x01ab\x02", "a <> 'it''s'\0a\x01its\x02",
)  # fmt: skip
_FILE = texts(
    "brokerName=broker-a\nlistenPort = 10911\n# c\nkey : va\\\n  lue\nu=\\u00fc\n",
    "a\\ b=c\\=d\r\n!x\n\\t=\\n",
    "fileReservedTime=72\nflushDiskType=SYNC_FLUSH\n",
    "namesrvAddr=127.0.0.1:9876;[::1]:9876\nmessageDelayLevel=1s 5s 2h\ndeleteWhen=04;05\n",
)

TARGETS: list[Target] = [
    Target("stream", codecs.stream, lambda: samples.frames()),  # noqa: PLW0108  made when asked
    Target("header", codecs.header, codecs.header_seeds, examples=400),
    Target("body", codecs.body, codecs.body_seeds, examples=400),
    Target("json", codecs.json, samples.odd_json),
    Target("registration", codecs.registration, codecs.registration_seeds),
    Target("table", _later("files", "table"), _later("files", "table_seeds")),
    Target("journal", _later("files", "journal"), _later("files", "journal_seeds"),
           (msgspec.DecodeError, UnicodeError)),
    Target("property-string", codecs.property_string, lambda: samples.PROPERTIES),
    Target("batch", codecs.batch, lambda: [each.body for each in samples.drafts()]),  # type: ignore[misc]
    Target("message-id", codecs.message_ids, texts(samples.ID, "0A0000050000D4310000000000001000")),
    Target("receipt", codecs.receipts,
           texts("0 1700000000000 60000 0 0 broker-a 0 5", "0 1 100;1 1 5", "0 qo1%2 3")),
    Target("recall-handle", codecs.recall_handles, texts("djEgVCBicm9rZXItYSAxIElE")),
    Target("tags", codecs.tags, texts("*", "A || B", "||")),
    Target("trace", codecs.trace, texts("Pub\x011\x01r\x01g\x01T\x01id\x01t\x01k\x02")),
    Target("compressed", codecs.compressed, _with_number(3, lambda: [b"x\x9c\x03\0\0\0\0\1"])),
    Target("address", codecs.addresses, texts("127.0.0.1:9876", "[::1]:1"), (ValueError,)),
    Target("cron", _later("files", "cron"),
           texts("*/5 * * * *\0Europe/Berlin", "0 30 9 * * MON-FRI\0"), (InvalidMessage,)),
    Target("sql", _later("files", "sql"), _SQL, (BadExpression,)),
    Target("settings-file", _later("files", "settings_file"), _FILE),
    Target("settings", _later("files", "settings"), _FILE, (ConfigError,), examples=50),
    Target("broker", _later("servers", "broker"), _later("servers", "seeds"), examples=150),
    Target("fast-path", _later("servers", "fast_path"), _later("servers", "fast_seeds"),
           examples=50),
    Target("signed-fast-path", _later("servers", "signed_fast_path"),
           _later("servers", "signed_fast_seeds"), examples=50),
    Target("name-server", _later("servers", "name_server"), _later("servers", "seeds"),
           examples=100),
    Target("controller-entry", _later("controllers", "entry"),
           _later("controllers", "entry_seeds")),
    Target("controller-journal", _later("controllers", "journal"),
           _later("controllers", "journal_seeds"), (ControllerStoreDamaged,), examples=100),
    Target("controller-snapshot", _later("controllers", "snapshot"),
           _later("controllers", "snapshot_seeds"), (ControllerStoreDamaged, ValueError),
           examples=100),
    Target("ha-slave", replication.from_slave, replication.slave_seeds),
    Target("ha-master", replication.from_master, replication.master_seeds),
    Target("epochs-file", replication.epochs_file, texts("1\n1519042637\n1-0\n", "0\n0\n"),
           (ValueError,)),
    Target("replica-log", _later("replication", "replica_log"),
           _later("replication", "log_seeds"), (LogMismatch,), examples=60),
    Target("acl-file", access_files.acl_file, lambda: access_files.ACL_FILES, (ConfigError,)),
    Target("acl-address", access_files.acl_address, lambda: access_files.ADDRESSES, (ValueError,)),
    Target("policy", access_files.policy, lambda: access_files.POLICIES,
           access_files.BAD_POLICIES),
    Target("users-file", access_files.users_file, lambda: access_files.USERS, (ConfigError,)),
    Target("tools-file", access_files.tools_file, lambda: access_files.TOOLS, (ConfigError,)),
    Target("acl-document", access_files.acl_document, lambda: access_files.DOCUMENTS,
           (BadDocument,)),
    Target("needs", access_files.needs, access_files.requests),
]  # fmt: skip


def _kernel_targets() -> list[Target]:
    from tests.fuzz import kernels

    return [
        Target("frame", kernels.frame, lambda: (wire[4:] for wire in samples.frames())),
        Target("mended-frame", kernels.mended_frame, kernels.mended_seeds, examples=400),
        Target("signed-frame", kernels.signed_frame, kernels.signed_seeds, examples=400),
        Target("record", kernels.record, samples.logs),
        Target("scan", kernels.scan, samples.logs),
        Target("columns", kernels.column, samples.logs),
        Target("unwrapped", kernels.unwrapped, samples.logs, (BadRecord, ProtocolError)),
        Target("description", kernels.description,
               lambda: (b"T\0" + each for each in samples.PROPERTIES)),
        Target("index", kernels.index, lambda: [bytes(range(200)) * 3]),
        Target("gather", kernels.gather, kernels.gather_seeds),
        Target("answers", kernels.answers, lambda: samples.frames()),  # noqa: PLW0108
    ]  # fmt: skip


if COMPILED:
    TARGETS += _kernel_targets()

BY_NAME = {target.name: target for target in TARGETS}
