"""The role of a broker in its group: fixed by its settings, or decided by a controller."""

from dataclasses import dataclass
from enum import StrEnum

from bolide.broker.settings.config import BrokerConfig, BrokerRole

MASTER_ID = 0


class RoleKind(StrEnum):
    MASTER = "master"
    SLAVE = "slave"


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """What a broker is, from one election to the next."""

    kind: RoleKind
    broker_id: int
    """Id for NameServers and clients: 0 of a master."""
    is_elected: bool = False
    """Whether a controller decides."""
    member_id: int = -1
    """Id that the controller knows this broker by; -1 while it is unknown."""
    epoch: int = -1
    """Epoch of the master, in controller mode."""
    members: frozenset[int] = frozenset()
    """Ids of the sync-state set with which the role begins, in controller mode."""
    master_address: str | None = None
    """Address of the master, if a controller told it."""

    @property
    def is_master(self) -> bool:
        return self.kind is RoleKind.MASTER

    def __str__(self) -> str:
        return f"{self.kind} in epoch {self.epoch}" if self.is_elected else str(self.kind)


def configured_role(config: BrokerConfig, member_id: int = -1) -> Role:
    """The role that the settings give a broker; in controller mode, until it is elected."""
    if config.enable_controller_mode:
        return Role(kind=RoleKind.SLAVE, broker_id=member_id, is_elected=True, member_id=member_id)
    is_slave = config.broker_role is BrokerRole.SLAVE
    return Role(
        kind=RoleKind.SLAVE if is_slave else RoleKind.MASTER,
        broker_id=config.broker_id if is_slave else MASTER_ID,
    )
