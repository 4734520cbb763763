"""The addresses that slaves have registered: what rocketmq-exporter names them by.

A master sees only where a slave connects from, so it asks a NameServer, at most once a minute and
only while somebody reads the metrics.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from bolide.broker.components import Parts
from bolide.errors import BolideError
from bolide.remoting.address import host_of

log = logging.getLogger(__name__)

_PERIOD = 60.0


class Slave(Protocol):
    """What a master knows of the connection of a slave."""

    @property
    def host(self) -> str: ...
    @property
    def peer(self) -> str: ...
    @property
    def broker_id(self) -> int: ...


class SlaveNames:
    """The last answer of a NameServer; belongs to one event loop, `members` to any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = 0.0
        self.members: Mapping[int, str] = {}
        """Addresses of the other members of the group, by broker id."""

    def ask_soon(self, parts: Parts) -> None:
        """Ask in the background for the slaves of this master, unless that was done lately."""
        if parts.master is None or not parts.master.primary.slaves:
            return
        if self._clock() >= self._next:
            self._next = self._clock() + _PERIOD
            parts.background.start(self._ask(parts), "broker-slave-names")

    async def _ask(self, parts: Parts) -> None:
        try:
            members = await parts.peers.members()
        except (BolideError, ValueError) as exc:
            log.debug("the slaves stay without the addresses they registered: %s", exc)
            return
        members.pop(parts.role.broker_id, None)
        self.members = members


def names_of_slaves(slaves: Collection[Slave], members: Mapping[int, str]) -> list[str]:
    """What tells the slaves apart: registered addresses where it is certain whose they are.

    Slaves tell their id with a controller only. Without one, a registered address is that of the
    only slave on its host; several slaves on one host are named by their connections.
    """
    connected = Counter(each.host for each in slaves)
    registered = Counter(host_of(each) for each in members.values())
    at = {host_of(each): each for each in members.values()}
    names = []
    for each in slaves:
        if each.broker_id in members:
            names.append(members[each.broker_id])
        elif connected[each.host] > 1:
            names.append(each.peer)
        else:
            names.append(at[each.host] if registered[each.host] == 1 else each.host)
    return names
