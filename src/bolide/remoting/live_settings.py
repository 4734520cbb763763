"""The settings of a NameServer or controller as requests show and change them."""

import asyncio
import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from bolide import logs, properties
from bolide.config import ConfigCell, change_file, options_of
from bolide.errors import ConfigError
from bolide.logs import LogLevel
from bolide.protocol.refusals import InvalidParameter, NoPermission, ServerError
from bolide.remoting.tasks import uninterrupted

log = logging.getLogger(__name__)


class ChangeableConfig(Protocol):
    """What a config says about changes of itself."""

    @property
    def config_black_list(self) -> tuple[str, ...]: ...

    @property
    def config_store_path(self) -> Path: ...

    @property
    def log_level(self) -> LogLevel: ...


C = TypeVar("C", bound=ChangeableConfig)


class LiveSettings(Generic[C]):
    """Writes changes to the file of a config, then applies them; belongs to one event loop.

    Args:
        others: keys without effect as they are shown, with their values.
        secrets: keys whose presence makes the file readable by its owner only.
        fixed: keys that no request changes.
    """

    def __init__(
        self,
        cell: ConfigCell[C],
        others: Mapping[str, str],
        *,
        secrets: Collection[str],
        fixed: Collection[str],
    ) -> None:
        self.others = dict(others)
        self._cell = cell
        self._secrets = secrets
        self._fixed = frozenset(fixed)
        self._writing = asyncio.Lock()  # a change is checked against the one before it

    @property
    def config(self) -> C:
        """The settings in force."""
        return self._cell.value

    async def update(self, body: bytes, peer: str) -> None:
        """Change settings to those of the body of a request.

        Raises:
            NoPermission: no request may change one of the keys; nothing is changed.
            InvalidParameter: a value is invalid; nothing is changed.
            ServerError: the file cannot be written; nothing is changed.
        """
        texts = properties.parse(body.decode(errors="replace"))
        locked = self._fixed.union(self.config.config_black_list)
        if refused := sorted(locked & texts.keys()):
            raise NoPermission(
                f"Can not update config in black list: {', '.join(refused)}; nothing is changed."
                " Such settings change only in the file or on the command line, at a restart"
            )
        await uninterrupted(self._change(texts, peer))

    async def _change(self, texts: Mapping[str, str], peer: str) -> None:
        others = {key: text for key, text in texts.items() if key in self.others}
        async with self._writing:
            try:
                changes = self._cell.changes(texts)
            except ConfigError as exc:
                raise InvalidParameter(str(exc)) from exc
            await self._write(changes | others)
            self._cell.apply(changes)
        self.others.update(others)
        self._report(texts, changes, peer)
        if "logLevel" in texts:  # even if unchanged: the logging set-up may differ from the setting
            logs.set_level(self.config.log_level)

    async def _write(self, changes: Mapping[str, str]) -> None:
        path = self.config.config_store_path
        try:
            await asyncio.to_thread(change_file, path, changes, self._secrets)
        except OSError as exc:
            raise ServerError(f"nothing is changed, {path} cannot be written: {exc}") from exc

    def _report(self, texts: Mapping[str, str], changed: Mapping[str, str], peer: str) -> None:
        options = options_of(type(self.config))
        for key, text in changed.items():
            when = "now" if options[key].live else "after a restart"
            log.info("%s set %s=%s, in effect %s", peer, key, text, when)
        for key in texts.keys() - options.keys():
            log.warning("%s set %s, which has no effect here", peer, key)
