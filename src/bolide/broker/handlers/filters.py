"""Filter functions: register, delete, show; ours, RocketMQ has no such requests."""

import logging

from bolide.broker.filters.functions import MAX_SOURCE, FilterFunctions
from bolide.protocol import fastjson
from bolide.protocol.bodies.filters import FilterFunctionState, FilterFunctionStates
from bolide.protocol.codes import RequestCode
from bolide.protocol.header import NoHeader
from bolide.protocol.headers.filters import FilterFunctionHeader
from bolide.protocol.refusals import InvalidParameter, QueryNotFound
from bolide.remoting.dispatch import Reply, Request, handles

log = logging.getLogger(__name__)


class FilterHandlers:
    """Changes the filter functions of a broker and tells of them."""

    def __init__(self, functions: FilterFunctions) -> None:
        self._functions = functions

    @handles(
        FilterFunctionHeader, RequestCode.BOLIDE_UPDATE_FILTER_FUNCTION, max_body=MAX_SOURCE + 1
    )
    async def update(self, request: Request[FilterFunctionHeader]) -> Reply:
        name = request.header.name
        try:
            source = request.body.decode()
        except UnicodeDecodeError as exc:
            raise InvalidParameter(f"the source of {name!r} is not UTF-8") from exc
        await self._functions.update(name, source)
        log.info("%s registered the filter function %s", request.connection.peer, name)
        return Reply()

    @handles(FilterFunctionHeader, RequestCode.BOLIDE_DELETE_FILTER_FUNCTION)
    async def delete(self, request: Request[FilterFunctionHeader]) -> Reply:
        await self._functions.delete(request.header.name)
        log.info("%s deleted the filter function %s", request.connection.peer, request.header.name)
        return Reply()

    @handles(FilterFunctionHeader, RequestCode.BOLIDE_GET_FILTER_FUNCTION)
    def get(self, request: Request[FilterFunctionHeader]) -> Reply:
        found = self._functions.find(request.header.name)
        if found is None:
            raise QueryNotFound(f"there is no filter function {request.header.name!r}")
        return Reply(body=fastjson.encode(found))

    @handles(NoHeader, RequestCode.BOLIDE_LIST_FILTER_FUNCTIONS)
    def list(self, request: Request[NoHeader]) -> Reply:
        states = FilterFunctionStates(
            functions=[self._state(each.name) for each in self._functions.all]
        )
        return Reply(body=fastjson.encode(states))

    def _state(self, name: str) -> FilterFunctionState:
        tally, function = self._functions.tally(name), self._functions.find(name)
        return FilterFunctionState(
            name=name,
            version=function.version if function else 0,
            judged=tally.judged,
            accepted=tally.accepted,
            failed=tally.failed,
            error=tally.error,
        )
