"""Both implementations of the kernel, behind one type."""

from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

import pytest

from bolide.kernel import Scan
from bolide.kernel import records as reference
from bolide.protocol.record import Blank, Record

try:
    from bolide.kernel import _index, _records

    MISSING = ""
except ImportError as exc:
    MISSING = f"no compiled kernel: {exc}; install Cython and a C compiler, then run make test"


class Kernel(NamedTuple):
    record_size: Callable[..., int]
    write_record: Callable[..., int]
    describe: Callable[..., tuple[int, tuple[int, ...]]]
    read_record: Callable[..., Record | Blank]
    scan: Callable[..., Scan]
    body_crc: Callable[..., int]
    put_keys: Callable[..., tuple[int, int]]
    find_keys: Callable[..., list[int]]
    rebuild_slots: Callable[..., int]


def _of(records: ModuleType, index: ModuleType) -> Kernel:
    return Kernel(*(getattr(records, name, None) or getattr(index, name) for name in FUNCTIONS))


FUNCTIONS = Kernel._fields
NAMES = ("reference", "compiled")


def kernel_named(name: str) -> Kernel:
    """Skip the test if the compiled kernel is not built."""
    if name == "reference":
        return _of(reference, reference)
    if MISSING:
        pytest.skip(MISSING)
    return _of(_records, _index)
