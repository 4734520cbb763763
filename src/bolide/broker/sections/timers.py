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
    append_topic_for_timer_delete_key: bool = option(
        False, "Write recalls as RocketMQ 5.2 to 5.4 read them; all ways are understood.",
        live=True,
    )  # fmt: skip
    timer_precision_ms: int = option(
        1000, "Milliseconds of a slot of the timer wheel; its files depend on it.",
        bounds=(10, 10_000),
    )  # fmt: skip
    timer_roll_window_slot: int = option(
        2 * 24 * 3600, "Slots ahead in which messages wait; what is further away comes again.",
        bounds=(60, 7 * 24 * 3600 - 60),
    )  # fmt: skip
    mapped_file_size_timer_log: int = option(
        100 * 1024 * 1024, "Bytes of a file of the timer log.", bounds=(4096, 2**30)
    )
