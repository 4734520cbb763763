"""Administration of a cluster: `AdminClient`, a typed asyncio API over the admin requests.

One module a subject: `clusters`, `name_servers`, `brokers`, `topics`, `groups`, `clients`,
`offsets`, `messages`. It imports from `client` and below.
"""

from bolide.admin.client import AdminClient
from bolide.admin.errors import (
    AdminError,
    AttributeUnknown,
    BadAddress,
    BrokerUnknown,
    ClusterNotFound,
    GroupOffline,
    GroupUnknown,
    MessageNotFound,
    NoNameServer,
)

__all__ = [
    "AdminClient",
    "AdminError",
    "AttributeUnknown",
    "BadAddress",
    "BrokerUnknown",
    "ClusterNotFound",
    "GroupOffline",
    "GroupUnknown",
    "MessageNotFound",
    "NoNameServer",
]
