"""Blocking wrappers of the asyncio clients.

A `BlockingClient` runs each call of its asyncio client on the event loop of a background thread,
which all blocking clients of a process share. The thread is started on first use.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import wraps
from inspect import iscoroutinefunction
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from bolide.client.errors import WrongState
from bolide.client.instance.lifecycle import Startable
from bolide.remoting import event_loop

P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C", bound=Startable)


class LoopThread:
    """The background thread with an event loop; runs until the process ends."""

    _current: "LoopThread | None" = None
    _lock = threading.Lock()

    def __init__(self) -> None:
        started: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(
            target=event_loop.run, args=(_run_forever(started),), name="bolide-sync", daemon=True
        )
        self._thread.start()
        self._loop = started.result()

    @classmethod
    def get(cls) -> "LoopThread":
        """The loop thread of this process, started if necessary."""
        with cls._lock:
            if cls._current is None:
                cls._current = cls()
            return cls._current

    @classmethod
    def forget(cls) -> None:
        """Reset in a forked child: the thread does not exist there, and the lock may be held."""
        cls._current = None
        cls._lock = threading.Lock()

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for its result; an interrupt cancels it."""
        if threading.current_thread() is self._thread:
            work.close()
            raise WrongState(
                "a blocking call on the event loop's own thread would wait for itself:"
                " use the asyncio client there"
            )
        outcome = self.submit(work)
        try:
            return outcome.result()
        except BaseException:
            outcome.cancel()
            raise


os.register_at_fork(after_in_child=LoopThread.forget)


async def _run_forever(started: "Future[asyncio.AbstractEventLoop]") -> None:
    started.set_result(asyncio.get_running_loop())
    await asyncio.Event().wait()


class LoopCaller:
    """Runs coroutines on the loop thread of the process that created this object."""

    def __init__(self) -> None:
        self._thread: LoopThread | None = None
        self._pid = os.getpid()

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a coroutine on the loop thread and return a future of its result."""
        return self._require_thread(work).submit(work)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop thread and wait for its result."""
        return self._require_thread(work).wait(work)

    def _require_thread(self, work: Coroutine[Any, Any, T]) -> LoopThread:
        if os.getpid() != self._pid:
            work.close()
            raise WrongState("this client was created before a fork: create one in each process")
        if self._thread is None:
            self._thread = LoopThread.get()
        return self._thread


class BlockingClient(LoopCaller, Generic[C]):
    """A client with blocking methods, usable from any thread."""

    def __init__(self, client: C) -> None:
        super().__init__()
        self.client = client
        """The wrapped asyncio client."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.wait(self.client.__aexit__(kind, exc, traceback))

    def start(self) -> None:
        """Start, as `with` does."""
        self.wait(self.client.start())

    def close(self) -> None:
        """Close, as `with` does. Idempotent."""
        self.wait(self.client.close())


class BlockingProxy:
    """Proxy of an object whose coroutine methods become blocking calls."""

    def __init__(self, caller: LoopCaller, target: object) -> None:
        self._caller = caller
        self._target = target

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._target, name)
        if not iscoroutinefunction(attribute):
            return attribute

        @wraps(attribute)
        def call(*args: Any, **kwargs: Any) -> Any:
            return self._caller.wait(attribute(*args, **kwargs))

        return call


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """Make a blocking method of a coroutine method of the wrapped client."""

    @wraps(method)
    def call(blocking_client: BlockingClient[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return blocking_client.wait(method(blocking_client.client, *args, **kwargs))

    return call


def on_loop_thread(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Make a method that calls a plain method of the wrapped client on the loop thread."""

    @wraps(method)
    def call(blocking_client: BlockingClient[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def work() -> T:
            return method(blocking_client.client, *args, **kwargs)

        return blocking_client.wait(work())

    return call
