"""Hooks that the operator names in `brokerHooks`: imported and built when the broker starts.

Whoever may name a hook runs code in the broker. So the setting comes only from the operator's file,
command line or environment; UPDATE_BROKER_CONFIG refuses it (`broker.settings.live`).
"""

import importlib
import logging
from collections.abc import Sequence
from typing import Any

from bolide.broker.gate import Hooks
from bolide.errors import ConfigError

log = logging.getLogger(__name__)

KEY = "brokerHooks"


def load_hooks(names: Sequence[str]) -> Hooks:
    """Build the hooks of these names, `module:Class`; their methods say what they see.

    Raises:
        ConfigError: a name cannot be loaded, or its class has no method of a hook.
    """
    hooks = Hooks()
    for name in names:
        hook = _build(name)
        kinds = []
        if callable(getattr(hook, "before_send", None)) and callable(
            getattr(hook, "after_send", None)
        ):
            hooks.send += (hook,)
            kinds.append("sends")
        if callable(getattr(hook, "after_pull", None)):
            hooks.consume += (hook,)
            kinds.append("deliveries")
        if callable(getattr(hook, "before", None)) and callable(getattr(hook, "after", None)):
            hooks.request += (hook,)
            kinds.append("requests")
        if not kinds:
            raise ConfigError(
                f"{KEY}: {name} is no hook: give it before_send and after_send, after_pull, or"
                " before and after"
            )
        log.info("hook %s sees %s", name, ", ".join(kinds))
    return hooks


def _build(name: str) -> Any:
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise ConfigError(f"{KEY}: {name!r} is not of the form module:Class")
    try:
        return getattr(importlib.import_module(module), attribute)()
    except Exception as exc:
        raise ConfigError(
            f"{KEY}: {name} cannot be loaded: {type(exc).__name__}: {exc}; is its directory in"
            " PYTHONPATH, and does the class take no arguments?"
        ) from exc
