"""Log-ins of users of the cluster: a broker must refuse the same name with a wrong secret."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, Self

import pytest

from bolide.console.access import login as login_module
from bolide.console.access.accounts import Accounts
from bolide.console.access.login import Login, LoginFailed, LoginUnchecked
from bolide.errors import BolideError
from bolide.protocol.refusals import NoPermission, ServerError, SystemBusy
from bolide.remoting.errors import CallTimedOut, ConnectFailed, ConnectionLost
from tests.support.aio import on_loop

NAME, SECRET = "shop", "right-secret-1"
OTHER_FAILURES = (
    CallTimedOut("10.0.0.2:10911", 1, 3.0),
    ConnectFailed("10.0.0.2:10911", "no route"),
    ConnectionLost("10.0.0.2:10911"),
    SystemBusy("later"),
    ServerError("a NullPointerException"),
)
Answer = Callable[[str, bool], str]
"""The access key for which a broker takes somebody, by its address; or an error."""


@pytest.fixture
def make_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Answer], Login]:
    def make(answer: Answer) -> Login:
        def admin(_: str, **given: Any) -> _Admin:
            return _Admin(lambda address: answer(address, given["secret_key"] == SECRET))

        monkeypatch.setattr(login_module, "AdminClient", admin)
        return Login(Accounts(tmp_path / "accounts.json"), "127.0.0.1:9876")

    return make


@pytest.mark.parametrize("refusal", [NoPermission("check"), ServerError("AclException: [10015]")])
@on_loop
async def test_a_user_of_the_cluster_logs_in(
    make_login: Callable[[Answer], Login], refusal: BolideError
) -> None:
    login = make_login(lambda _, is_right: NAME if is_right else _fail(refusal))
    found = await login.check(NAME, SECRET, "10.0.0.1")
    assert (found.user, found.identity and found.identity.secret_key) == (NAME, SECRET)
    with pytest.raises(LoginFailed):
        await login.check(NAME, "guess", "10.0.0.1")


@pytest.mark.parametrize("failure", OTHER_FAILURES, ids=lambda error: type(error).__name__)
@on_loop
async def test_who_is_not_refused_with_a_wrong_secret_is_not_let_in(
    make_login: Callable[[Answer], Login], failure: BolideError
) -> None:
    login = make_login(lambda _, is_right: NAME if is_right else _fail(failure))
    for _ in range(10):  # it is no guess, which would have to wait
        with pytest.raises(LoginUnchecked, match="try again"):
            await login.check(NAME, SECRET, "10.0.0.1")


@on_loop
async def test_a_cluster_that_checks_nothing_lets_nobody_in(
    make_login: Callable[[Answer], Login],
) -> None:
    for taken_for in (NAME, ""):
        login = make_login(lambda _, __, name=taken_for: name)  # type: ignore[misc]
        with pytest.raises(LoginFailed):
            await login.check(NAME, SECRET, "10.0.0.1")


@on_loop
async def test_the_broker_that_accepted_must_be_the_one_that_refuses(
    make_login: Callable[[Answer], Login],
) -> None:
    """The first broker checks nothing, and is out of reach for a moment."""

    def answer(address: str, is_right: bool) -> str:
        if address == "a:1":
            return NAME if is_right else _fail(ConnectionLost(address))
        return _fail(NoPermission("check signature failed"))

    with pytest.raises(LoginUnchecked):
        await make_login(answer).check(NAME, SECRET, "10.0.0.1")


@pytest.mark.parametrize(
    ("name", "secret"),
    [("\ud800", SECRET), (NAME, "\udfff"), ("x" * 257, "s"), ("x", "s" * 257), ("", "s")],
)
@on_loop
async def test_what_no_name_can_be_is_not_even_hashed(
    make_login: Callable[[Answer], Login], name: str, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Accounts, "verify", None)
    login = make_login(lambda _, __: NAME)
    with pytest.raises(LoginFailed):
        await login.check(name, secret, "10.0.0.1")


def _fail(error: BolideError) -> str:
    raise error


class _Admin:
    """The part of `AdminClient` that log-ins use, with two brokers."""

    def __init__(self, answer: Callable[[str], str]) -> None:
        self._answer = answer
        self.clusters = self.permissions = self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass

    async def info(self) -> Any:
        brokers = {"a": SimpleNamespace(broker_addrs={0: "a:1"})}
        return SimpleNamespace(
            broker_addr_table=brokers | {"b": SimpleNamespace(broker_addrs={0: "b:1"})}
        )

    async def who_am_i(self, address: str) -> Any:
        return SimpleNamespace(access_key=self._answer(address), is_super=False)
