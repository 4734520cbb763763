"""What a confirmation of an operation holds for."""

from dataclasses import dataclass, field

import pytest

from bolide.admin import AdminClient
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import OPERATIONS, Role, change
from bolide.operations.door import AuditEntry, Caller, Door
from bolide.operations.errors import ConfirmationNeeded
from bolide.operations.views import LIVE
from tests.support.aio import on_loop

CALLER = Caller(name="tester", role=Role.OPERATOR, source="test")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    queue: str
    messages: int = field(metadata=LIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    parts: list[Part]


class NoLog:
    async def write(self, entry: AuditEntry) -> None:
        pass


@on_loop
async def test_a_confirmation_holds_while_only_live_figures_change() -> None:
    parts = [Part(queue="a", messages=1)]

    async def effect(cluster: Cluster) -> Effect:
        return Effect(parts=[*parts])

    @change("POST", "/empty", target="queues", preview=effect)
    async def empty(cluster: Cluster) -> int:
        """Empty the queues."""
        return len(parts)

    del OPERATIONS[empty.name]  # it is not one of the product
    door, cluster = Door(NoLog()), Cluster(admin=AdminClient("h:1"), name_servers="h:1")
    with pytest.raises(ConfirmationNeeded) as needed:
        await door.run(empty, cluster, CALLER, {})
    token = needed.value.token
    parts[0] = Part(queue="a", messages=7)
    assert await door.run(empty, cluster, CALLER, {}, confirmation=token) == 1
    parts.append(Part(queue="b", messages=1))
    with pytest.raises(ConfirmationNeeded):
        await door.run(empty, cluster, CALLER, {}, confirmation=token)
