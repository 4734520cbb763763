"""Requests about users and policies: RocketMQ's answers, and no passwords."""

import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bolide.auth.access import OpenAccess
from bolide.auth.permission_queries import PermissionQueryHandlers
from bolide.auth.policies.access import PolicyAccess
from bolide.auth.policies.model import UserType
from bolide.broker.admin.users import PolicyHandlers, UserHandlers
from bolide.protocol import fastjson
from bolide.protocol.bodies import access as wire
from bolide.protocol.codes import RequestCode as Code
from bolide.protocol.frame import Frame
from bolide.protocol.headers.access import CanIReply, WhoAmIReply
from bolide.protocol.refusals import InvalidParameter, NoPermission, Refusal, ServerError
from bolide.remoting.client import RemotingClient
from tests.support.access import ROOT, access_in, client_of, entry, give, secret_of, serving
from tests.support.aio import on_loop


class Caller:
    """Sends requests as one user."""

    def __init__(self, client: RemotingClient, address: str) -> None:
        self._client, self._address = client, address

    async def __call__(self, code: Code, body: object = None, **fields: str) -> Frame:
        data = b"" if body is None else fastjson.encode(body)
        return await self._client.call(self._address, code, fields, body=data)


@pytest.fixture
def access(tmp_path: Path) -> PolicyAccess:
    return access_in(tmp_path)


@asynccontextmanager
async def calling(access: object, name: str | None = ROOT) -> AsyncIterator[Caller]:
    assert isinstance(access, PolicyAccess | OpenAccess)
    handlers = (UserHandlers(access), PolicyHandlers(access), PermissionQueryHandlers(access))
    async with serving(access, *handlers) as address, client_of(name) as client:
        yield Caller(client, address)


def user(**given: str) -> wire.User:
    return wire.User(**given)


def acl_of(name: str, *entries: wire.PolicyEntry) -> wire.Acl:
    policy = wire.Policy(policy_type="Custom", entries=list(entries))
    return wire.Acl(subject=f"User:{name}", policies=[policy])


@on_loop
async def test_a_created_user_is_shown_without_its_password(access: PolicyAccess) -> None:
    async with calling(access) as call:
        await call(Code.AUTH_CREATE_USER, user(password="hidden"), username="shop")
        one = await call(Code.AUTH_GET_USER, username="shop")
        listed = await call(Code.AUTH_LIST_USER)
        filtered = await call(Code.AUTH_LIST_USER, filter="ho")
    expected = user(username="shop", password="", user_type="Normal", user_status="enable")
    assert fastjson.decode(one.body, wire.User) == expected
    names = [each.username for each in fastjson.decode(listed.body, list[wire.User])]
    assert names == ["root", "shop"]
    assert fastjson.decode(filtered.body, list[wire.User]) == [expected]
    assert b"hidden" not in one.body + listed.body
    assert access.metadata.users["shop"].password == "hidden"


@on_loop
async def test_what_is_not_there_is_an_empty_answer(access: PolicyAccess) -> None:
    async with calling(access) as call:
        for code, fields in (
            (Code.AUTH_GET_USER, {"username": "ghost"}),
            (Code.AUTH_LIST_USER, {"filter": "ghost"}),
            (Code.AUTH_GET_ACL, {"subject": "User:root"}),
            (Code.AUTH_LIST_ACL, {}),
        ):
            assert (await call(code, **fields)).body == b""
        await call(Code.AUTH_DELETE_USER, username="ghost")


@pytest.mark.parametrize(
    ("code", "body", "kind", "text"),
    [
        (Code.AUTH_CREATE_USER, user(), NoPermission, "password can not be blank"),
        (Code.AUTH_CREATE_USER, user(password=" "), NoPermission, "password can not be blank"),
        (Code.AUTH_CREATE_USER, None, InvalidParameter, "no body"),
        (Code.AUTH_CREATE_USER, user(password="x", user_type="God"), NoPermission, "user type"),
        (Code.AUTH_UPDATE_USER, user(password="x"), NoPermission, "The user is not exist"),
        (Code.AUTH_UPDATE_USER, user(user_status="on"), NoPermission, "user status 'on'"),
    ],
)
@on_loop
async def test_a_wrong_user_is_refused_with_a_reason(
    access: PolicyAccess, code: Code, body: object, kind: type[Refusal], text: str
) -> None:
    async with calling(access) as call:
        with pytest.raises(kind, match=text):
            await call(code, body, username="shop")


@on_loop
async def test_a_user_needs_a_name(access: PolicyAccess) -> None:
    async with calling(access) as call:
        for fields in ({}, {"username": ""}):
            for code in (Code.AUTH_CREATE_USER, Code.AUTH_UPDATE_USER, Code.AUTH_GET_USER):
                with pytest.raises(InvalidParameter, match="The username is blank"):
                    await call(code, user(password="x"), **fields)
            with pytest.raises(NoPermission, match="username can not be blank"):
                await call(Code.AUTH_DELETE_USER, **fields)
        with pytest.raises(InvalidParameter, match="The username is blank"):
            await call(Code.AUTH_GET_USER, username=" ")
        for code in (Code.AUTH_CREATE_USER, Code.AUTH_UPDATE_USER, Code.AUTH_DELETE_USER):
            with pytest.raises(NoPermission, match="username can not be blank"):
                await call(code, user(password="x"), username=" ")


@on_loop
async def test_policies_need_a_subject(access: PolicyAccess) -> None:
    async with calling(access) as call:
        for fields in ({}, {"subject": ""}):
            with pytest.raises(NoPermission, match=r"The subject is null\."):
                await call(Code.AUTH_DELETE_ACL, **fields)
        for code in (Code.AUTH_CREATE_ACL, Code.AUTH_UPDATE_ACL, Code.AUTH_GET_ACL):
            with pytest.raises(Refusal, match="subject"):  # Java fails with an exception
                await call(code, acl_of("shop", entry("*", "All")))


@on_loop
async def test_users_and_policies_are_listed_on_a_thread(
    access: PolicyAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    await give(access.metadata, "shop", entry("Topic:x", "Pub"))
    threads: list[threading.Thread] = []
    encode = fastjson.encode

    def recorded(value: object) -> bytes:
        threads.append(threading.current_thread())
        return encode(value)

    async with calling(access) as call:
        monkeypatch.setattr("bolide.protocol.fastjson.encode", recorded)
        for code in (Code.AUTH_LIST_USER, Code.AUTH_LIST_ACL):
            assert b"shop" in (await call(code)).body
    assert len(threads) == 2
    assert threading.main_thread() not in threads


@on_loop
async def test_a_user_exists_once(access: PolicyAccess) -> None:
    async with calling(access) as call:
        await call(Code.AUTH_CREATE_USER, user(password="x"), username="shop")
        with pytest.raises(NoPermission, match="The user is existed"):
            await call(Code.AUTH_CREATE_USER, user(password="x"), username="shop")


@on_loop
async def test_only_a_super_user_makes_or_changes_one(access: PolicyAccess) -> None:
    await give(access.metadata, "keeper", entry("Cluster:*", "All"))
    body = user(password="x", user_type="Super")
    async with calling(access, "keeper") as call:
        with pytest.raises(ServerError, match="can only be create by super user"):
            await call(Code.AUTH_CREATE_USER, body, username="friend")
        with pytest.raises(ServerError, match="can only be update by super user"):
            await call(Code.AUTH_UPDATE_USER, user(user_type="Super"), username="keeper")
        with pytest.raises(NoPermission, match="can only be update by super user"):
            await call(Code.AUTH_UPDATE_USER, user(password="mine"), username=ROOT)
        with pytest.raises(NoPermission, match="can only be update by super user"):
            await call(Code.AUTH_DELETE_USER, username=ROOT)
        await call(Code.AUTH_CREATE_USER, user(password="x"), username="friend")
    assert access.metadata.users[ROOT].password == secret_of(ROOT)
    async with calling(access) as call:
        await call(Code.AUTH_UPDATE_USER, user(user_type="Super"), username="friend")
    assert access.metadata.users["friend"].type is UserType.SUPER


@on_loop
async def test_a_user_made_super_in_the_file_is_protected_at_once(
    access: PolicyAccess, tmp_path: Path
) -> None:
    await give(access.metadata, "keeper", entry("Cluster:*", "All"))
    await give(access.metadata, "friend")
    file = tmp_path / "users.json"
    users = json.loads(file.read_text())
    for each in users["users"]:
        each["userType"] = "Super" if each["username"] == "friend" else each["userType"]
    file.write_text(json.dumps(users))  # not read before the request
    async with calling(access, "keeper") as call:
        with pytest.raises(NoPermission, match="can only be update by super user"):
            await call(Code.AUTH_UPDATE_USER, user(password="mine"), username="friend")
        file.write_text(json.dumps(users) + "\n")
        with pytest.raises(NoPermission, match="can only be update by super user"):
            await call(Code.AUTH_DELETE_USER, username="friend")
    assert access.metadata.users["friend"].password == secret_of("friend")


@on_loop
async def test_header_and_body_must_name_the_same_user(access: PolicyAccess) -> None:
    await give(access.metadata, "shop")
    await give(access.metadata, "other")
    two_names = "the header names 'shop', the body 'other'"
    policies = acl_of("other", entry("*", "All"))
    async with calling(access) as call:
        for code in (Code.AUTH_CREATE_USER, Code.AUTH_UPDATE_USER):
            with pytest.raises(InvalidParameter, match=two_names):
                await call(code, user(username="other", password="x"), username="shop")
        for code in (Code.AUTH_CREATE_ACL, Code.AUTH_UPDATE_ACL):
            with pytest.raises(InvalidParameter, match="names 'User:shop', the body 'User:other'"):
                await call(code, policies, subject="User:shop")
            with pytest.raises(NoPermission, match="not of the form"):
                await call(code, policies, subject="shop")
        await call(Code.AUTH_CREATE_ACL, policies, subject="user:other")
    assert access.metadata.users["shop"].password == secret_of("shop")
    assert "shop" not in access.metadata.acls


@on_loop
async def test_a_normal_user_changes_nobody(access: PolicyAccess) -> None:
    await give(access.metadata, "shop", entry("Topic:*", "All"))
    async with calling(access, "shop") as call:
        for code in (Code.AUTH_UPDATE_USER, Code.AUTH_DELETE_USER, Code.AUTH_GET_USER):
            with pytest.raises(NoPermission, match="has no permission to access Cluster:"):
                await call(code, user(password="x"), username="shop")
        with pytest.raises(NoPermission, match="has no permission to access Cluster:"):
            await call(Code.AUTH_CREATE_ACL, acl_of("shop", entry("*", "All")), subject="User:shop")


@on_loop
async def test_policies_are_created_shown_and_deleted(access: PolicyAccess) -> None:
    body = acl_of("shop", entry("Topic:x", "Pub"), entry("Group:g*", "Sub", sources="10.0.0.1"))
    async with calling(access) as call:
        await call(Code.AUTH_CREATE_USER, user(password="x"), username="shop")
        await call(Code.AUTH_CREATE_ACL, body, subject="User:shop")
        one = await call(Code.AUTH_GET_ACL, subject="User:shop")
        found = await call(Code.AUTH_LIST_ACL, subjectFilter="sho", resourceFilter="Group")
        await call(Code.AUTH_DELETE_ACL, subject="User:shop", resource="Topic:x")
        left = await call(Code.AUTH_GET_ACL, subject="User:shop")
        await call(Code.AUTH_DELETE_ACL, subject="User:shop")
        gone = await call(Code.AUTH_GET_ACL, subject="User:shop")
    assert fastjson.decode(one.body, wire.Acl) == body
    (listed,) = fastjson.decode(found.body, list[wire.Acl])
    assert [each.resource for each in listed.policies[0].entries] == ["Group:g*"]
    assert b"Topic:x" not in left.body
    assert gone.body == b""


@on_loop
async def test_a_wrong_policy_is_refused_and_deletes_nothing(access: PolicyAccess) -> None:
    await give(access.metadata, "shop", entry("Topic:x", "Pub"))
    async with calling(access) as call:
        for wrong, text in (
            (entry("Queue:x", "Pub"), "resource type 'Queue'"),
            (entry("Topic:x", "Push"), "action 'Push'"),
            (entry("Topic:x", "Pub", "Perhaps"), "decision 'Perhaps'"),
            (entry("Topic:x", "Pub", sources="office"), "The source ip is invalid"),
        ):
            with pytest.raises(NoPermission, match=text):
                await call(Code.AUTH_UPDATE_ACL, acl_of("shop", wrong), subject="User:shop")
        with pytest.raises(ServerError, match="The body of acl is null"):
            await call(Code.AUTH_CREATE_ACL, wire.Acl(), subject="User:shop")
        with pytest.raises(NoPermission, match="The subject of User:ghost is not exist"):
            await call(
                Code.AUTH_CREATE_ACL, acl_of("ghost", entry("*", "All")), subject="User:ghost"
            )
        for fields in ({"resource": "Queue:x"}, {"policyType": "Other"}):
            with pytest.raises(NoPermission):
                await call(Code.AUTH_DELETE_ACL, subject="User:shop", **fields)
    assert "shop" in access.metadata.acls


@on_loop
async def test_without_access_control_there_are_no_users() -> None:
    async with calling(OpenAccess(), None) as call:
        for code in (Code.AUTH_CREATE_USER, Code.AUTH_GET_USER, Code.AUTH_DELETE_USER):
            with pytest.raises(ServerError, match="set authenticationEnabled=true"):
                await call(code, user(password="x"), username="shop")
        with pytest.raises(ServerError, match="authenticationEnabled=true"):
            await call(Code.AUTH_LIST_ACL)
        found = WhoAmIReply.from_fields((await call(Code.BOLIDE_WHO_AM_I)).fields)
        with pytest.raises(InvalidParameter, match="no users and policies"):
            await call(Code.BOLIDE_CAN_I, resource="Topic:x", actions="Pub")
    assert (found.access_key, found.access_control, found.is_super) == (None, "none", True)


@on_loop
async def test_a_server_says_who_one_is_and_what_one_may_do(access: PolicyAccess) -> None:
    await give(access.metadata, "shop", entry("Topic:x", "Pub"))
    async with calling(access, "shop") as call:
        me = WhoAmIReply.from_fields((await call(Code.BOLIDE_WHO_AM_I)).fields)
        yes = await call(Code.BOLIDE_CAN_I, resource="Topic:x", actions="Pub")
        no = await call(Code.BOLIDE_CAN_I, resource="Topic:x", actions="Sub")
        with pytest.raises(NoPermission, match="Cluster:DefaultCluster"):
            await call(Code.BOLIDE_CAN_I, resource="Topic:x", actions="Sub", username=ROOT)
    assert (me.access_key, me.access_control, me.is_super) == ("shop", "ACL 2.0", False)
    assert CanIReply.from_fields(yes.fields) == CanIReply(allowed=True)
    denied = CanIReply(allowed=False, reason="Sub on Topic:x: no matched policies.")
    assert CanIReply.from_fields(no.fields) == denied
    async with calling(access, None) as call:
        with pytest.raises(NoPermission, match="username cannot be null"):
            await call(Code.BOLIDE_WHO_AM_I)
