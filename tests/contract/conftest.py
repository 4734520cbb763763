"""All store implementations, with the same settings and clock."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bolide.store.config import FlushMode
from bolide.store.contract import Store
from bolide.store.memory_store import MemoryStore
from bolide.store.message_store import MessageStore
from tests.support.clock import FakeClock
from tests.support.store import MONDAY_NOON, small_config

KINDS = ["memory", "files-async", "files-sync", "files-async-threads", "files-sync-threads"]

MakeStore = Callable[..., Store]
"""Opens a store with settings that override `small_config`."""


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(MONDAY_NOON)


@pytest.fixture
def make_store(kind: str, tmp_path: Path, clock: FakeClock) -> Iterator[MakeStore]:
    with ExitStack() as stack:

        def make(**changes: object) -> Store:
            mode = FlushMode.SYNC if "sync" in kind.split("-") else FlushMode.ASYNC
            config = small_config(tmp_path / "store", mode=mode, **changes)  # type: ignore[arg-type]
            if kind == "memory":
                return stack.enter_context(MemoryStore(config, clock=clock))
            background = kind.endswith("threads")
            return stack.enter_context(MessageStore(config, clock=clock, background=background))

        yield make


@pytest.fixture
def store(make_store: MakeStore) -> Store:
    return make_store()
