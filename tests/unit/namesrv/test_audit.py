"""The audit of a NameServer: which requests are described, and how."""

import json
import logging
from pathlib import Path

import pytest

from bolide.auth.access import Identity, OpenAccess
from bolide.auth.audit import AUDITED
from bolide.namesrv.audit import Subjects
from bolide.namesrv.handlers import HANDLERS
from bolide.namesrv.server import NameServer
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.refusals import NoPermission
from bolide.remoting.dispatch import handled_codes
from tests.support.aio import on_loop
from tests.support.broker_core import Peer
from tests.support.name_servers import config_in


def test_every_request_that_administers_is_described(tmp_path: Path) -> None:
    server = NameServer(config_in(tmp_path))
    described = Subjects(server.routes, server.kv, server.config).describers().keys()
    assert described == AUDITED & set().union(*map(handled_codes, HANDLERS))


class NoChange(OpenAccess):
    """Nobody may change anything."""

    def check(self, request: Frame, peer: str) -> Identity:
        raise NoPermission("nobody may")


@on_loop
async def test_a_denied_request_is_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bolide.namesrv.server.choose_access", lambda *_, **__: NoChange())
    with caplog.at_level(logging.INFO, "bolide.audit"):
        peer = Peer(NameServer(config_in(tmp_path)).dispatcher)
        await peer.call(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "Orders"})
        await peer.call(RequestCode.GET_BROKER_CLUSTER_INFO, {})
    (line,) = caplog.messages
    assert json.loads(line)["target"] == {"topic": "Orders"}
    assert json.loads(line)["denied"] is True
