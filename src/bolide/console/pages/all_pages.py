"""All pages; importing this module declares them."""

from bolide.console.pages import account
from bolide.console.pages.declaration import PAGES

__all__ = ["PAGES", "account"]
