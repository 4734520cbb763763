"""Administration of a cluster: `AdminClient`, a typed asyncio API over the admin requests.

`client.AdminClient` has one attribute per subject, and each subject is one module or part of one.
`servers` sends the requests and resolves names to addresses. The package imports from `client` and
below.
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
