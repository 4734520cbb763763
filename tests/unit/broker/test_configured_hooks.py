"""Hooks that the operator names in the configuration."""

from pathlib import Path

import pytest

from bolide.broker.configured_hooks import load_hooks
from bolide.errors import ConfigError

MODULE = """
class Sends:
    def before_send(self, peer, header, body): ...
    def after_send(self, peer, header, reply): ...


class Everything(Sends):
    def after_pull(self, peer, header, count, size): ...
    def before(self, peer, request): ...
    def after(self, peer, request, response): ...


class HalfAHook:
    def before_send(self, peer, header, body): ...


class WithArguments(Sends):
    def __init__(self, limit): ...
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "operators_hooks.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)


def test_a_hook_sees_what_it_has_methods_for() -> None:
    hooks = load_hooks(["operators_hooks:Sends", "operators_hooks:Everything"])
    assert [type(each).__name__ for each in hooks.send] == ["Sends", "Everything"]
    assert [type(each).__name__ for each in hooks.consume] == ["Everything"]
    assert [type(each).__name__ for each in hooks.request] == ["Everything"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("operators_hooks", "module:Class"),
        ("operators_hooks:", "module:Class"),
        (":Sends", "module:Class"),
        ("operators_hooks:Missing", "cannot be loaded: AttributeError"),
        ("no_such_module:Hook", "cannot be loaded: ModuleNotFoundError"),
        ("operators_hooks:WithArguments", "takes? no arguments"),
        ("operators_hooks:HalfAHook", "is no hook: give it before_send and after_send"),
    ],
)
def test_what_cannot_be_loaded_is_named(name: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        load_hooks([name])
    assert str(caught.value).startswith("brokerHooks: ")
