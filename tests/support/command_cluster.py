"""A NameServer and brokers inside the test's event loop, and commands that are run against them."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from bolide.broker.server import Broker
from bolide.broker.settings.config import BrokerRole
from bolide.cli import app
from tests.support.access import ROOT, ROOT_PASSWORD
from tests.support.broker import configs_in
from tests.support.name_servers import name_server

SLAVE: dict[str, Any] = {"broker_role": BrokerRole.SLAVE, "broker_id": 1}
NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True)
class Cluster:
    name_server: str
    brokers: list[Broker]
    directory: Path
    keys: dict[str, str | None] = field(default_factory=dict)

    async def run(
        self, *words: str, code: int = 0, env: Mapping[str, str] = NOTHING, only: str = "output"
    ) -> str:
        """What a command prints on both streams or one, if it ends with that code."""
        arguments = [*words, "-n", self.name_server]
        given = {"BOLIDE_ASSUME_YES": None, **self.keys, **env}
        done = await asyncio.to_thread(CliRunner().invoke, app, arguments, env=given, input="n\n")
        assert done.exit_code == code, (words, done.output, done.exception)
        printed: str = getattr(done, only)
        return printed

    async def apply(
        self, text: str, *words: str, code: int = 0, env: Mapping[str, str] = NOTHING
    ) -> str:
        file = self.directory / "cluster.yml"
        file.write_text(text)
        return await self.run("apply", str(file), *words, code=code, env=env)

    async def exported(self, *words: str) -> Any:
        return json.loads(await self.run("export", "--json", *words, only="stdout"))


@asynccontextmanager
async def cluster(
    directory: Path, *names: str, slave: bool = False, **settings: Any
) -> AsyncIterator[Cluster]:
    """Brokers of one cluster; with a slave, the first one has one."""
    signs = {"BOLIDE_ACCESS_KEY": ROOT, "BOLIDE_SECRET_KEY": ROOT_PASSWORD}
    async with AsyncExitStack() as stack:
        names_server = await stack.enter_async_context(name_server(directory / "names"))
        brokers = []
        for name, role in [
            *((each, {}) for each in names),
            *([(names[0], SLAVE)] if slave else ()),
        ]:
            # The brokers have users of their own each, as they have in RocketMQ.
            chosen = {"broker_name": name, "name_servers": (names_server.address,), **role}
            config, store = configs_in(directory / f"{name}-{len(role)}", **chosen | settings)
            brokers.append(await stack.enter_async_context(Broker(config, store)))
        keys = signs if "authentication_enabled" in settings else {}
        yield Cluster(names_server.address, brokers, directory, dict(keys))
