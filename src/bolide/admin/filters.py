"""Filter functions of brokers; ours, Apache's have none."""

from collections.abc import Iterable

from bolide.admin.servers import Servers, each
from bolide.protocol.bodies.filters import (
    FilterFunction,
    FilterFunctionState,
    FilterFunctionStates,
)
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.filters import FilterFunctionHeader

_PATIENCE = 60.0
"""Seconds for a broker that starts its first process for functions."""


class FilterFunctions:
    """Python functions by which brokers filter; each broker has its own."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def update(self, address: str, name: str, source: str) -> None:
        """Register a function with one broker, or replace it; the source defines `accept`."""
        await self._servers.ask(
            address,
            RequestCode.BOLIDE_UPDATE_FILTER_FUNCTION,
            FilterFunctionHeader(name),
            body=source.encode(),
            within=_PATIENCE,
        )

    async def delete(self, address: str, name: str) -> None:
        """Forget a function at one broker; groups that filter by it get nothing from then on."""
        header = FilterFunctionHeader(name)
        await self._servers.ask(address, RequestCode.BOLIDE_DELETE_FILTER_FUNCTION, header)

    async def source(self, address: str, name: str) -> str:
        """What a function was registered with; raises QueryNotFound."""
        header, code = FilterFunctionHeader(name), RequestCode.BOLIDE_GET_FILTER_FUNCTION
        return (await self._servers.fetch(address, code, FilterFunction, header)).source

    async def states(self, addresses: Iterable[str]) -> dict[str, list[FilterFunctionState]]:
        """The functions of brokers, by address, and what they have done."""
        code = RequestCode.BOLIDE_LIST_FILTER_FUNCTIONS
        found = await each(
            addresses, lambda address: self._servers.fetch(address, code, FilterFunctionStates)
        )
        return {address: states.functions for address, states in found.items()}
