"""Who signed a request, and whether it may be served."""

import logging
from pathlib import Path

import pytest

from bolide.auth.access import Identity
from bolide.auth.permission_queries import Answer, Question
from bolide.auth.policies import access as module
from bolide.auth.policies.access import PolicyAccess
from bolide.auth.policies.model import User, UserStatus
from bolide.protocol.codes import RequestCode as Code
from bolide.protocol.frame import Frame
from bolide.protocol.headers.access import CanIHeader
from bolide.protocol.refusals import InvalidParameter, NoPermission
from bolide.protocol.signature import ACCESS_KEY, SIGNATURE, UNSIGNED, signature
from tests.support.access import ROOT, access_in, acl, entry, give, secret_of, signed
from tests.support.aio import on_loop
from tests.support.broker import send_header

PEER = "127.0.0.1:40000"


def send(topic: str = "orders") -> Frame:
    return Frame(code=Code.SEND_MESSAGE_V2, fields={"b": topic}, body=b"hello")


def get_config() -> Frame:
    return Frame(code=Code.GET_BROKER_CONFIG)


@pytest.fixture
def access(tmp_path: Path) -> PolicyAccess:
    return access_in(tmp_path)


def denial(access: PolicyAccess, request: Frame, peer: str = PEER) -> str:
    with pytest.raises(NoPermission) as caught:
        access.check(request, peer)
    return caught.value.remark


def test_the_super_user_may_do_everything(access: PolicyAccess) -> None:
    for code in (Code.UPDATE_BROKER_CONFIG, Code.SEND_MESSAGE, 60999):
        assert access.check(signed(Frame(code=code), ROOT), PEER) == Identity(ROOT, PEER, True)


def test_a_request_without_credentials_is_denied(access: PolicyAccess) -> None:
    assert denial(access, send()) == "username cannot be null."
    assert denial(access, Frame(code=Code.GET_BROKER_CONFIG)) == "username cannot be null."
    empty = Frame(code=Code.SEND_MESSAGE, fields={ACCESS_KEY: ""})
    assert denial(access, empty) == "username cannot be null."


@on_loop
async def test_denials_say_what_is_wrong_with_the_credentials(access: PolicyAccess) -> None:
    await give(access.metadata, "shop", entry("*", "All"))
    assert denial(access, signed(send(), "nobody")) == "User:nobody is not found."
    assert denial(access, signed(send(), "shop", "wrong")) == "check signature failed."
    unsigned = Frame(code=Code.SEND_MESSAGE_V2, fields={"b": "orders", ACCESS_KEY: "shop"})
    assert denial(access, unsigned) == "check signature failed."
    await access.metadata.update_user("shop", status=UserStatus.DISABLE)
    assert denial(access, signed(send(), "shop")) == "User:shop is disabled."


@on_loop
async def test_wrong_signatures_do_not_fill_the_log(
    access: PolicyAccess, caplog: pytest.LogCaptureFixture
) -> None:
    await give(access.metadata, "shop")
    for name in ("shop", ROOT):
        for _ in range(100):
            denial(access, signed(send(), name, "wrong"))
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.INFO] == [
        f"the signature of request 310 as {name} is wrong" for name in ("shop", ROOT)
    ]


@on_loop
async def test_a_signature_covers_fields_and_body(access: PolicyAccess) -> None:
    await give(access.metadata, "shop", entry("*", "All"))
    for change in ({"b": "payroll"}, {"z": "more"}):
        request = signed(send(), "shop")
        request.fields = {**(request.fields or {}), **change}
        assert denial(access, request) == "check signature failed."
    request = signed(send(), "shop")
    request.body = b"other"
    assert denial(access, request) == "check signature failed."
    request = signed(send(), "shop")
    for change in ({SIGNATURE: "\udcff"}, {"z": "\ud800"}):
        request.fields = {**(request.fields or {}), **change}
        assert denial(access, request) == "check signature failed."


@pytest.mark.parametrize(("version", "is_signed"), [(399, False), (400, True)])
def test_newer_clients_sign_one_more_field(
    access: PolicyAccess, version: int, is_signed: bool
) -> None:
    fields = {"topic": "orders", UNSIGNED: "true", ACCESS_KEY: ROOT}
    covered = fields if is_signed else {k: v for k, v in fields.items() if k != UNSIGNED}
    fields[SIGNATURE] = signature(covered, b"", secret_of(ROOT).encode(), version)
    request = Frame(code=Code.QUERY_MESSAGE, fields=fields, version=version)
    assert access.check(request, PEER).access_key == ROOT
    request.version = 399 if is_signed else 400
    assert denial(access, request) == "check signature failed."


@on_loop
async def test_policies_decide_about_normal_users(access: PolicyAccess) -> None:
    await give(access.metadata, "shop", entry("Topic:orders", "Pub"))
    assert access.check(signed(send(), "shop"), PEER).access_key == "shop"
    assert denial(access, signed(send("payroll"), "shop")) == (
        "User:shop has no permission to access Topic:payroll from 127.0.0.1, no matched policies."
    )


@on_loop
async def test_a_change_takes_effect_at_once(access: PolicyAccess) -> None:
    told = []
    access.on_changed.add(lambda: told.append(1))
    await give(access.metadata, "shop")
    denial(access, signed(send(), "shop"))
    await give(access.metadata, "other")
    await access.metadata.update_acl(acl("shop", entry("Topic:orders", "Pub")))
    access.check(signed(send(), "shop"), PEER)
    await access.metadata.update_acl(acl("shop", entry("Topic:orders", "Pub", "Deny")))
    assert denial(access, signed(send(), "shop")).endswith("the decision is deny.")
    assert len(told) == 4


@on_loop
async def test_a_message_found_by_offset_needs_the_topic_it_has(access: PolicyAccess) -> None:
    await give(access.metadata, "bill", entry("Topic:orders", "Sub,Get"))
    await access.metadata.update_acl(acl("bill", entry("Group:bill", "Sub")))

    def found(code: Code, fields: dict[str, str], topic: str, name: str = "bill") -> None:
        access.check_found(signed(Frame(code=code, fields=fields), name), PEER, topic)

    back = {"group": "bill", "offset": "0"}
    for topic in ("orders", "%RETRY%bill", "%RETRY%bill+orders"):
        found(Code.CONSUMER_SEND_MSG_BACK, back, topic)
    found(Code.VIEW_MESSAGE_BY_ID, {"topic": "orders"}, "orders")
    found(Code.VIEW_MESSAGE_BY_ID, {"topic": "orders"}, "payroll", ROOT)
    for topic in ("payroll", "%RETRY%other", "%RETRY%bill_orders", "%RETRY%bill+payroll"):
        with pytest.raises(NoPermission, match="has no permission to access"):
            found(Code.CONSUMER_SEND_MSG_BACK, back, topic)
    with pytest.raises(NoPermission, match="Topic:payroll"):
        found(Code.VIEW_MESSAGE_BY_ID, {"topic": "orders"}, "payroll")


@on_loop
async def test_the_end_of_a_transaction_needs_the_topic_of_its_message(
    access: PolicyAccess,
) -> None:
    await give(access.metadata, "shop", entry("Topic:orders", "Pub,Update"))
    await access.metadata.update_acl(acl("shop", entry("Group:bill", "Sub")))
    for code in (Code.END_TRANSACTION, Code.RESUME_CHECK_HALF_MESSAGE):
        asked = signed(Frame(code=code, fields={"topic": "orders"}), "shop")
        access.check_found(asked, PEER, "orders")
        with pytest.raises(NoPermission, match="Topic:payroll"):
            access.check_found(asked, PEER, "payroll")
    asked = signed(Frame(code=Code.END_TRANSACTION), "shop")
    access.check_found(asked, PEER, "%RETRY%bill")
    with pytest.raises(NoPermission, match="Topic:payroll"):
        access.check_found(asked, PEER, "payroll")


@on_loop
async def test_kept_decisions_are_bounded(
    access: PolicyAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_DECISIONS", 10)
    await give(access.metadata, "shop", entry("Topic:t*", "Pub"))
    for number in range(100):
        access.check(signed(send(f"t{number}"), "shop"), PEER)
        assert len(access._decisions) <= 10
    assert denial(access, signed(send("x"), "shop"))


@on_loop
async def test_decisions_depend_on_the_address(access: PolicyAccess) -> None:
    await give(access.metadata, "shop", entry("Topic:orders", "Pub", sources="10.0.0.0/8"))
    for _ in range(2):
        access.check(signed(send(), "shop"), "10.1.2.3:5")
        denial(access, signed(send(), "shop"), "11.1.2.3:5")
        denial(access, signed(send(), "shop"), "?")


@on_loop
async def test_without_authorization_every_user_may_do_everything(tmp_path: Path) -> None:
    access = access_in(tmp_path, authorization_enabled=False)
    await give(access.metadata, "shop")
    assert access.check(signed(Frame(code=Code.UPDATE_BROKER_CONFIG), "shop"), PEER)
    assert denial(access, send()) == "username cannot be null."


@on_loop
async def test_a_code_of_the_first_white_list_needs_no_signature(tmp_path: Path) -> None:
    code = str(int(Code.GET_BROKER_CONFIG))
    access = access_in(tmp_path, authentication_whitelist=(code, "310"))
    assert access.check(get_config(), PEER) == Identity(None, PEER)
    # A name without a good signature is nobody's, so its policies do not count.
    assert access.check(signed(get_config(), ROOT, "wrong"), PEER) == Identity(None, PEER)
    assert denial(access, send()).startswith("Authorization failed.")
    assert denial(access, signed(send(), ROOT, "wrong")).startswith("Authorization failed.")
    assert access.check(signed(send(), ROOT), PEER).access_key == ROOT


@on_loop
async def test_a_code_of_the_second_white_list_needs_no_policy(tmp_path: Path) -> None:
    access = access_in(tmp_path, authorization_whitelist=("310",))
    await give(access.metadata, "shop")
    assert access.check(signed(send(), "shop"), PEER).access_key == "shop"
    assert denial(access, send()) == "username cannot be null."


@on_loop
async def test_only_an_administrator_who_signs_may_bring_code(tmp_path: Path) -> None:
    code = str(int(Code.BOLIDE_UPDATE_FILTER_FUNCTION))
    white_lists = {"authentication_whitelist": (code,), "authorization_whitelist": (code,)}
    access = access_in(tmp_path, **white_lists)
    await give(access.metadata, "shop", entry("Topic:*", "All"))
    await give(access.metadata, "operator", entry("Cluster:*", "Update"))

    def may(name: str, secret: str | None = None) -> bool:
        asked = Frame(code=Code.BOLIDE_UPDATE_FILTER_FUNCTION, fields={"name": "f"})
        sent = signed(asked, name, secret or secret_of(name))
        return access.may_bring_code(access.check(sent, PEER))

    assert may(ROOT)
    assert may("operator")
    assert not may("shop")
    assert not may(ROOT, "wrong")


@on_loop
async def test_without_authorization_a_normal_user_brings_no_code(tmp_path: Path) -> None:
    access = access_in(tmp_path, authorization_enabled=False)
    await give(access.metadata, "shop")
    asked = Frame(code=Code.BOLIDE_UPDATE_FILTER_FUNCTION, fields={"name": "f"})
    assert not access.may_bring_code(access.check(signed(asked, "shop"), PEER))
    assert access.may_bring_code(access.check(signed(asked, ROOT), PEER))


@on_loop
async def test_names_of_megabytes_are_neither_kept_nor_shown(tmp_path: Path) -> None:
    access = access_in(tmp_path)
    await give(access.metadata, "shop", entry("Topic:T", "Pub"))
    for topic in ("T" * 100_000, "U"):
        fields = send_header(topic).to_short()
        with pytest.raises(NoPermission) as denied:
            access.check(signed(Frame(code=Code.SEND_MESSAGE_V2, fields=fields), "shop"), PEER)
        assert len(str(denied.value)) < 1000
    assert [need.resource.name for *_, need in access._decisions] == ["U"]


@on_loop
async def test_the_secret_of_an_identity_is_its_password(access: PolicyAccess) -> None:
    await give(access.metadata, "shop")
    assert access.secret_of(Identity(None, PEER)) is None
    assert access.secret_of(Identity("shop", PEER)) == b"shop-secret"
    await access.metadata.update_user("shop", status=UserStatus.DISABLE)
    for gone in ("shop", "nobody"):  # None would mean that no signature is needed
        assert access.secret_of(Identity(gone, PEER)) not in (None, b"shop-secret")


def ask(
    access: PolicyAccess, asker: str, actions: str, resource: str = "Topic:orders", **more: str
) -> Answer:
    header = CanIHeader(resource=resource, actions=actions, **more)
    return access.answer(Identity(asker, PEER), Question.of(header))


@on_loop
async def test_a_user_may_ask_about_itself(access: PolicyAccess) -> None:
    await give(access.metadata, "shop", entry("Topic:orders", "Pub", sources="10.0.0.1"))
    assert ask(access, "shop", "Pub") == (False, "Pub on Topic:orders: no matched policies.")
    assert ask(access, "shop", "Pub", source_ip="10.0.0.1") == (True, None)
    assert ask(access, ROOT, "All").allowed


@on_loop
async def test_only_administrators_may_ask_about_others(access: PolicyAccess) -> None:
    await give(access.metadata, "shop", entry("Topic:orders", "Pub"))
    await give(access.metadata, "clerk", entry("Cluster:*", "Get"))
    assert ask(access, ROOT, "Pub", username="shop").allowed
    assert ask(access, "clerk", "Pub", username="shop").allowed
    assert ask(access, "clerk", "Pub", username="ghost").reason == "User:ghost is not found."
    with pytest.raises(NoPermission, match="Cluster:DefaultCluster"):
        ask(access, "shop", "Pub", username="clerk")


@on_loop
async def test_an_answer_does_not_repeat_a_long_name(access: PolicyAccess) -> None:
    await give(access.metadata, "shop")
    answer = ask(access, "shop", "Pub", f"Topic:{'x' * 100_000}")
    assert not answer.allowed
    assert len(str(answer.reason)) < 1000


@on_loop
async def test_a_question_is_about_all_of_its_actions(access: PolicyAccess) -> None:
    await give(access.metadata, "shop", entry("Topic:orders", "Pub"))
    assert not ask(access, "shop", "Pub,Sub").allowed
    assert ask(access, "shop", "Pub,Sub").reason == "Sub on Topic:orders: no matched policies."
    await access.metadata.update_acl(acl("shop", entry("Topic:orders", "Pub,Sub")))
    assert ask(access, "shop", "Pub, sub").allowed
    assert not ask(access, "shop", "All").allowed
    await access.metadata.update_acl(acl("shop", entry("Topic:orders", "All")))
    assert ask(access, "shop", "All").allowed


@pytest.mark.parametrize("code", [Code.SEND_MESSAGE, Code.PULL_MESSAGE])
@pytest.mark.parametrize(
    "topic", ["orders", "payroll", "SCHEDULE_TOPIC_XXXX", "%RETRY%bill", "%RETRY%other"]
)
@pytest.mark.parametrize("more", [{}, {"authorization_whitelist": ("11", "310", "10")}])
def test_an_answer_is_what_a_request_would_get(
    tmp_path: Path, code: Code, topic: str, more: dict[str, tuple[str, ...]]
) -> None:
    access = access_in(tmp_path, **more)
    entries = entry("Topic:*", "Pub,Sub"), entry("Topic:payroll", "All", "Deny")
    rules = acl("shop", *entries, entry("Group:bill", "Sub"))
    access.metadata.add_missing([User("shop", "shop-secret")], [rules])
    fields = {"topic": topic, "consumerGroup": "bill"}
    try:
        access.check(signed(Frame(code=code, fields=fields), "shop"), PEER)
        may = True
    except NoPermission:
        may = False
    action = "Pub" if code == Code.SEND_MESSAGE else "Sub"
    assert ask(access, "shop", action, f"Topic:{topic}").allowed is may


@pytest.mark.parametrize(
    ("resource", "actions", "source"),
    [
        ("orders", "Pub", None),
        ("Topic:orders", "Publish", None),
        ("Topic:orders", "", None),
        ("Topic:ord*", "Pub", None),
        ("Topic:*", "Pub", None),
        ("*", "Pub", None),
        ("Topic:orders", "Pub", "localhost"),
    ],
)
def test_a_malformed_question_is_refused(resource: str, actions: str, source: str | None) -> None:
    with pytest.raises(InvalidParameter):
        Question.of(CanIHeader(resource=resource, actions=actions, source_ip=source))


def test_the_standing_of_users(access: PolicyAccess, tmp_path: Path) -> None:
    access.metadata.add_missing([User("shop", "pw")])
    assert access.privileges(Identity(ROOT, PEER)) == ("ACL 2.0", True, "may do everything")
    shop = access.privileges(Identity("shop", PEER))
    assert shop == ("ACL 2.0", False, "may do what its policies allow")
    lax = access_in(tmp_path, authorization_enabled=False)
    assert lax.privileges(Identity("shop", PEER)).is_super
    assert not lax.privileges(Identity(None, PEER)).is_super


@on_loop
async def test_it_says_who_may_send_to_a_topic(access: PolicyAccess) -> None:
    await give(access.metadata, "shop", entry("Topic:orders", "Pub"))
    await access.metadata.update_acl(acl("shop", entry("Group:bill", "Sub")))
    for may, name, topic in (
        (True, "shop", "orders"),
        (True, "shop", "%RETRY%bill"),
        (False, "shop", "payroll"),
        (True, ROOT, "payroll"),
        (False, None, "orders"),
        (False, "deleted", "orders"),
    ):
        assert access.may_send(Identity(name, PEER), topic) is may, (name, topic)
    await access.metadata.update_user("shop", status=UserStatus.DISABLE)
    assert not access.may_send(Identity("shop", PEER), "orders")
