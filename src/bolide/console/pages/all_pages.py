"""All pages; importing this module declares them."""

from bolide.console.pages import account, dashboard, message_page, messages, producers, traces
from bolide.console.pages.declaration import PAGES

__all__ = ["PAGES", "account", "dashboard", "message_page", "messages", "producers", "traces"]
