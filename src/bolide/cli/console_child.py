"""The console that `bolide standalone` starts beside its servers; they run on if it fails."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from bolide.cli.admin.credentials import ACCESS_KEY, SECRET_KEY
from bolide.cli.console import HOW_TO_INSTALL
from bolide.cli.supervisor import FailedToStart, Server, Supervisor

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsolePlan:
    """How the console of `standalone` is started."""

    port: int
    data: Path
    host: str | None = None
    log_config: Path | None = None
    credentials: tuple[str, str] | None = field(default=None, repr=False)
    """Access key and secret key of the servers' own user, with access control."""
    tls_options: tuple[str, ...] = ()

    def server(self, name_server: str) -> Server:
        """The command; what is secret is in the environment."""
        words = [
            "console", f"--namesrvAddr={name_server}", f"--port={self.port}", f"--data={self.data}",
            *([f"--host={self.host}"] if self.host else []),
            *([f"--log-config={self.log_config}"] if self.log_config else []),
            *self.tls_options,
        ]  # fmt: skip
        hidden: Mapping[str, str] = {}
        if self.credentials is not None:
            hidden = dict(zip((ACCESS_KEY, SECRET_KEY), self.credentials, strict=True))
        return Server("console", tuple(words), hidden)


@asynccontextmanager
async def console_beside(plan: ConsolePlan | None, name_server: str) -> AsyncIterator[None]:
    """Run the console while the block runs; None runs none."""
    if plan is None:
        yield
        return
    if find_spec("nicegui") is None or find_spec("fastapi_offline") is None:
        print(f"The console is not installed: {HOW_TO_INSTALL}", flush=True)
        yield
        return
    running = asyncio.create_task(_run(plan.server(name_server)), name="console")
    try:
        yield
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def _run(server: Server) -> None:
    try:
        await Supervisor([[server]]).run(lambda: None)
    except FailedToStart:
        log.warning("the console could not be started; the servers run without it")
