"""When the producer of an open half is asked, and when nobody is any more."""

from dataclasses import dataclass
from enum import Enum, auto

from bolide.broker.config import BrokerConfig
from bolide.broker.transactions.half import Half
from bolide.store.config import StoreConfig


class Verdict(Enum):
    """What is to be done with an open half."""

    YOUNG = auto()
    """Nothing, nor with those behind it."""
    HOLD = auto()
    """Nothing yet."""
    ASK = auto()
    GIVE_UP = auto()


@dataclass(frozen=True, slots=True)
class Rules:
    """What the settings say; durations are seconds."""

    timeout: float
    most_times: int
    longest: float

    @classmethod
    def of(cls, config: BrokerConfig, store: StoreConfig) -> "Rules":
        return cls(
            config.transaction_timeout,
            config.transaction_check_max,
            store.file_reserved_hours * 3600.0,
        )

    def due(self, half: Half) -> float:
        """When its producer may be asked."""
        if half.immunity is not None:
            return half.began + half.immunity
        return half.began + self.timeout if not half.times else 0.0

    def is_too_old(self, half: Half, now: float) -> bool:
        """Whether it has waited as long as the log keeps messages."""
        return now - half.began > self.longest

    def fades(self, half: Half) -> float:
        """When it has to be moved, lest its file be deleted."""
        return half.record.store_timestamp / 1000 + self.longest / 2

    def judge(self, half: Half, now: float) -> Verdict:
        """As RocketMQ does; but the clock of the producer counts only where ours cannot, and what
        is old is asked about first."""
        if half.times >= self.most_times:
            return Verdict.GIVE_UP
        # Of the future: the clock was set back, and nobody wants to wait that long.
        if self.due(half) <= now or half.record.store_timestamp / 1000 > now + self.timeout:
            return Verdict.ASK
        if self.is_too_old(half, now):
            return Verdict.GIVE_UP
        return Verdict.HOLD if half.immunity is not None else Verdict.YOUNG
