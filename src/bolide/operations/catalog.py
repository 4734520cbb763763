"""All operations; importing this module declares them."""

# ruff: noqa: F401  one line for each module, which declares its operations

import bolide.operations.access.brokers
import bolide.operations.access.changes
import bolide.operations.access.check
import bolide.operations.access.plain_accounts
import bolide.operations.access.users
import bolide.operations.audit
import bolide.operations.consumers.deletion
import bolide.operations.consumers.listing
import bolide.operations.consumers.members
import bolide.operations.consumers.offsets
import bolide.operations.consumers.settings
import bolide.operations.dashboard
import bolide.operations.dead_letters.listing
import bolide.operations.dead_letters.redrives
import bolide.operations.held.parked
import bolide.operations.held.timers
import bolide.operations.held.transactions
import bolide.operations.jobs
import bolide.operations.messages.consumption
import bolide.operations.messages.detail
import bolide.operations.messages.downloads
import bolide.operations.messages.lookup
import bolide.operations.messages.places
import bolide.operations.messages.resending
import bolide.operations.messages.search
import bolide.operations.messages.sending
import bolide.operations.messages.tail
import bolide.operations.pipelines
import bolide.operations.producers
import bolide.operations.servers.connection
import bolide.operations.servers.drains
import bolide.operations.servers.health
import bolide.operations.servers.members
import bolide.operations.servers.replication
import bolide.operations.servers.settings
import bolide.operations.topics.changes
import bolide.operations.topics.detail
import bolide.operations.topics.listing
import bolide.operations.topics.updates
import bolide.operations.traces
from bolide.operations.declaration import OPERATIONS

__all__ = ["OPERATIONS"]
