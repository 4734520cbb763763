"""Settings of a running broker: shows them, changes them, and writes changes to their file.

Two cells hold the values in force, one for the broker and one for its store. A setting that needs
a restart is written and shown but not applied, since only a part of the broker would notice it.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bolide import logs
from bolide.auth.settings import refuse_other_classes
from bolide.broker.background import on_saving_thread
from bolide.broker.multi_process import OWN_KEYS
from bolide.broker.settings.config import (
    ALL_IGNORED,
    BrokerConfig,
    keys_of,
    limits_are_given,
)
from bolide.broker.settings.without_effect import IGNORED_IN_FILES
from bolide.config import (
    ConfigCell,
    change_file,
    fixed_keys,
    ignored_texts,
    options_of,
    secret_keys,
    to_texts,
)
from bolide.errors import ConfigError
from bolide.protocol.bodies.data_version import DataVersion
from bolide.protocol.refusals import InvalidParameter, NoPermission, ServerError
from bolide.remoting.tasks import uninterrupted
from bolide.store.config import StoreConfig

log = logging.getLogger(__name__)

_SECRETS = secret_keys(BrokerConfig, ALL_IGNORED)
_FIXED = fixed_keys(BrokerConfig, ALL_IGNORED | IGNORED_IN_FILES) | fixed_keys(StoreConfig)
_FILE = Path("config") / "broker.properties"

Cell = ConfigCell[BrokerConfig] | ConfigCell[StoreConfig]


@dataclass(slots=True)
class Change:
    """An update, by effect; all keys but the unknown ones are written to the file."""

    now: dict[str, str] = field(default_factory=dict)
    after_restart: dict[str, str] = field(default_factory=dict)
    without_effect: dict[str, str] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    """Not written to the file."""

    @property
    def remark(self) -> str | None:
        parts = {
            "in effect after a restart": self.after_restart,
            "known to RocketMQ, without effect here": self.without_effect,
            "unknown, ignored": self.unknown,
        }
        sentences = [f"{text}: {', '.join(sorted(keys))}" for text, keys in parts.items() if keys]
        return "; ".join(sentences) or None


class Settings:
    """The settings in force and pending changes; belongs to one event loop.

    Args:
        ignored: keys without effect that the configuration file sets, with their values.
    """

    def __init__(
        self,
        cell: ConfigCell[BrokerConfig],
        store_cell: ConfigCell[StoreConfig],
        ignored: Mapping[str, str] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.version = DataVersion(timestamp=int(now() * 1000))
        self._cells: tuple[Cell, Cell] = (cell, store_cell)
        self._broker, self._store = cell, store_cell
        self._now = now
        self._writing = asyncio.Lock()  # one file, one writer
        self._others = ignored_texts(ALL_IGNORED, ignored or {})
        self._pending: dict[str, str] = {}

    @property
    def path(self) -> Path:
        """The file that receives changes."""
        return self._broker.value.broker_config_path or self._store.value.root / _FILE

    def texts(self) -> dict[str, str]:
        """Texts of all of RocketMQ's keys, and of Bolide's own keys not at their default."""
        return self._others | _shown(self._broker) | _shown(self._store) | self._pending

    def before_restart(self) -> dict[str, str]:
        """Texts in force of the settings that wait for a restart to have another value."""
        found: dict[str, str] = {}
        for cell in self._cells:
            options = options_of(type(cell.value))
            for key in self._pending.keys() & options.keys() - _SECRETS:
                value = getattr(cell.value, options[key].field)
                if options[key].parse(self._pending[key]) != value:
                    found[key] = options[key].format(value)
        return dict(sorted(found.items()))

    async def update(self, texts: dict[str, str], peer: str) -> Change:
        """Write changes to the file, then apply them.

        Raises:
            NoPermission: no request may change one of the keys; nothing is changed.
            InvalidParameter: a value is invalid; nothing is changed.
            ServerError: the file cannot be written; nothing is changed.
        """
        if locked := sorted(self._locked() & texts.keys()):
            raise NoPermission(
                f"Can not update config in black list: {', '.join(locked)}; nothing is changed."
                " Such settings change only in the file or on the command line, at a restart"
            )
        return await uninterrupted(self._update(texts, peer))

    def _locked(self) -> set[str]:
        own = OWN_KEYS if self._broker.value.workers > 1 else ()
        return _FIXED.union(self._broker.value.config_black_list, own)

    async def _update(self, texts: dict[str, str], peer: str) -> Change:
        async with self._writing:
            try:
                refuse_other_classes(texts)
                change = self._classify(texts)
            except ConfigError as exc:
                raise InvalidParameter(f"nothing is changed: {exc}") from exc
            await self._write(change.now | change.after_restart | change.without_effect)
            self._apply(change)
        self._report(change, peer)
        return change

    def _classify(self, texts: dict[str, str]) -> Change:
        if limits_are_given(texts):
            texts = {"transferLimitsGiven": "true"} | texts
        known = keys_of(BrokerConfig) | keys_of(StoreConfig)
        change = Change(
            without_effect={key: text for key, text in texts.items() if key in self._others},
            unknown=texts.keys() - known - self._others.keys(),
        )
        for cell in self._cells:
            options = options_of(type(cell.value))
            for key, text in cell.changes(texts).items():
                (change.now if options[key].live else change.after_restart)[key] = text
        self._revert_pending(texts, change)
        return change

    def _revert_pending(self, texts: dict[str, str], change: Change) -> None:
        """Write a pending setting that is set back to the value in force."""
        for key in self._pending.keys() & texts.keys() - change.after_restart.keys():
            change.after_restart[key] = texts[key].strip()

    def _apply(self, change: Change) -> None:
        for cell in self._cells:
            keys = options_of(type(cell.value))
            cell.apply({key: text for key, text in change.now.items() if key in keys})
        self._pending |= change.after_restart
        self._others |= change.without_effect
        self.version = self.version.bumped(int(self._now() * 1000))
        if "logLevel" in change.now:
            logs.set_level(self._broker.value.log_level)

    async def _write(self, changes: dict[str, str]) -> None:
        if not changes:
            return
        path = self.path
        try:
            await on_saving_thread(partial(change_file, path, changes, _SECRETS))
        except OSError as exc:
            raise ServerError(f"nothing is changed, {path} cannot be written: {exc}") from exc

    def _report(self, change: Change, peer: str) -> None:
        for key, text in (change.now | change.after_restart).items():
            log.info("%s set %s=%s", peer, key, text)
        if change.remark:
            log.warning("settings from %s with a remark: %s", peer, change.remark)


def _shown(cell: Cell) -> dict[str, str]:
    config = cell.value
    options = options_of(type(config))
    return {
        key: text
        for key, text in to_texts(config).items()
        if not options[key].ours or getattr(config, options[key].field) != options[key].default
    }
