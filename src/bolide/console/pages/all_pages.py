"""All pages; importing this module declares them."""

# ruff: noqa: F401  one line for each module, which declares its pages

import bolide.console.pages.access.overview
import bolide.console.pages.access.users
import bolide.console.pages.account
import bolide.console.pages.audit
import bolide.console.pages.cluster.broker
import bolide.console.pages.cluster.ops
import bolide.console.pages.cluster.overview
import bolide.console.pages.consumers.detail
import bolide.console.pages.consumers.listing
import bolide.console.pages.dashboard
import bolide.console.pages.dead_letters.detail
import bolide.console.pages.dead_letters.jobs
import bolide.console.pages.dead_letters.listing
import bolide.console.pages.held.parked
import bolide.console.pages.held.timers
import bolide.console.pages.held.transactions
import bolide.console.pages.messages.detail
import bolide.console.pages.messages.search
import bolide.console.pages.messages.traces
import bolide.console.pages.pipelines
import bolide.console.pages.producers
import bolide.console.pages.topics.detail
import bolide.console.pages.topics.listing
from bolide.console.pages.declaration import PAGES

__all__ = ["PAGES"]
