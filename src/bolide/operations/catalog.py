"""All operations; importing this module declares them."""

# ruff: noqa: F401  one line for each module, which declares its operations

import bolide.operations.access_brokers
import bolide.operations.access_changes
import bolide.operations.access_check
import bolide.operations.access_control
import bolide.operations.audit
import bolide.operations.cluster_members
import bolide.operations.connection
import bolide.operations.consumer_deletion
import bolide.operations.consumer_members
import bolide.operations.consumer_settings
import bolide.operations.consumers
import bolide.operations.dashboard
import bolide.operations.dead_letters
import bolide.operations.drains
import bolide.operations.health
import bolide.operations.jobs
import bolide.operations.messages.consumption
import bolide.operations.messages.detail
import bolide.operations.messages.downloads
import bolide.operations.messages.lookup
import bolide.operations.messages.places
import bolide.operations.messages.resending
import bolide.operations.messages.search
import bolide.operations.messages.tail
import bolide.operations.offsets
import bolide.operations.parked
import bolide.operations.pipelines
import bolide.operations.plain_accounts
import bolide.operations.producers
import bolide.operations.redrives
import bolide.operations.replication
import bolide.operations.sending
import bolide.operations.server_settings
import bolide.operations.timers
import bolide.operations.topic_changes
import bolide.operations.topic_detail
import bolide.operations.topic_updates
import bolide.operations.topics
import bolide.operations.traces
import bolide.operations.transactions
from bolide.operations.declaration import OPERATIONS

__all__ = ["OPERATIONS"]
