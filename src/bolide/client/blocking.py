"""The clients without `await`: one event loop in a thread of its own does the work.

A front holds a client of asyncio and hands each call to the loop's thread; there is no second
implementation. The thread is made when the first front is used, in each process anew.
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
    """An event loop that runs until the process ends."""

    _current: "LoopThread | None" = None
    _lock = threading.Lock()

    def __init__(self) -> None:
        started: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(
            target=event_loop.run, args=(_stay(started),), name="bolide-sync", daemon=True
        )
        self._thread.start()
        self._loop = started.result()

    @classmethod
    def get(cls) -> "LoopThread":
        """The one of this process."""
        with cls._lock:
            if cls._current is None:
                cls._current = cls()
            return cls._current

    @classmethod
    def forget(cls) -> None:
        """In a forked child the thread is not there, and the lock may be anybody's."""
        cls._current = None
        cls._lock = threading.Lock()

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Have it done and wait for the outcome; an interrupt ends the work too."""
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


async def _stay(started: "Future[asyncio.AbstractEventLoop]") -> None:
    started.set_result(asyncio.get_running_loop())
    await asyncio.Event().wait()


class Caller:
    """Hands work to the loop's thread of the process it was made in."""

    def __init__(self) -> None:
        self._thread: LoopThread | None = None
        self._pid = os.getpid()

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Have it done on the loop's thread; the future tells the outcome."""
        return self._here(work).submit(work)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Have it done on the loop's thread and wait for the outcome."""
        return self._here(work).wait(work)

    def _here(self, work: Coroutine[Any, Any, T]) -> LoopThread:
        if os.getpid() != self._pid:
            work.close()
            raise WrongState("this client was made before a fork: make one in each process")
        if self._thread is None:
            self._thread = LoopThread.get()
        return self._thread


class Front(Caller, Generic[C]):
    """A client with blocking methods, for any thread."""

    def __init__(self, client: C) -> None:
        super().__init__()
        self.client = client
        """The client of asyncio behind this front."""

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
        """Begin; `with` does so."""
        self.wait(self.client.start())

    def close(self) -> None:
        """End; `with` does so. A second time does nothing."""
        self.wait(self.client.close())


class Subject:
    """One subject of a client with many: every coroutine of it becomes a blocking call."""

    def __init__(self, caller: Caller, subject: object) -> None:
        self._caller = caller
        self._subject = subject

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._subject, name)
        if not iscoroutinefunction(found):
            return found

        @wraps(found)
        def call(*args: Any, **kwargs: Any) -> Any:
            return self._caller.wait(found(*args, **kwargs))

        return call


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """The method of a front that waits for the coroutine of that name."""

    @wraps(method)
    def call(front: Front[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return front.wait(method(front.client, *args, **kwargs))

    return call


def on_the_loop(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """The method of a front that calls the plain one of that name, on the loop's thread."""

    @wraps(method)
    def call(front: Front[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def work() -> T:
            return method(front.client, *args, **kwargs)

        return front.wait(work())

    return call
