"""All pages; importing this module declares them."""

# ruff: noqa: F401  one line for each module, which declares its pages

import bolide.console.pages.account
import bolide.console.pages.consumer
import bolide.console.pages.consumers
import bolide.console.pages.dashboard
import bolide.console.pages.producers
import bolide.console.pages.topic
import bolide.console.pages.topics
from bolide.console.pages.declaration import PAGES

__all__ = ["PAGES"]
