"""The same plain_acl.yml decides the same at Apache's broker and at ours."""

import asyncio
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from bolide.admin import AdminClient
from bolide.auth.request_purposes import PURPOSES, Purpose
from bolide.protocol.codes import RequestCode as Code
from bolide.protocol.codes import ResponseCode
from bolide.protocol.frame import HeaderEncoding
from tests.interop.bench import Bench
from tests.interop.conftest import obtain_or_skip
from tests.interop.ours import bolide_broker, bolide_namesrv
from tests.interop.plain_acl_cases import (
    ACL,
    STRICTER,
    Answers,
    Case,
    Template,
    ask_all,
    cases,
    templates,
)

_UNANSWERED_AFTER = 5.0
_ADMIN_THERE = {
    Code.UPDATE_AND_CREATE_TOPIC, Code.UPDATE_BROKER_CONFIG, Code.DELETE_TOPIC_IN_BROKER,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, Code.DELETE_SUBSCRIPTIONGROUP,
}  # fmt: skip
"""4.9 wants an admin for these only (`Permission.ADMIN_CODE`)."""

_OUR_DENIALS = re.compile(
    r"(No accessKey is configured|No acl config for |Check signature failed for "
    r"|Need admin permission for |No default permission for |No permission for request code=)"
    r".*, from 127\.0\.\d+\.\d+:\d+"
)

_ADMINISTERS = "it changes or shows what only an admin may; 4.9 serves it to every account"
_AMONG_SERVERS = "servers send it, or clients serve it: a broker has it from admins only"
_UNKNOWN_THERE = "4.9 does not know it and refuses it as unsupported, whoever asks"
_READ_BY_REPLICAS = {
    Code.GET_ALL_TOPIC_CONFIG, Code.GET_ALL_CONSUMER_OFFSET, Code.GET_ALL_DELAY_OFFSET,
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, Code.GET_ALL_MESSAGE_REQUEST_MODE,
    Code.GET_TIMER_CHECK_POINT, Code.GET_TIMER_METRICS,
}  # fmt: skip
_NEW_AND_CHECKED = {
    Code.RECALL_MESSAGE, Code.POP_MESSAGE, Code.ACK_MESSAGE, Code.QUERY_ASSIGNMENT,
    Code.POP_LITE_MESSAGE, Code.LITE_SUBSCRIPTION_CTL, Code.ACK_LITE_MESSAGE,
    Code.BOLIDE_LIST_TIMERS, Code.BOLIDE_LIST_TRANSACTIONS, Code.BOLIDE_LIST_FILTER_FUNCTIONS,
}  # fmt: skip

DENIED_THERE_ONLY = {
    "send V2 to %RETRY%readers as CLIENT_INNER_PRODUCER": (
        "4.9 checks the producer group in place of the group of the retry topic"
    ),
    "unique query, new client": (
        "4.9 leaves a field out of the signature that clients from 4.9.4 on sign, and refuses them"
    ),
}
"""Requests that 4.9.7 denies and we allow, with the reason."""

_SAME_DECISION = {"send V2 to %RETRY%readers as readers", "reply to DefaultCluster_REPLY_TOPIC",
                  "reply V2 to DefaultCluster_REPLY_TOPIC", "end of a transaction"}  # fmt: skip
"""Requests of codes that differ, which themselves do not."""


def why_stricter(template: Template) -> str | None:
    """Why we may deny what 4.9.7 allows; None if we may not."""
    code, name = template.code, template.name
    if name in _SAME_DECISION or name in DENIED_THERE_ONLY or _is_plain_send(template):
        return None
    client_rules = [reason for reason, codes in STRICTER.items() if code in codes]
    return client_rules[0] if client_rules else _why_admins_only(code)


def _is_plain_send(template: Template) -> bool:
    sends = {Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2}
    return template.code in sends and "%RETRY%" not in template.name


def _why_admins_only(code: int) -> str | None:
    purpose = PURPOSES.get(code)
    if purpose is None or code in _NEW_AND_CHECKED:
        return _UNKNOWN_THERE
    if purpose is Purpose.ADMINISTRATION and code not in _ADMIN_THERE:
        return _ADMINISTERS
    among_servers = purpose is Purpose.CLUSTER and code not in _READ_BY_REPLICAS
    return _AMONG_SERVERS if among_servers or purpose is Purpose.TO_CLIENT else None


class Decisions(NamedTuple):
    """Whether each case was denied, by name."""

    java: Mapping[str, bool]
    ours: Mapping[str, bool]
    again: Mapping[str, bool]
    binary: Mapping[str, bool]
    binary_again: Mapping[str, bool]
    figures: Mapping[str, str]
    """What our broker says of itself in the end."""


CASES = cases()


@pytest.fixture(scope="module")
def acl_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("acl") / "conf" / "plain_acl.yml"
    file.parent.mkdir()
    file.write_text(ACL)
    return file


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with bolide_namesrv(tmp_path_factory.mktemp("namesrv")) as server:
        yield server.address


@pytest.fixture(scope="module")
def java(acl_file: Path, name_server: str, java_module_bench: Bench) -> dict[str, bool]:
    """What a broker of 4.9.7 denies."""
    obtain_or_skip("4.9")
    # It is looked for below the broker's home, wherever that is.
    option = f"-Drocketmq.acl.plain.file={'/..' * 20}{acl_file}"
    broker = java_module_bench.broker("4.9", name_server, jvm=[option], aclEnable=True)
    return {
        name: answer is not None
        and answer.code == ResponseCode.SYSTEM_ERROR
        and "AclException" in (answer.remark or "")
        for name, answer in asked(broker.address, HeaderEncoding.JSON)[0].items()
    }


@pytest.fixture(scope="module", params=["compiled", "python"])
def decisions(
    request: pytest.FixtureRequest,
    java: dict[str, bool],
    acl_file: Path,
    name_server: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Decisions]:
    """Both brokers' decisions; ours with and without its compiled parts."""
    home = tmp_path_factory.mktemp("ours")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "python":
            patch.setenv("BOLIDE_KERNEL", "python")
        settings = {"aclEnable": True, "rocketmqHome": acl_file.parent.parent}
        with bolide_broker(home, name_server, brokerName="broker-o", **settings) as broker:
            json, binary = HeaderEncoding.JSON, HeaderEncoding.ROCKETMQ
            # What can be is prepared by the first of each encoding.
            answers = asked(broker.address, json, json, binary, binary)
            figures = asyncio.run(runtime_figures(name_server, broker.address))
    ours, again, third, fourth = map(denied_here, answers)
    yield Decisions(java, ours, again, third, fourth, figures)


async def runtime_figures(name_server: str, broker: str) -> Mapping[str, str]:
    async with AdminClient(name_server, access_key="administrator", secret_key="12345678") as admin:
        return await admin.brokers.runtime(broker)


def asked(broker: str, *encodings: HeaderEncoding) -> list[Answers]:
    return asyncio.run(ask_all(broker, CASES, _UNANSWERED_AFTER, encodings))


def denied_here(answers: Answers) -> dict[str, bool]:
    return {
        name: answer is not None
        and answer.code == ResponseCode.NO_PERMISSION
        and _OUR_DENIALS.fullmatch(answer.remark or "") is not None
        for name, answer in answers.items()
    }


def differing(decisions: Decisions) -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = defaultdict(list)
    for case in CASES:
        if decisions.java[case.name] != decisions.ours[case.name]:
            found[case.template.name].append(case)
    return found


def test_every_case_has_a_name_of_its_own_and_there_are_many() -> None:
    assert len({case.name for case in CASES}) == len(CASES) > 3000
    assert len(templates()) > 200


def test_the_two_brokers_decide_the_same_but_for_what_is_explained(decisions: Decisions) -> None:
    unexplained = [
        case.name
        for some in differing(decisions).values()
        for case in some
        if not (
            case.template.name in DENIED_THERE_ONLY
            if decisions.java[case.name]
            else why_stricter(case.template)
        )
    ]
    assert unexplained == []


def test_every_explanation_is_needed(decisions: Decisions) -> None:
    differ = differing(decisions)
    explained = {each.name for each in templates() if why_stricter(each)}
    assert differ.keys() == explained | DENIED_THERE_ONLY.keys()


def test_an_unknown_sender_is_served_nothing_and_an_admin_everything(decisions: Decisions) -> None:
    for case in CASES:
        sender = case.sender.name
        if sender in {"no credentials", "wrong signature", "no signature", "unknown key"}:
            assert decisions.ours[case.name], case.name
        if sender == "admin" or sender.startswith(("white-listed", "account's white-listed")):
            assert not decisions.ours[case.name], case.name


def test_the_decisions_stay_the_same_when_they_are_prepared(decisions: Decisions) -> None:
    assert decisions.again == decisions.ours
    if "fastPathSends" in decisions.figures:  # there is none without compiled modules
        assert int(decisions.figures["fastPathSends"]) > 20
        assert int(decisions.figures["fastPathPulls"]) > 20


def test_the_encoding_of_the_header_makes_no_difference(decisions: Decisions) -> None:
    short = {case.name for case in CASES if case.template.code < 2**15}  # it has 16 bits for them
    expected = {name: decisions.ours[name] for name in short}
    for binary in (decisions.binary, decisions.binary_again):
        assert {name: binary[name] for name in short} == expected
