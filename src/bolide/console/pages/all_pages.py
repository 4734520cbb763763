"""All pages; importing this module declares them."""

from bolide.console.pages import access_control, access_users, account, audit, pipelines
from bolide.console.pages.declaration import PAGES

__all__ = ["PAGES", "access_control", "access_users", "account", "audit", "pipelines"]
