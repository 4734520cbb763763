"""A user's message handler: where it runs, what it receives, what its result means."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import partial
from typing import Any, NamedTuple

from bolide.errors import BolideError
from bolide.model.message import StoredMessage

MessageHandler = Callable[[StoredMessage], object] | Callable[[StoredMessage], Awaitable[object]]
"""Takes one message. Returning acknowledges the message, raising retries it."""

BatchHandler = (
    Callable[[Sequence[StoredMessage]], int | None]
    | Callable[[Sequence[StoredMessage]], Awaitable[int | None]]
)
"""Takes several messages; may return how many of them, from the first on, succeeded."""

MAX_BATCH = 1024


class Retry(BolideError):
    """Raised by a handler to have its message delivered again.

    Args:
        delay_level: the delay level of the retry; 0 lets the broker choose by the number of
            tries, -1 sends the message to the dead letters.
        suspend: for ordered handlers, how many seconds the queue waits.
    """

    def __init__(
        self, reason: str = "asked for", *, delay_level: int = 0, suspend: float | None = None
    ) -> None:
        super().__init__(reason)
        self.delay_level = delay_level
        self.suspend = suspend


class RunsOn(Enum):
    """Where a handler runs."""

    LOOP = "as a task on the event loop"
    THREAD = "in a pool thread"
    INLINE = "at once on the event loop"


class OrderBy(StrEnum):
    """The scope in which an ordered handler keeps the order of messages."""

    QUEUE = "queue"
    KEYS = "keys"


class OnPoison(StrEnum):
    """What happens to a key whose message has used up its retries."""

    BLOCK = "block"
    PARK = "park"


class Outcome(NamedTuple):
    """How many messages of a call succeeded, from the first on, and the error of the rest."""

    done: int
    error: BaseException | None = None

    @property
    def delay_level(self) -> int:
        return self.error.delay_level if isinstance(self.error, Retry) else 0


@dataclass(frozen=True, slots=True)
class Handler:
    """A user's function and how it is called."""

    function: Callable[[Any], Any]
    runs_on: RunsOn
    batch: int = 1
    """1 passes single messages; more passes lists of at most that many."""
    is_ordered: bool = False
    order_by: OrderBy = OrderBy.QUEUE
    on_poison: OnPoison = OnPoison.BLOCK

    @classmethod
    def of(
        cls,
        function: Callable[[Any], Any],
        *,
        ordered: bool,
        batch: int,
        inline: bool,
        order_by: str = OrderBy.QUEUE,
        on_poison: str = OnPoison.BLOCK,
    ) -> "Handler":
        """Raises ValueError or TypeError if the options contradict each other."""
        if not callable(function):
            raise TypeError(f"a handler is a function, not {function!r}")
        if not 1 <= batch <= MAX_BATCH:
            raise ValueError(f"batch is {batch}, 1 to {MAX_BATCH} are possible")
        order = _checked_order(order_by, on_poison, ordered=ordered)
        if _is_coroutine_function(function):
            if inline:
                raise ValueError("inline is for plain functions: coroutines run on the loop anyway")
            return cls(function, RunsOn.LOOP, batch, ordered, *order)
        return cls(function, RunsOn.INLINE if inline else RunsOn.THREAD, batch, ordered, *order)

    @property
    def ordering(self) -> tuple[bool, OrderBy, OnPoison]:
        """The options that cannot change while a queue is held."""
        return self.is_ordered, self.order_by, self.on_poison

    def call(self, messages: Sequence[StoredMessage]) -> Any:
        """Call the function; the result is a value or an awaitable."""
        return self.function(messages[0] if self.batch == 1 else messages)

    def outcome(self, returned: object, count: int) -> Outcome:
        """Interpret the value that a call for `count` messages returned."""
        if self.batch == 1 or returned is None:
            return Outcome(count)
        if not isinstance(returned, int) or isinstance(returned, bool):
            kind = type(returned).__name__
            return Outcome(0, TypeError(f"a batch handler returns a number or None, not {kind}"))
        done = min(max(returned, 0), count)
        return Outcome(done, None if done == count else Retry(f"{done} of {count} were done"))


def _checked_order(order_by: str, on_poison: str, *, ordered: bool) -> tuple[OrderBy, OnPoison]:
    if order_by not in set(OrderBy):
        raise ValueError(f"order_by is {order_by!r}, {' or '.join(OrderBy)} are possible")
    if on_poison not in set(OnPoison):
        raise ValueError(f"on_poison is {on_poison!r}, {' or '.join(OnPoison)} are possible")
    if order_by == OrderBy.KEYS and not ordered:
        raise ValueError("order_by='keys' is for ordered handlers: give ordered=True too")
    if on_poison == OnPoison.PARK and order_by != OrderBy.KEYS:
        raise ValueError("on_poison='park' sets keys aside: give order_by='keys' too")
    return OrderBy(order_by), OnPoison(on_poison)


def _is_coroutine_function(function: Callable[[Any], Any]) -> bool:
    inner = function.func if isinstance(function, partial) else function
    call = getattr(inner, "__call__", None)  # noqa: B004  an object may have an async __call__
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(call)
