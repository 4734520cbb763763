"""`PlainAccess`: who may do what, and changes of the files."""

import asyncio
import logging
from pathlib import Path

import pytest

from bolide.auth.access import Identity
from bolide.auth.choice import choose_access
from bolide.auth.permission_queries import Answer, Question
from bolide.auth.plain.access import PlainAccess
from bolide.auth.plain.files import AclPlaces
from bolide.broker.settings.config import load_settings
from bolide.errors import ConfigError
from bolide.protocol.codes import RequestCode as Code
from bolide.protocol.frame import Frame
from bolide.protocol.headers.access import CanIHeader
from bolide.protocol.refusals import InvalidParameter, NoPermission
from bolide.protocol.signature import ACCESS_KEY, SIGNATURE, signature
from tests.support.aio import on_loop, until

ACL = """
globalWhiteRemoteAddresses: [10.0.0.*]
accounts:
- {accessKey: administrator, secretKey: secret-of-admin, admin: true}
- {accessKey: publisher, secretKey: secret-of-pub, topicPerms: [Orders=PUB],
   whiteRemoteAddress: 10.1.0.1}
"""
PEER = "192.168.0.1:5000"
SEND, WRONG = {"topic": "Orders"}, "secret-of-nobody"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "conf" / "plain_acl.yml"
    path.parent.mkdir()
    path.write_text(ACL)
    path.chmod(0o600)
    return path


@pytest.fixture
def access(file: Path, tmp_path: Path) -> PlainAccess:
    return PlainAccess(AclPlaces.of(str(tmp_path), None, None))


def request(
    code: int = Code.SEND_MESSAGE,
    fields: dict[str, str] = SEND,
    *,
    key: str | None = "publisher",
    secret: str = "secret-of-pub",
    version: int = 399,
) -> Frame:
    given = dict(fields) if key is None else fields | {ACCESS_KEY: key}
    if key is not None:
        given[SIGNATURE] = signature(given, b"body", secret.encode(), version)
    return Frame(code=code, fields=given, body=b"body", version=version)


def denied(access: PlainAccess, asked: Frame, peer: str = PEER) -> str:
    with pytest.raises(NoPermission) as refused:
        access.check(asked, peer)
    assert "secret-of" not in str(refused.value)
    return str(refused.value)


def test_a_signed_request_is_served_by_what_its_account_may(access: PlainAccess) -> None:
    assert access.check(request(), PEER) == Identity("publisher", PEER, True)
    assert denied(access, request(fields={"topic": "Bills"})) == (
        "No default permission for topic:Bills: accessKey=publisher needs PUB,"
        " from 192.168.0.1:5000"
    )
    assert denied(access, request(Code.UPDATE_BROKER_CONFIG, {})).startswith(
        "Need admin permission"
    )
    admin = request(Code.UPDATE_BROKER_CONFIG, {}, key="administrator", secret="secret-of-admin")
    assert access.check(admin, PEER) == Identity("administrator", PEER, True)


def test_who_cannot_be_known_is_denied(access: PlainAccess) -> None:
    assert denied(access, request(key=None)).startswith("No accessKey is configured, from")
    assert denied(access, Frame(code=Code.SEND_MESSAGE)).startswith("No accessKey is configured")
    assert denied(access, request(key="stranger")).startswith("No acl config for stranger, from")
    assert denied(access, request(secret=WRONG)).startswith(
        "Check signature failed for accessKey=publisher, from"
    )
    unsigned = request()
    assert unsigned.fields is not None
    del unsigned.fields[SIGNATURE]
    assert denied(access, unsigned).startswith("Check signature failed")


def test_an_access_key_cannot_forge_a_line(access: PlainAccess) -> None:
    remark = denied(access, request(key="x\ny" + "z" * 1000))
    assert "\n" not in remark
    assert len(remark) < 200


@pytest.mark.parametrize("changed", ["fields", "body", "added"])
def test_what_was_changed_on_the_way_is_noticed(access: PlainAccess, changed: str) -> None:
    asked = request()
    assert asked.fields is not None
    if changed == "body":
        asked.body = b"another"
    else:
        asked.fields["topic" if changed == "fields" else "more"] = "Orders2"
    assert denied(access, asked).startswith("Check signature failed")


def test_a_field_is_signed_or_not_by_the_version_of_the_client(access: PlainAccess) -> None:
    fields = {"topic": "RMQ_SYS_TRACE_TOPIC", "_UNIQUE_KEY_QUERY": "true"}
    for version in (399, 400):
        access.check(request(fields=fields, version=version), PEER)
        other = request(fields=fields, version=799 - version)
        other.version = version
        assert denied(access, other).startswith("Check signature failed")


def test_the_global_white_list_needs_no_account(access: PlainAccess) -> None:
    for asked in (request(Code.UPDATE_BROKER_CONFIG, {}, key=None), request(secret=WRONG)):
        identity = access.check(asked, "10.0.0.7:1")
        assert identity == Identity(None, "10.0.0.7:1")
        assert access.secret_of(identity) is None


def test_the_white_list_of_an_account_needs_its_key_but_no_signature(access: PlainAccess) -> None:
    identity = access.check(request(secret=WRONG, fields={"topic": "Bills"}), "10.1.0.1:1")
    assert identity == Identity("publisher", "10.1.0.1:1")
    denied(access, request(key=None), "10.1.0.1:1")
    denied(access, request(key="administrator", secret=WRONG), "10.1.0.1:1")
    denied(access, request(secret=WRONG), "10.1.0.2:1")
    assert access.secret_of(identity) == b"secret-of-pub"  # a request without the key differs


def test_only_an_admin_who_signs_may_bring_code_whatever_white_list_matches(
    file: Path, tmp_path: Path
) -> None:
    white = "whiteRemoteAddress: 10.1.0.1"
    file.write_text(ACL.replace("admin: true", f"admin: true, {white}"))
    access = PlainAccess(AclPlaces.of(str(tmp_path), None, None))

    def may(key: str | None, secret: str, peer: str) -> bool:
        asked = request(Code.BOLIDE_UPDATE_FILTER_FUNCTION, {"name": "f"}, key=key, secret=secret)
        return access.may_bring_code(access.check(asked, peer))

    assert may("administrator", "secret-of-admin", PEER)
    assert may("administrator", "secret-of-admin", "10.1.0.1:1")
    assert not may("administrator", WRONG, "10.1.0.1:1")
    assert not may("publisher", "secret-of-pub", "10.1.0.1:1")
    assert not may("publisher", WRONG, "10.1.0.1:1")
    assert not may(None, WRONG, "10.0.0.7:1")


def test_the_secret_of_an_identity_is_that_of_its_account(access: PlainAccess) -> None:
    assert access.secret_of(Identity("publisher", PEER)) == b"secret-of-pub"
    assert access.secret_of(Identity("stranger", PEER)) is None


def test_a_body_that_cannot_be_read_is_denied_except_to_admins(access: PlainAccess) -> None:
    remark = denied(access, request(Code.HEART_BEAT, {}))
    assert remark.startswith("No permission for request code=34, accessKey=publisher: its body")
    access.check(request(Code.HEART_BEAT, {}, key="administrator", secret="secret-of-admin"), PEER)


# ---- changes


@on_loop
async def test_a_changed_file_is_in_force_and_the_decisions_are_dropped(
    access: PlainAccess, file: Path
) -> None:
    dropped: list[bool] = []
    access.on_changed.add(lambda: dropped.append(True))
    access.check(request(), PEER)
    await access.refresh()
    assert dropped == []
    file.write_text(ACL.replace("Orders=PUB", "Orders=SUB").replace("10.0.0.*", "10.0.0.1"))
    await access.refresh()
    assert dropped == [True]
    denied(access, request())
    denied(access, request(key=None), "10.0.0.7:1")


@on_loop
async def test_an_added_and_a_removed_file_count(access: PlainAccess, file: Path) -> None:
    other = file.parent / "acl" / "more.yml"
    other.parent.mkdir()
    other.write_text("accounts: [{accessKey: another, secretKey: secret-of-another, admin: true}]")
    asked = request(key="another", secret="secret-of-another")
    await access.refresh()
    access.check(asked, PEER)
    other.unlink()
    await access.refresh()
    assert denied(access, asked).startswith("No acl config for another")


@on_loop
async def test_an_invalid_file_changes_nothing_and_is_logged_once(
    access: PlainAccess, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file.write_text(ACL + "- {accessKey: short}")
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            await access.refresh()
    assert caplog.messages == [
        f"the access rules stay as they are: {file}:7: an account needs secretKey"
    ]
    access.check(request(), PEER)
    file.write_text(ACL.replace("Orders=PUB", "Orders=SUB"))
    await access.refresh()
    denied(access, request())


@on_loop
async def test_without_any_account_nobody_is_served(
    access: PlainAccess, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file.unlink()
    with caplog.at_level(logging.ERROR):
        await access.refresh()
    assert caplog.messages == [
        "no file has an account: only addresses of the white list are served"
    ]
    denied(access, request())


@on_loop
async def test_the_files_are_followed_while_it_runs(
    access: PlainAccess, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bolide.auth.plain.access.POLL_INTERVAL", 0.01)
    running = asyncio.create_task(access.run())
    before = access.rules
    file.write_text(ACL.replace("Orders=PUB", "Orders=SUB"))
    await until(lambda: access.rules is not before)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    denied(access, request())


@on_loop
async def test_files_that_cannot_be_looked_at_do_not_end_it(
    access: PlainAccess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks: list[bool] = []

    def fail() -> None:
        looks.append(True)
        raise PermissionError(13, "Permission denied", "conf")

    monkeypatch.setattr("bolide.auth.plain.access.POLL_INTERVAL", 0.001)
    monkeypatch.setattr(access.files, "state", fail)
    running = asyncio.create_task(access.run())
    await until(lambda: len(looks) > 3)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert caplog.messages == [
        "the access rules cannot be followed: [Errno 13] Permission denied: 'conf'"
    ]


@on_loop
async def test_a_change_is_in_force_when_it_returns(access: PlainAccess) -> None:
    await access.change(lambda: access.changes.delete_account("publisher"))
    assert denied(access, request()).startswith("No acl config for publisher")
    before = access.rules
    await access.refresh()
    assert access.rules is before, "the own change is not read twice"


# ---- settings


def test_the_settings_choose_it(file: Path) -> None:
    home = str(file.parent.parent)
    config, _ = load_settings({"aclEnable": "true", "rocketmqHome": home})
    assert isinstance(choose_access(config), PlainAccess)
    assert config.has_access_control
    config, _ = load_settings(
        {"aclEnable": "true", "rocketmqHome": "", "rocketmq.acl.plain.file": str(file)}
    )
    assert isinstance(choose_access(config), PlainAccess)
    beside = str(file.parent / "broker.conf")
    config, _ = load_settings({"aclEnable": "true", "rocketmqHome": "", "brokerConfigPath": beside})
    assert isinstance(choose_access(config), PlainAccess)


def test_settings_that_protect_nothing_are_refused(tmp_path: Path) -> None:
    config, _ = load_settings({"aclEnable": "true", "rocketmqHome": str(tmp_path)})
    with pytest.raises(ConfigError, match=r"plain_acl\.yml nor"):
        choose_access(config)
    config, _ = load_settings({"aclEnable": "true", "authenticationEnabled": "true"})
    with pytest.raises(ConfigError, match=r"choose ACL 1\.0 or ACL 2\.0"):
        choose_access(config)


def test_a_message_that_is_sent_back_must_be_of_a_topic_that_the_account_may_read(
    access: PlainAccess, file: Path
) -> None:
    file.write_text(
        ACL + "- {accessKey: subscriber, secretKey: secret-of-sub, topicPerms: [Orders=SUB],"
        " groupPerms: [billing=SUB]}\n"
    )
    access.rules = access.files.load()
    asked = request(
        Code.CONSUMER_SEND_MSG_BACK, {"group": "billing"}, key="subscriber", secret="secret-of-sub"
    )
    access.check_found(asked, PEER, "Orders")
    access.check_found(asked, PEER, "%RETRY%billing")
    with pytest.raises(NoPermission, match="topic:Salaries"):
        access.check_found(asked, PEER, "Salaries")
    access.check_found(request(key=None), "10.0.0.7:1", "Salaries")  # the white list


def test_the_end_of_a_transaction_needs_the_topic_of_its_message(
    access: PlainAccess, file: Path
) -> None:
    file.write_text(
        ACL + "- {accessKey: subscriber, secretKey: secret-of-sub, topicPerms: [Orders=SUB],"
        " groupPerms: [billing=SUB]}\n"
    )
    access.rules = access.files.load()
    for fields in ({}, {"topic": "Orders"}):
        asked = request(Code.END_TRANSACTION, fields)
        access.check_found(asked, PEER, "Orders")
        with pytest.raises(NoPermission, match="topic:Salaries"):
            access.check_found(asked, PEER, "Salaries")
    asked = request(Code.END_TRANSACTION, {}, key="subscriber", secret="secret-of-sub")
    access.check_found(asked, PEER, "%RETRY%billing")
    with pytest.raises(NoPermission, match="needs PUB"):
        access.check_found(asked, PEER, "Orders")
    admin = {"key": "administrator", "secret": "secret-of-admin"}
    for code in (Code.END_TRANSACTION, Code.RESUME_CHECK_HALF_MESSAGE):
        access.check_found(request(code, {}, **admin), PEER, "Salaries")  # type: ignore[arg-type]


def test_it_says_who_may_send_to_a_topic(access: PlainAccess) -> None:
    for may, key, host, topic in (
        (True, "publisher", "192.168.0.1", "Orders"),
        (False, "publisher", "192.168.0.1", "Salaries"),
        (False, "publisher", "192.168.0.1", "%RETRY%billing"),
        (True, "publisher", "10.1.0.1", "Salaries"),  # its own white list
        (True, "administrator", "192.168.0.1", "Salaries"),
        (True, None, "10.0.0.7", "Salaries"),  # the global white list
        (False, None, "192.168.0.1", "Orders"),
        (False, "deleted", "192.168.0.1", "Orders"),
    ):
        assert access.may_send(Identity(key, f"{host}:5000"), topic) is may, (key, host, topic)


def test_it_says_who_somebody_is(access: PlainAccess) -> None:
    publisher, admin = Identity("publisher", PEER), Identity("administrator", PEER)
    own = Identity("publisher", "10.1.0.1:1", is_verified=False)
    for identity, is_super, power in (
        (publisher, False, "may use the topics and groups of its account"),
        (admin, True, "may do everything"),
        (Identity(None, "10.0.0.7:1"), True, "its address is in the global white list"),
        (own, True, "its address is in the white list of the account, though its signature is"),
    ):
        privileges = access.privileges(identity)
        assert (privileges.access_control, privileges.is_super) == ("ACL 1.0", is_super)
        assert power in privileges.power


def asked(
    access: PlainAccess, asker: Identity, actions: str, resource: str = "Topic:Orders", **more: str
) -> Answer:
    header = CanIHeader(resource=resource, actions=actions, **more)
    return access.answer(asker, Question.of(header))


def test_it_says_what_an_account_may(access: PlainAccess) -> None:
    publisher, admin = Identity("publisher", PEER), Identity("administrator", PEER)
    assert asked(access, publisher, "Pub") == (True, None)
    assert asked(access, publisher, "Get,List").allowed  # as every account
    assert asked(access, admin, "All") == (True, None)
    assert asked(access, admin, "Pub", username="publisher") == (True, None)
    for actions, resource, text in (
        ("Sub", "Topic:Orders", "needs SUB"),
        ("Pub,Sub", "Topic:Orders", "needs SUB"),
        ("Sub,Pub", "Topic:Orders", "needs SUB"),
        ("Sub", "Group:g", "group:g"),
        ("Pub", "Topic:%RETRY%g", "needs SUB"),
        ("Create", "Topic:Orders", "Need admin permission, but accessKey=publisher is not"),
        ("Sub", "Topic:SCHEDULE_TOPIC_XXXX", "Need admin permission for request code=11"),
    ):
        allowed, reason = asked(access, publisher, actions, resource)
        assert not allowed
        assert text in str(reason)
        assert "code=0" not in str(reason)
    assert "No acl config" in str(asked(access, admin, "Pub", username="x").reason)
    with pytest.raises(NoPermission, match="only an admin"):
        asked(access, publisher, "Pub", username="administrator")
    with pytest.raises(InvalidParameter, match="Cluster:c is neither"):
        asked(access, publisher, "Pub", "Cluster:c")


def test_every_account_may_send_traces_when_asked(access: PlainAccess) -> None:
    trace = "Topic:RMQ_SYS_TRACE_TOPIC"
    assert asked(access, Identity("publisher", PEER), "Pub", trace).allowed
    assert not asked(access, Identity("publisher", PEER), "Sub", trace).allowed
    assert not asked(access, Identity("publisher", PEER), "Pub,Sub", trace).allowed


def test_an_answer_counts_the_white_lists(access: PlainAccess) -> None:
    publisher, local = Identity("publisher", PEER), Identity(None, "10.0.0.7:1")
    assert asked(access, publisher, "Sub", source_ip="10.1.0.1") == (
        True,
        "10.1.0.1 is in the white list of publisher",
    )
    assert asked(access, publisher, "All", source_ip="10.0.0.9").allowed
    assert asked(access, local, "Sub") == (True, "10.0.0.7 is in the global white list")
    assert asked(access, local, "Sub", username="publisher").allowed  # it would come from there
    far = "192.168.0.1"
    assert not asked(access, local, "Sub", username="publisher", source_ip=far).allowed
    assert asked(access, local, "Pub", source_ip=far) == (False, "No accessKey is configured")


@pytest.mark.parametrize("code", [Code.SEND_MESSAGE, Code.PULL_MESSAGE])
@pytest.mark.parametrize("key", ["publisher", "administrator"])
@pytest.mark.parametrize("host", ["10.0.0.7", "10.1.0.1", "192.168.0.1"])
@pytest.mark.parametrize(
    "topic", ["Orders", "Salaries", "RMQ_SYS_TRACE_TOPIC", "SCHEDULE_TOPIC_XXXX", "%RETRY%g"]
)
def test_an_answer_is_what_a_request_would_get(
    access: PlainAccess, code: Code, key: str, host: str, topic: str
) -> None:
    secret = access.rules.accounts[key].secret.decode()
    try:
        access.check(request(code, {"topic": topic}, key=key, secret=secret), f"{host}:1")
        may = True
    except NoPermission:
        may = False
    action = "Pub" if code == Code.SEND_MESSAGE else "Sub"
    header = CanIHeader(resource=f"Topic:{topic}", actions=action, source_ip=host)
    assert access.answer(Identity(key, PEER), Question.of(header)).allowed is may


def test_the_audit_is_shown_accounts_without_their_secrets(access: PlainAccess) -> None:
    assert access.account_states("")["globalWhiteRemoteAddresses"] == ["10.0.0.*"]
    assert access.account_states("nobody") == {"nobody": None}
    shown = access.account_states("publisher")
    assert "Orders=PUB" in str(shown)
    assert "secret" not in str(shown)


def test_only_the_topic_of_replies_of_the_own_cluster_is_everybodys(
    file: Path, tmp_path: Path
) -> None:
    settings = {"aclEnable": "true", "rocketmqHome": str(tmp_path)}
    config, _ = load_settings(settings)
    access = choose_access(config, cluster="mine")
    reply = request(Code.SEND_REPLY_MESSAGE, {"topic": "mine_REPLY_TOPIC"})
    assert access.check(reply, PEER).access_key == "publisher"
    assert isinstance(access, PlainAccess)
    other = request(Code.SEND_REPLY_MESSAGE, {"topic": "other_REPLY_TOPIC"})
    assert "topic:other_REPLY_TOPIC" in denied(access, other)


@on_loop
async def test_an_unexpected_error_does_not_end_the_following_of_files(
    access: PlainAccess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("bolide.auth.plain.access.POLL_INTERVAL", 0.01)
    calls = []

    async def refresh() -> None:
        calls.append(1)
        raise ZeroDivisionError("not foreseen")

    monkeypatch.setattr(access, "refresh", refresh)
    following = asyncio.create_task(access.run())
    await until(lambda: len(calls) > 2)
    following.cancel()
    await asyncio.wait([following])
    assert caplog.text.count("the access rules cannot be followed: not foreseen") == 1
