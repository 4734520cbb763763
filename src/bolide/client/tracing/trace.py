"""How a client traces its messages."""

from dataclasses import dataclass

from bolide.errors import ConfigError
from bolide.model.message_checks import InvalidMessage, check_topic
from bolide.model.names import TRACE_TOPIC, is_sendable


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Given as `trace=` to a producer or a push consumer; `trace=True` means all defaults."""

    topic: str = TRACE_TOPIC
    """Where the records go. Messages of this topic are not traced themselves."""

    batch: int = 100
    """Records that go out together at most, in one message."""

    interval: float = 0.5
    """Seconds that a record waits for others."""

    most_waiting: int = 10_000
    """Records that may wait to be sent; what comes on top of them is dropped and counted."""

    def __post_init__(self) -> None:
        try:
            check_topic(self.topic)
        except InvalidMessage as exc:
            raise ConfigError(f"trace: topic: {exc.reason}") from exc
        if not is_sendable(self.topic):
            raise ConfigError(f"trace: topic: {self.topic!r} belongs to the broker: choose another")
        for name in ("batch", "most_waiting"):
            if getattr(self, name) < 1:
                raise ConfigError(f"trace: {name}={getattr(self, name)}: must be at least 1")
        if self.interval <= 0:
            raise ConfigError(f"trace: interval={self.interval}: must be over 0 seconds")

    @classmethod
    def of(cls, given: "bool | Trace") -> "Trace | None":
        """What a setting means; None if nothing is traced."""
        return given if isinstance(given, Trace) else cls() if given else None
