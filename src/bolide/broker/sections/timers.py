"""Settings of messages with a delivery time."""

from dataclasses import dataclass

from bolide.config import option

_YEAR = 365 * 24 * 3600


@dataclass(frozen=True, kw_only=True)
class TimerSettings:
    """Messages that ask for a time of delivery."""

    timer_wheel_enable: bool = option(True, "Take messages with a delivery time.", live=True)
    timer_max_delay_sec: int = option(
        _YEAR, "Seconds that a message may wait at most.", bounds=(1, 100 * _YEAR), live=True
    )
    recall_message_enable: bool = option(
        True, "Let producers take back messages whose time has not come.", live=True
    )
