"""Which request codes are answered by whom."""

import asyncio
import re
from pathlib import Path

import pytest

import bolide
from bolide.broker.assembly import HANDLERS
from bolide.client.instance.server_requests import ServerRequests
from bolide.controller.server import HANDLERS as CONTROLLER_HANDLERS
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import Frame, HeaderEncoding
from bolide.protocol.refusals import Refusal, RequestCodeNotSupported
from bolide.protocol.requests import REQUESTS, Role
from bolide.remoting.client import RemotingClient
from bolide.remoting.dispatch import handled_codes
from docs.support import NEVER_SENT, PARTLY, REFUSED
from tests.support.aio import PATIENCE, on_loop
from tests.support.broker import broker_in
from tests.support.name_servers import name_server

ANSWERED_BY_A_NAME_SERVER = {
    RequestCode.PUT_KV_CONFIG,
    RequestCode.GET_KV_CONFIG,
    RequestCode.DELETE_KV_CONFIG,
    RequestCode.REGISTER_BROKER,
    RequestCode.UNREGISTER_BROKER,
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
    RequestCode.GET_BROKER_CLUSTER_INFO,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    RequestCode.DELETE_TOPIC_IN_NAMESRV,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV,
    RequestCode.GET_KVLIST_BY_NAMESPACE,
    RequestCode.GET_TOPICS_BY_CLUSTER,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
    RequestCode.GET_UNIT_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    RequestCode.UPDATE_NAMESRV_CONFIG,
    RequestCode.GET_NAMESRV_CONFIG,
    RequestCode.QUERY_DATA_VERSION,
    RequestCode.ADD_WRITE_PERM_OF_BROKER,
    RequestCode.GET_BROKER_MEMBER_GROUP,
    RequestCode.BROKER_HEARTBEAT,
    RequestCode.BOLIDE_WHO_AM_I,
    RequestCode.BOLIDE_CAN_I,
}
"""Ours, and those of RocketMQ (`DefaultRequestProcessor`, `ClientRequestProcessor`)."""

UNKNOWN = [0, 1, 9, 107, 906_000, -1, 2**31 - 1, -(2**31)]


def test_a_name_server_handles_every_code_of_rocketmqs(tmp_path: Path) -> None:
    dispatcher = name_server(tmp_path).dispatcher
    assert dispatcher.routes.keys() == ANSWERED_BY_A_NAME_SERVER


@on_loop
async def test_every_code_it_handles_is_answered_and_never_with_not_supported(
    tmp_path: Path,
) -> None:
    async with name_server(tmp_path) as server, RemotingClient() as client:
        connection = await client._connection(server.address)
        answers = await asyncio.gather(
            *(connection.call(Frame(code=code), PATIENCE) for code in ANSWERED_BY_A_NAME_SERVER)
        )
    assert {answer.code for answer in answers} <= {0, 1}


@on_loop
async def test_every_other_code_is_answered_with_not_supported(tmp_path: Path) -> None:
    async with name_server(tmp_path) as server, RemotingClient() as client:
        for code in set(RequestCode) - ANSWERED_BY_A_NAME_SERVER:
            with pytest.raises(RequestCodeNotSupported, match=f" request type {int(code)} not"):
                await client.call(server.address, code)


@pytest.mark.parametrize("encoding", list(HeaderEncoding), ids=lambda e: e.name)
@on_loop
async def test_codes_nobody_has_are_answered_with_not_supported(
    tmp_path: Path, encoding: HeaderEncoding
) -> None:
    async with name_server(tmp_path) as server, RemotingClient() as client:
        connection = await client._connection(server.address)
        for code in UNKNOWN:
            response = await connection.call(Frame(code=code, encoding=encoding), PATIENCE)
            assert response.code == 3
            assert response.encoding is encoding


SOURCES = Path(bolide.__file__).parent
ANSWERING = ("broker", "controller", "namesrv", "remoting", "client/instance")
"""Packages whose code answers requests."""


def test_every_response_code_is_sent_or_the_page_tells_why_not() -> None:
    paths = [path for place in ANSWERING for path in (SOURCES / place).rglob("*.py")]
    words = {word for path in paths for word in re.findall(r"\w+", path.read_text())}
    sent = {
        code
        for code in ResponseCode
        if code.name in words
        or (code in Refusal.by_code and Refusal.by_code[code].__name__ in words)
    }
    assert sent == set(ResponseCode) - NEVER_SENT.keys()


# ---- the broker

ANSWERED = {
    Role.BROKER: {code for group in HANDLERS for code in handled_codes(group)},
    Role.NAMESRV: ANSWERED_BY_A_NAME_SERVER,
    Role.CLIENT: set(handled_codes(ServerRequests)),
    Role.CONTROLLER: {code for group in CONTROLLER_HANDLERS for code in handled_codes(group)},
}


def test_every_request_that_is_not_answered_is_refused_for_a_reason() -> None:
    unanswered = {
        code
        for code, kind in REQUESTS.items()
        if kind.answered_by
        and not any(code in ANSWERED[role] for role in Role if role in kind.answered_by)
    }
    assert unanswered == REFUSED.keys()


def test_nobody_answers_what_is_asked_of_others() -> None:
    for role, answered in ANSWERED.items():
        assert answered <= {code for code, kind in REQUESTS.items() if role in kind.answered_by}


def test_what_is_partly_answered_is_answered_by_somebody() -> None:
    for code in PARTLY:
        assert any(code in answered for answered in ANSWERED.values()), code


def test_what_several_answer_is_answered_by_all_or_the_page_tells_who_does_not() -> None:
    for code, kind in REQUESTS.items():
        missing = [r for r in Role if r in kind.answered_by and code not in ANSWERED[r]]
        assert not missing or code in REFUSED or code in PARTLY, code


@on_loop
async def test_a_broker_answers_all_of_them_and_refuses_the_others_by_number(
    tmp_path: Path,
) -> None:
    answered = ANSWERED[Role.BROKER]
    async with broker_in(tmp_path) as broker, RemotingClient() as client:
        connection = await client._connection(broker.address)
        for code in RequestCode:
            answer = await connection.call(Frame(code=code), PATIENCE)
            assert (answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED) == (
                code not in answered
            ), code
