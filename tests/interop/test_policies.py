"""ACL 2.0 decides as in Apache RocketMQ 5.5: the same users, policies and requests on both."""

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bolide.admin import AdminClient
from bolide.admin.access import acl_of
from bolide.kernel import COMPILED
from bolide.protocol.bodies.access import PolicyEntry
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode as Code
from bolide.protocol.codes import ResponseCode
from bolide.protocol.frame import HeaderEncoding
from bolide.protocol.refusals import NoPermission
from tests.interop.bench import Bench
from tests.interop.conftest import NEWEST, obtain_or_skip
from tests.interop.mqadmin import run_commands, tools_home
from tests.interop.ours import bolide_broker, bolide_namesrv
from tests.interop.policy_cases import (
    DIFFERENCES,
    MAY_UPDATE_THE_CLUSTER,
    NEEDS_CLUSTER_UPDATE,
    PASSWORD,
    POP_RETRY,
    ROOT,
    ROOT_PASSWORD,
    SENT_TO_CLIENTS,
    SERVED_NOTHING,
    UNKNOWN_CODE,
    UNKNOWN_TO_APACHE,
    Case,
    cases,
    explanation,
)
from tests.interop.policy_decisions import Verdicts, decide

AUTH = "org.apache.rocketmq.auth"
FIRST_USER = f'{{"username":"{ROOT}","password":"{ROOT_PASSWORD}"}}'
SETTINGS: dict[str, Any] = {
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "authenticationProvider": f"{AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": (
        f"{AUTH}.authentication.provider.LocalAuthenticationMetadataProvider"
    ),
    "authorizationProvider": f"{AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": (
        f"{AUTH}.authorization.provider.LocalAuthorizationMetadataProvider"
    ),
    "initAuthenticationUser": FIRST_USER,
    "innerClientAuthenticationCredentials": (
        f'{{"accessKey":"{ROOT}","secretKey":"{ROOT_PASSWORD}"}}'
    ),
}


@dataclass
class Guarded:
    bench: Bench
    home: Path
    name_server: str
    broker: str
    java_broker: str

    def mqadmin(
        self,
        *commands: Sequence[str],
        user: str = ROOT,
        secret: str = ROOT_PASSWORD,
        version: str = NEWEST,
    ) -> list[str]:
        """What each command printed; mqadmin finds its credentials in conf/tools.yml."""
        home = tools_home(self.home, user, secret)
        return run_commands(self.bench, version, self.name_server, commands, jvm=[home])

    def edit(self, file: str, change: Callable[[Any], None]) -> None:
        """Edit a file of users or policies by hand."""
        path = self.home / "auth" / file
        content = json.loads(path.read_text())
        change(content)
        new = path.with_suffix(".new")
        new.write_text(json.dumps(content))
        new.replace(path)

    def on_broker(self, *words: str) -> Sequence[str]:
        return (words[0], "-b", self.broker, *words[1:])


@pytest.fixture(scope="module")
def guarded(
    java_module_bench: Bench, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guarded]:
    """Our NameServer and broker, with one directory of users, and Apache's broker beside ours."""
    obtain_or_skip(NEWEST)
    directory = tmp_path_factory.mktemp("guarded")
    settings = SETTINGS | {"authConfigPath": directory / "auth"}
    with ExitStack() as stack:
        namesrv = stack.enter_context(bolide_namesrv(directory / "namesrv", **settings))
        ours = stack.enter_context(bolide_broker(directory / "broker", namesrv.address, **settings))
        java = java_module_bench.broker(
            NEWEST, namesrv.address, brokerName="java-broker",
            timerWheelEnable=True, enablePropertyFilter=True, recallMessageEnable=True, **SETTINGS,
        )  # fmt: skip
        yield Guarded(java_module_bench, directory, namesrv.address, ours.address, java.address)


class Decisions(NamedTuple):
    """What both brokers decide in every case, by its name."""

    java: Verdicts
    java_binary: Verdicts
    ours: Verdicts
    again: Verdicts
    binary: Verdicts
    binary_again: Verdicts


CASES = list(cases())
OURS = "Notices"
"""A topic that the Java broker does not have: it has other users."""
RECEIPTS = {Code.ACK_MESSAGE, Code.CHANGE_MESSAGE_INVISIBLETIME}


@pytest.fixture(scope="module")
def decisions(guarded: Guarded) -> Decisions:
    text, binary = HeaderEncoding.JSON, HeaderEncoding.ROCKETMQ
    java = asyncio.run(decide(guarded.java_broker, text, binary))
    return Decisions(*java, *asyncio.run(decide(guarded.broker, text, text, binary, binary)))


def differing(decisions: Decisions) -> list[Case]:
    return [
        case
        for case in CASES
        if decisions.java[case.name].denied != decisions.ours[case.name].denied
    ]


def test_every_code_is_asked_by_every_identity_and_decided(decisions: Decisions) -> None:
    assert {case.exchange.code for case in CASES} == {UNKNOWN_CODE, *Code}
    assert len({case.name for case in CASES}) == len(CASES) > 8000
    for verdicts in (decisions.java, decisions.ours, decisions.again):
        assert verdicts.keys() == {case.name for case in CASES}
    for some in decisions:
        codes = {verdict.code for verdict in some.values()}
        assert not codes & {None, ResponseCode.SYSTEM_BUSY}, "it was not looked at"


def test_ours_decides_as_apache_does_but_for_what_is_explained(decisions: Decisions) -> None:
    differ = differing(decisions)
    unexplained = [
        (case.name, decisions.java[case.name], decisions.ours[case.name])
        for case in differ
        if not explanation(case, denied_there=decisions.java[case.name].denied)
    ]
    assert unexplained == []
    assert len(CASES) - len(differ) >= 500


def test_every_explanation_is_needed(decisions: Decisions) -> None:
    needed = set()
    for case in differing(decisions):
        difference = explanation(case, denied_there=decisions.java[case.name].denied)
        if difference is not None:
            needed.add((difference.reason, case.exchange.code))
    assert needed == {(each.reason, code) for each in DIFFERENCES for code in each.codes}


def test_unknown_senders_are_served_nothing_and_the_super_user_everything(
    decisions: Decisions,
) -> None:
    for case in CASES:
        for verdicts in (decisions.java, decisions.ours):
            if case.identity in SERVED_NOTHING:
                assert verdicts[case.name].denied, case.name
            if case.identity == ROOT:
                assert not verdicts[case.name].denied, case.name


def test_who_may_update_the_cluster_is_served_what_needs_that(decisions: Decisions) -> None:
    for case in CASES:
        if case.exchange.code in NEEDS_CLUSTER_UPDATE | UNKNOWN_TO_APACHE | SENT_TO_CLIENTS:
            is_served = not decisions.ours[case.name].denied
            assert is_served == (case.identity in MAY_UPDATE_THE_CLUSTER), case.name


def test_the_decisions_stay_the_same_when_they_are_prepared(
    guarded: Guarded, decisions: Decisions
) -> None:
    assert denied(decisions.again) == denied(decisions.ours)
    if COMPILED:
        figures = asyncio.run(runtime_figures(guarded))
        assert int(figures["fastPathSends"]) > 20
        assert int(figures["fastPathPulls"]) > 20


def test_the_encoding_of_the_header_makes_no_difference(decisions: Decisions) -> None:
    for plain, binary in (
        (decisions.java, decisions.java_binary),
        (decisions.ours, decisions.binary),
        (decisions.ours, decisions.binary_again),
    ):
        assert len(binary) > 800
        assert denied(binary) == {name: plain[name].denied for name in binary}


def denied(verdicts: Verdicts) -> dict[str, bool]:
    return {name: verdict.denied for name, verdict in verdicts.items()}


async def runtime_figures(guarded: Guarded) -> Mapping[str, str]:
    address = guarded.name_server
    async with AdminClient(address, access_key=ROOT, secret_key=ROOT_PASSWORD) as admin:
        return await admin.brokers.runtime(guarded.broker)


def test_denials_have_apaches_texts(decisions: Decisions) -> None:
    different = {
        case.name: (theirs.remark, own.remark)
        for case in CASES
        if (theirs := decisions.java[case.name]).denied
        and (own := decisions.ours[case.name]).denied
        and theirs.remark != own.remark
        and case.exchange.code not in SENT_TO_CLIENTS
        and not (case.exchange.code in RECEIPTS and case.is_about(POP_RETRY))
    }
    assert different == {}


# ---- Java's clients, mqadmin and broker with credentials


def test_a_java_broker_registers_with_its_credentials(guarded: Guarded) -> None:
    (printed,) = guarded.mqadmin(("clusterList",))
    assert "java-broker" in printed
    assert "broker-a" in printed


def rows(printed: str) -> list[list[str]]:
    return [re.split(r" {2,}", line.strip()) for line in printed.splitlines() if line.strip()]


def test_mqadmin_administers_users_and_policies(guarded: Guarded) -> None:
    on = guarded.on_broker
    printed = guarded.mqadmin(
        on("createUser", "-u", "anna", "-p", "anna-12345"),
        on("createUser", "-u", "bert", "-p", "bert-12345", "-t", "Super"),
        on("updateUser", "-u", "bert", "-s", "disable"),
        on("getUser", "-u", "bert"),
        on("listUser", "-f", "bert"),
        on("createAcl", "-s", "User:anna", "-r", "Topic:x,Group:g*", "-a", "Pub,Sub",
           "-i", "10.0.0.0/8", "-d", "Allow"),
        on("updateAcl", "-s", "User:anna", "-r", "Topic:x", "-a", "Pub", "-d", "Deny"),
        on("getAcl", "-s", "User:anna"),
        on("listAcl", "-s", "anna", "-r", "Group"),
        on("deleteAcl", "-s", "User:anna", "-r", "Topic:x"),
        on("getAcl", "-s", "User:anna"),
        ("copyAcl", "-f", guarded.broker, "-t", guarded.broker, "-s", "User:anna"),
        on("deleteUser", "-u", "anna"),
        on("deleteUser", "-u", "bert"),
        on("getUser", "-u", "anna"),
    )  # fmt: skip
    assert printed[0] == f"create user to {guarded.broker} success."
    assert printed[1] == f"create user to {guarded.broker} success."
    assert printed[2] == f"update user to {guarded.broker} success."
    assert rows(printed[3])[1:] == [["bert", "Super", "disable"]]  # the password is empty
    assert [row[0] for row in rows(printed[4])] == ["#UserName", "bert"]
    assert printed[5:7] == [f"{verb} acl to {guarded.broker} success." for verb in
                            ("create", "update")]  # fmt: skip
    assert rows(printed[7])[1:] == [
        ["User:anna", "Custom", "Topic:x", "[Pub]", "null", "Deny"],
        ["User:anna", "Custom", "Group:g*", "[Pub, Sub]", "[10.0.0.0/8]", "Allow"],
    ]
    assert [row[2] for row in rows(printed[8])] == ["#Resource", "Group:g*"]
    assert printed[9] == f"delete acl to {guarded.broker} success."
    assert "Topic:x" not in printed[10]
    assert "copy acl of User:anna" in printed[11]
    assert printed[14] == ""


def test_mqadmin_without_the_right_credentials_is_denied(guarded: Guarded) -> None:
    (wrong,) = guarded.mqadmin(guarded.on_broker("listUser"), secret="wrong")
    assert "CODE: 16" in wrong
    assert "check signature failed." in wrong


def test_java_clients_do_what_their_policies_allow(guarded: Guarded) -> None:
    on = guarded.on_broker
    guarded.mqadmin(
        on("updateTopic", "-t", "Orders", "-r", "1", "-w", "1"),
        on("createUser", "-u", "shop", "-p", "shop-12345"),
        on("createUser", "-u", "bill", "-p", "bill-12345"),
        on("createAcl", "-s", "User:shop", "-r", "Topic:Orders", "-a", "Pub", "-d", "Allow"),
        on("createAcl", "-s", "User:bill", "-r", "Topic:Orders,Group:billing", "-a", "Sub",
           "-d", "Allow"),
    )  # fmt: skip
    await_name_server(guarded)
    process = guarded.bench.client(
        NEWEST,
        "SignedTraffic",
        guarded.name_server,
        "send:shop:shop-12345:Orders",
        "send:bill:bill-12345:Orders",
        "send:shop:wrong:Orders",
        "receive:bill:bill-12345:Orders:billing",
    )
    lines = process.wait(100)
    outcomes = [line.partition(" ")[2] for line in lines if line[0].isdigit()]
    sent, refused, forged, received = outcomes
    assert sent == "SEND_OK"
    assert refused.startswith("16 ")
    assert "User:bill has no permission to access Topic:Orders from 127.0.0.1" in refused
    # The NameServer denies it already, which Java's client takes for a topic without brokers.
    assert "No route info of this topic" in forged
    assert received == "RECEIVED"


def test_java_clients_and_mqadmin_notice_that_the_files_have_changed(guarded: Guarded) -> None:
    """Those of 4.9 sign with the hook of ACL 1.0: the signature is the same."""
    versions = ("4.9", NEWEST)
    for version in versions:
        obtain_or_skip(version)
    asyncio.run(create(guarded, clerk="Sub", operator="Pub"))
    jobs = (
        f"as:{ROOT}:{ROOT_PASSWORD}", f"send:{OURS}", f"as:clerk:{PASSWORD}", f"send:{OURS}",
        f"until:send:{OURS}", f"while:send:{OURS}",
    )  # fmt: skip
    clients = [
        guarded.bench.client(version, "SignedClient", guarded.name_server, *jobs)
        for version in versions
    ]
    refused = f"16 User:clerk has no permission to access Topic:{OURS} from 127.0.0.1"
    for client in clients:
        client.wait_for_line(f"^send:{OURS} ok", 60)
        client.wait_for_line(f"^send:{OURS} {refused}", 60)
    make = guarded.on_broker("updateTopic", "-t", "Made")
    for version in versions:
        (printed,) = guarded.mqadmin(make, user="operator", secret=PASSWORD, version=version)
        assert "CODE: 16" in printed
        assert "User:operator has no permission to access Topic:Made" in printed

    guarded.edit("acls.json", lambda content: allow(content, "clerk", "Pub"))
    guarded.edit("users.json", lambda content: promote(content, "operator"))
    for client in clients:
        client.wait_for_line(f"^until:send:{OURS} ok", 60)
    until(lambda: asyncio.run(_may(guarded, "operator", PASSWORD, "Topic:Made", "Create")))
    guarded.edit("acls.json", lambda content: allow(content, "clerk", "Sub"))
    for version in versions:
        made, listed = guarded.mqadmin(
            make, ("clusterList",), user="operator", secret=PASSWORD, version=version
        )
        assert f"create topic to {guarded.broker} success" in made
        assert "broker-a" in listed
    for client in clients:
        client.wait_for_line(f"^while:send:{OURS} {refused}", 60)
        client.wait(60)


async def create(guarded: Guarded, **actions: str) -> None:
    """Make users who may do something with a topic of ours; returns when both servers know."""
    address = guarded.name_server
    async with AdminClient(address, access_key=ROOT, secret_key=ROOT_PASSWORD) as admin:
        config = TopicConfig(topic_name=OURS, read_queue_nums=1, write_queue_nums=1)
        await admin.topics.update(guarded.broker, config)
        for user, action in actions.items():
            await admin.users.create(guarded.broker, user, PASSWORD)
            entry = PolicyEntry(resource=f"Topic:{OURS}", actions=[action], decision="Allow")
            await admin.policies.create(guarded.broker, acl_of(f"User:{user}", "Custom", [entry]))
    async with asyncio.timeout(30):
        for user, action in actions.items():
            while not await _may(guarded, user, PASSWORD, f"Topic:{OURS}", action):  # noqa: ASYNC110
                await asyncio.sleep(0.1)


def promote(content: Any, user: str) -> None:
    (found,) = [each for each in content["users"] if each["username"] == user]
    found["userType"] = "Super"


def allow(content: Any, user: str, action: str) -> None:
    """Replace the only action that a user may do."""
    (acl,) = [each for each in content["acls"] if each["subject"] == f"User:{user}"]
    acl["policies"][0]["entries"][0]["actions"] = [action]


def await_name_server(guarded: Guarded) -> None:
    """Wait until the NameServer has read the policies that the broker wrote."""
    until(lambda: asyncio.run(_may(guarded, "bill", "bill-12345", "Group:billing", "Sub")))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


async def _may(guarded: Guarded, user: str, secret: str, resource: str, action: str) -> bool:
    """Whether NameServer and broker both let a user do something."""
    address = guarded.name_server
    async with AdminClient(address, access_key=user, secret_key=secret) as admin:
        try:
            answers = [
                await admin.permissions.can_i(server, resource, action)
                for server in (address, guarded.broker)
            ]
        except NoPermission:
            return False
    return all(answer.allowed for answer in answers)
