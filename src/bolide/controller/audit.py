"""What the audit log of a controller records of each request that administers."""

from typing import Any

import msgspec

from bolide.auth.audit import Describer, Subject, changed_settings, target_of
from bolide.config import ConfigCell, secret_keys, to_texts
from bolide.controller.config import ControllerConfig
from bolide.controller.proposals import View
from bolide.protocol.bodies.audit import State
from bolide.protocol.codes import RequestCode as Code
from bolide.protocol.header import NoHeader
from bolide.remoting.dispatch import Request


class Subjects:
    """Describes the requests to one controller."""

    def __init__(self, view: View, config: ConfigCell[ControllerConfig]) -> None:
        self._view = view
        self._config = config

    def describers(self) -> dict[int, Describer]:
        return {
            Code.CLEAN_BROKER_DATA: self._group,
            Code.UPDATE_CONTROLLER_CONFIG: self._settings,
        }

    def _group(self, request: Request[Any]) -> Subject:
        name = request.header.broker_name

        def state() -> State:
            group = self._view.groups.get(name)
            return {} if group is None else {name: msgspec.to_builtins(group, str_keys=True)}

        return Subject(target_of(request.header), state)

    def _settings(self, request: Request[NoHeader]) -> Subject:
        return changed_settings(
            request, lambda: to_texts(self._config.value), secret_keys(ControllerConfig)
        )
