"""What the audit log of a controller records of each request that administers."""

from typing import Any

import msgspec

from bolide import properties
from bolide.auth.audit import Describer, Subject, is_secret, target_of
from bolide.config import ConfigCell, options_of, to_texts
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
        keys = properties.parse(request.body.decode(errors="replace")).keys()
        options = options_of(ControllerConfig)
        secrets = frozenset(
            key for key in keys if is_secret(key) or (key in options and options[key].secret)
        )

        def state() -> State:
            texts = to_texts(self._config.value)
            return {key: texts.get(key) for key in keys}

        return Subject({"keys": list(keys)}, state, secrets=secrets)
