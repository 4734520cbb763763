"""Shows the settings of a controller and changes them at run time; each controller has its own."""

from collections.abc import Mapping

from bolide import properties
from bolide.config import ConfigCell, fixed_keys, ignored_texts, secret_keys, to_texts
from bolide.controller.config import ALL_IGNORED, ControllerConfig
from bolide.protocol.codes import RequestCode
from bolide.protocol.header import NoHeader
from bolide.remoting.dispatch import Reply, Request, handles
from bolide.remoting.live_settings import LiveSettings

_SHORT_BODY = 64 * 1024


class ConfigHandlers:
    """Serves GET_CONTROLLER_CONFIG and UPDATE_CONTROLLER_CONFIG."""

    def __init__(self, config: ConfigCell[ControllerConfig], ignored: Mapping[str, str]) -> None:
        self._settings = LiveSettings(
            config,
            ignored_texts(ALL_IGNORED, ignored),
            secrets=secret_keys(ControllerConfig, ALL_IGNORED),
            fixed=fixed_keys(ControllerConfig, ALL_IGNORED),
        )

    @handles(NoHeader, RequestCode.GET_CONTROLLER_CONFIG)
    def show(self, request: Request[NoHeader]) -> Reply:
        texts = self._settings.others | to_texts(self._settings.config)
        return Reply(body=properties.render(texts).encode())

    @handles(NoHeader, RequestCode.UPDATE_CONTROLLER_CONFIG, max_body=_SHORT_BODY)
    async def update(self, request: Request[NoHeader]) -> Reply:
        await self._settings.update(request.body, request.connection.peer)
        return Reply()
