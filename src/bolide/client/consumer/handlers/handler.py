"""How a user's function is called with messages, and what its outcome means."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import partial
from typing import Any, NamedTuple

from bolide.errors import BolideError
from bolide.model.message import StoredMessage

MessageHandler = Callable[[StoredMessage], object] | Callable[[StoredMessage], Awaitable[object]]
"""Takes one message; done when it returns, tried again when it raises."""

BatchHandler = (
    Callable[[Sequence[StoredMessage]], int | None]
    | Callable[[Sequence[StoredMessage]], Awaitable[int | None]]
)
"""Takes several; may return how many of them, from the first on, were done."""

MAX_BATCH = 1024


class Retry(BolideError):
    """Raised by a handler that wants its message again.

    Args:
        delay_level: wait as long as this level says; 0 lets the broker choose by the number of
            tries, -1 gives up: straight to the dead letters.
        suspend: for ordered handlers, how many seconds the queue waits.
    """

    def __init__(
        self, reason: str = "asked for", *, delay_level: int = 0, suspend: float | None = None
    ) -> None:
        super().__init__(reason)
        self.delay_level = delay_level
        self.suspend = suspend


class Place(Enum):
    """Where a handler runs."""

    LOOP = "as a task on the event loop"
    THREAD = "in a pool thread"
    INLINE = "at once on the event loop"


class OrderBy(StrEnum):
    """Within what an ordered handler's calls keep their order."""

    QUEUE = "queue"
    KEYS = "keys"


class OnPoison(StrEnum):
    """What becomes of a key whose message fails again and again."""

    BLOCK = "block"
    PARK = "park"


class Outcome(NamedTuple):
    """How many messages of a call were done, from the first on, and why not all."""

    done: int
    error: BaseException | None = None

    @property
    def delay_level(self) -> int:
        return self.error.delay_level if isinstance(self.error, Retry) else 0


@dataclass(frozen=True, slots=True)
class Handler:
    """A user's function with the way it wants to be called."""

    function: Callable[[Any], Any]
    place: Place
    batch: int = 1
    """1 calls it with a message, more with lists of at most so many."""
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
        """Raises ValueError or TypeError that says what does not go together."""
        if not callable(function):
            raise TypeError(f"a handler is a function, not {function!r}")
        if not 1 <= batch <= MAX_BATCH:
            raise ValueError(f"batch is {batch}, 1 to {MAX_BATCH} are possible")
        order = _checked_order(order_by, on_poison, ordered=ordered)
        if _is_coroutine_function(function):
            if inline:
                raise ValueError("inline is for plain functions: coroutines run on the loop anyway")
            return cls(function, Place.LOOP, batch, ordered, *order)
        return cls(function, Place.INLINE if inline else Place.THREAD, batch, ordered, *order)

    @property
    def ordering(self) -> tuple[bool, OrderBy, OnPoison]:
        """What cannot change while a queue is held."""
        return self.is_ordered, self.order_by, self.on_poison

    def call(self, messages: Sequence[StoredMessage]) -> Any:
        """What the function returns: a value, or an awaitable of one."""
        return self.function(messages[0] if self.batch == 1 else messages)

    def outcome(self, returned: object, count: int) -> Outcome:
        """Read what a call for `count` messages returned."""
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
