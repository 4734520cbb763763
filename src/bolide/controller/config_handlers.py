"""Shows the settings of a controller and changes them at run time; each controller has its own."""

import asyncio
import logging
from collections.abc import Mapping

from bolide import logs, properties
from bolide.config import (
    ConfigCell,
    change_file,
    fixed_keys,
    ignored_texts,
    options_of,
    secret_keys,
    to_texts,
)
from bolide.controller.config import ALL_IGNORED, ControllerConfig
from bolide.errors import ConfigError
from bolide.protocol.codes import RequestCode
from bolide.protocol.header import NoHeader
from bolide.protocol.refusals import InvalidParameter, NoPermission, ServerError
from bolide.remoting.dispatch import Reply, Request, handles
from bolide.remoting.tasks import uninterrupted

log = logging.getLogger(__name__)

_SHORT_BODY = 64 * 1024
_SECRETS = secret_keys(ControllerConfig, ALL_IGNORED)
_FIXED = fixed_keys(ControllerConfig, ALL_IGNORED)


class ConfigHandlers:
    """Serves GET_CONTROLLER_CONFIG and UPDATE_CONTROLLER_CONFIG."""

    def __init__(self, config: ConfigCell[ControllerConfig], ignored: Mapping[str, str]) -> None:
        self._config = config
        self._writing = asyncio.Lock()  # one file, one writer
        self._others = ignored_texts(ALL_IGNORED, ignored)

    @handles(NoHeader, RequestCode.GET_CONTROLLER_CONFIG)
    def show(self, request: Request[NoHeader]) -> Reply:
        texts = self._others | to_texts(self._config.value)
        return Reply(body=properties.render(texts).encode())

    @handles(NoHeader, RequestCode.UPDATE_CONTROLLER_CONFIG, max_body=_SHORT_BODY)
    async def update(self, request: Request[NoHeader]) -> Reply:
        texts = properties.parse(request.body.decode(errors="replace"))
        locked = _FIXED.union(self._config.value.config_black_list)
        if refused := sorted(locked & texts.keys()):
            raise NoPermission(
                f"Can not update config in black list: {', '.join(refused)}; nothing is changed."
                " Such settings change only in the file or on the command line, at a restart"
            )
        await uninterrupted(self._change(texts, request.connection.peer))
        return Reply()

    async def _change(self, texts: dict[str, str], peer: str) -> None:
        others = {key: text for key, text in texts.items() if key in self._others}
        async with self._writing:
            try:
                changes = self._config.changes(texts)
            except ConfigError as exc:
                raise InvalidParameter(str(exc)) from exc
            path = self._config.value.config_store_path
            try:
                await asyncio.to_thread(change_file, path, changes | others, _SECRETS)
            except OSError as exc:
                raise ServerError(f"nothing is changed, {path} cannot be written: {exc}") from exc
            self._config.apply(changes)
        self._others.update(others)
        for key, text in changes.items():
            when = "now" if options_of(ControllerConfig)[key].live else "after a restart"
            log.info("%s set %s=%s, in effect %s", peer, key, text, when)
        for key in texts.keys() - options_of(ControllerConfig).keys():
            log.warning("%s set %s, which has no effect here", peer, key)
        if "logLevel" in texts:
            logs.set_level(self._config.value.log_level)
