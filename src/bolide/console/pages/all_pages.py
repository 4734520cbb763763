"""All pages; importing this module declares them."""

from bolide.console.pages import account, consumer, consumers
from bolide.console.pages.declaration import PAGES

__all__ = ["PAGES", "account", "consumer", "consumers"]
