"""Settings of filters."""

from dataclasses import dataclass

from bolide.config import option


@dataclass(frozen=True, kw_only=True)
class FilterSettings:
    """Filters by more than tags."""

    enable_property_filter: bool = option(
        True, "Filter messages by SQL92 expressions over their properties.", live=True
    )
    filter_support_retry: bool = option(
        False, "Filter retries too, by the expression for their first topic.", live=True
    )
    filter_server_nums: int = option(
        0, "Processes that run filter functions; 0 is none, and no such filters.", bounds=(0, 64)
    )
