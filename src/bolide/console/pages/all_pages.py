"""All pages; importing this module declares them."""

# ruff: noqa: F401  one line for each module, which declares its pages

import bolide.console.pages.account
import bolide.console.pages.audit
import bolide.console.pages.dashboard
import bolide.console.pages.pipelines
import bolide.console.pages.producers
from bolide.console.pages.declaration import PAGES

__all__ = ["PAGES"]
