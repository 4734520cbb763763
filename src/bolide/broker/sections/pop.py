"""Settings of POP consumers."""

from dataclasses import dataclass

from bolide.config import option

_INT_MAX = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class PopSettings:
    """Consumers that pop messages and acknowledge them one by one."""

    pop_polling_size: int = option(
        1024, "Pops of one group and queue that may wait.", bounds=(0, _INT_MAX), live=True
    )
    max_pop_polling_size: int = option(
        100_000, "Pops that may wait in all.", bounds=(0, _INT_MAX), live=True
    )
