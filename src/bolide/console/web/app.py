"""The web application: guard, API, log-in pages and NiceGUI's pages put together."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path

from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles
from fastapi_offline import FastAPIOffline
from nicegui import ui
from starlette.types import ASGIApp

from bolide.console.api.errors import answer_errors
from bolide.console.api.exports import export_router
from bolide.console.api.routes import operation_router
from bolide.console.api.session_routes import session_router
from bolide.console.service import Console
from bolide.console.ui.shell import add_pages
from bolide.console.web.guard import Guard
from bolide.console.web.login_pages import login_router
from bolide.console.web.sockets import guard_sockets
from bolide.operations.catalog import OPERATIONS
from bolide.operations.errors import NotFound
from bolide.version import __version__

_STATIC = Path(str(files("bolide.console") / "static"))


def make_app(console: Console) -> ASGIApp:
    """The application of a process; NiceGUI allows one in each."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with console:
            yield

    app = FastAPIOffline(
        title="Bolide console",
        version=__version__,
        summary="The operations of the console for scripts.",
        description="Log in with `POST /api/v1/session`, or send name and password by HTTP Basic."
        " In answers, null is unknown.",
        docs_url="/api/docs",
        redoc_url=None,
        openapi_url="/api/openapi.json",
        static_url="/api/docs-files",
        favicon_url="/static/bolide.svg",
        lifespan=lifespan,
    )
    answer_errors(app)
    app.include_router(session_router(console), prefix="/api/v1")
    app.include_router(export_router(console), prefix="/api/v1")
    app.include_router(operation_router(console, list(OPERATIONS.values())), prefix="/api/v1")
    app.include_router(login_router(console))
    app.mount("/static", StaticFiles(directory=_STATIC), name="static")

    @app.get("/healthz", include_in_schema=False)
    async def answer_alive() -> dict[str, str]:
        return {"status": "ok"}

    @app.api_route(
        "/api/{rest:path}",
        methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
        include_in_schema=False,
    )
    async def answer_unknown(rest: str) -> None:
        raise NotFound(f"there is no /api/{rest}; /api/docs lists what there is")

    add_pages(console)
    ui.run_with(
        app,
        title="Bolide",
        favicon=_STATIC / "bolide.svg",
        dark=None,
        language="en-US",
        binding_refresh_interval=None,
        reconnect_timeout=5.0,
        tailwind=False,
        show_welcome_message=False,
    )
    guard_sockets(console.sessions, login=console.settings.login)
    return Guard(app, console)
