"""Downloads: documents that are sent piece by piece, and too long for one answer in memory."""

from collections.abc import AsyncIterator
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse

from bolide.console.access.sessions import Session
from bolide.console.service import Console, require_valid
from bolide.operations.dead_letters.export import ExportFormat, export_letters
from bolide.operations.dead_letters.views import selection_of

_TYPES = {
    ExportFormat.CSV: "text/csv; charset=utf-8",
    ExportFormat.JSON: "application/json",
}


def export_router(console: Console) -> APIRouter:
    """The routes of downloads."""
    router = APIRouter()

    @router.get("/dead-letters/{group}/export", tags=["dead letters"])
    async def export_dead_letters(  # noqa: PLR0913, PLR0917  FastAPI gives them by name
        request: Request,
        group: str,
        format: Annotated[ExportFormat, Query()] = ExportFormat.CSV,  # noqa: A002  its name in the URL
        topic: str = "",
        key: str = "",
        message_id: str = "",
        tags: str = "",
        reason: str = "",
        text: str = "",
        begin_ms: int | None = None,
        end_ms: int | None = None,
    ) -> StreamingResponse:
        """Download the dead letters of a group that match, oldest first, as CSV or JSON.

        The filters are those of the list.
        """
        selection = selection_of(
            group, topic=topic, key=key, message_id=message_id, tags=tags, reason=reason,
            text=text, begin_ms=begin_ms, end_ms=end_ms,
        )  # fmt: skip
        session: Session = request.state.session
        require_valid(session)
        cluster = await console.cluster_of(session)
        pieces = export_letters(cluster, selection, format)
        first = await anext(pieces)  # what is wrong is an answer, not a broken document
        name = quote(f"dead-letters-{group}.{format}", safe="")
        return StreamingResponse(
            _joined(first, pieces),
            media_type=_TYPES[format],
            headers={
                "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
                "Cache-Control": "no-store",
            },
        )

    return router


async def _joined(first: str, rest: AsyncIterator[str]) -> AsyncIterator[str]:
    yield first
    async for piece in rest:
        yield piece
