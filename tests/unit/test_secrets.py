"""No secret in the text of a value, an error or a log line."""

import logging
from collections.abc import Callable

import pytest

from bolide.broker.settings.config import BrokerConfig
from bolide.client.instance.settings import ClientSettings
from bolide.namesrv.config import NameServerConfig
from bolide.protocol import fastjson
from bolide.protocol.bodies.access import User
from bolide.protocol.codes import RequestCode
from bolide.protocol.errors import ProtocolError
from bolide.protocol.header import NoHeader
from bolide.protocol.headers.access import PlainAclHeader
from bolide.remoting.dispatch import Dispatcher, Reply, Request, handles
from bolide.remoting.signing import Signer
from bolide.remoting.tls import ClientTls, ServerTls
from tests.support.aio import on_loop
from tests.support.broker_core import Peer

HUSH = "hush-hush"
VALUES: list[Callable[[], object]] = [
    lambda: BrokerConfig(
        tls_key_password=HUSH,
        tls_client_key_password=HUSH,
        init_authentication_user=HUSH,
        inner_client_authentication_credentials=HUSH,
    ),
    lambda: NameServerConfig(tls_key_password=HUSH, init_authentication_user=HUSH),
    lambda: ServerTls(key_password=HUSH),
    lambda: ClientTls(key_password=HUSH),
    lambda: ClientSettings(access_key="a", secret_key=HUSH, security_token=HUSH),
    lambda: Signer("a", HUSH),
    lambda: User(username="a", password=HUSH),
    lambda: PlainAclHeader(access_key="a", secret_key=HUSH),
]


@pytest.mark.parametrize("make", VALUES)
def test_the_text_of_a_value_holds_no_secret(make: Callable[[], object]) -> None:
    value = make()
    assert HUSH not in f"{value!r} {value} {[value]}"


class UserHandlers:
    @handles(NoHeader, RequestCode.AUTH_CREATE_USER, max_body=1000)
    def create(self, request: Request[NoHeader]) -> Reply:
        fastjson.decode(request.body, User)
        return Reply()


@on_loop
async def test_a_malformed_request_with_a_password_is_logged_without_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    body = f'[{{"username":"a","password":"{HUSH}"}}]'.encode()
    with pytest.raises(ProtocolError, match=HUSH):
        fastjson.decode(body, User)
    with caplog.at_level(logging.DEBUG):
        answer = await Peer(Dispatcher(UserHandlers())).call(RequestCode.AUTH_CREATE_USER, {}, body)
    assert answer.code == 1
    assert "request 3001 is malformed" in caplog.text
    assert HUSH not in caplog.text
