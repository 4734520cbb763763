"""All pages; importing this module declares them."""

from bolide.console.pages import account, broker, cluster, ops
from bolide.console.pages.declaration import PAGES

__all__ = ["PAGES", "account", "broker", "cluster", "ops"]
