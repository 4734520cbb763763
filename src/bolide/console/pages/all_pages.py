"""All pages; importing this module declares them."""

from bolide.console.pages import (
    account,
    dead_letter,
    dead_letters,
    jobs,
    parked,
    timers,
    transactions,
)
from bolide.console.pages.declaration import PAGES

__all__ = [
    "PAGES",
    "account",
    "dead_letter",
    "dead_letters",
    "jobs",
    "parked",
    "timers",
    "transactions",
]
