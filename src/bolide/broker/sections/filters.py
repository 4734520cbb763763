"""Settings of filters."""

from dataclasses import dataclass

from bolide.config import option

_DAY_MS = 86_400_000
_MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class FilterSettings:
    """Filters by more than tags. Durations are seconds here, milliseconds in files."""

    enable_property_filter: bool = option(
        True, "Filter messages by SQL92 expressions over their properties.", live=True
    )
    filter_support_retry: bool = option(
        False, "Filter retries too, by the expression for their first topic.", live=True
    )
    filter_data_clean_time_span: float = option(
        86_400.0,
        "Milliseconds after which the SQL92 expression of a group without consumers is forgotten.",
        bounds=(0, 365 * _DAY_MS), scale=1000, live=True,
    )  # fmt: skip
    filter_server_nums: int = option(
        0, "Processes that run filter functions; 0 is none, and no such filters.", bounds=(0, 64)
    )
    filter_function_timeout: float = option(
        1.0, "Milliseconds that a filter function gets for the messages of one pull.",
        bounds=(10, 60_000), scale=1000, ours=True,
    )  # fmt: skip
    filter_function_memory: int = option(
        256 * _MIB, "Bytes of memory that a process gets for its filter functions.",
        bounds=(16 * _MIB, 64 * 1024 * _MIB), ours=True,
    )  # fmt: skip
