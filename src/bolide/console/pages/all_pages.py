"""All pages; importing this module declares them."""

# ruff: noqa: F401  one line for each module, which declares its pages

import bolide.console.pages.access_control
import bolide.console.pages.access_users
import bolide.console.pages.account
import bolide.console.pages.audit
import bolide.console.pages.broker
import bolide.console.pages.cluster
import bolide.console.pages.consumer
import bolide.console.pages.consumers
import bolide.console.pages.dashboard
import bolide.console.pages.dead_letter
import bolide.console.pages.dead_letters
import bolide.console.pages.jobs
import bolide.console.pages.message_page
import bolide.console.pages.messages
import bolide.console.pages.ops
import bolide.console.pages.parked
import bolide.console.pages.pipelines
import bolide.console.pages.producers
import bolide.console.pages.timers
import bolide.console.pages.topic
import bolide.console.pages.topics
import bolide.console.pages.traces
import bolide.console.pages.transactions
from bolide.console.pages.declaration import PAGES

__all__ = ["PAGES"]
