"""All operations; importing this module declares them."""

from bolide.operations import (  # noqa: F401  they declare operations
    cluster_members,
    connection,
    drains,
    health,
    replication,
    server_settings,
)
from bolide.operations.declaration import OPERATIONS

__all__ = ["OPERATIONS"]
