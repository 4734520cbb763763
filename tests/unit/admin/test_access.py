"""Documents of users and policies: what they say, and the steps to them."""

import pytest

from bolide.admin.access import (
    BadDocument,
    UnreadablePolicies,
    changes,
    exported,
    load_document,
    parse_document,
    resolved_password,
)
from bolide.auth.policies import model
from bolide.protocol.bodies.access import Acl, Policy, User
from tests.support.access import entry

USERS = [
    User(username="root", password="", user_type="Super", user_status="enable"),
    User(username="my-shop", password="", user_type="Normal", user_status="enable"),
]
ACLS = [
    Acl(
        subject="User:my-shop",
        policies=[
            Policy(policy_type="Custom", entries=[entry("Topic:a", "Pub", sources="10.0.0.0/8")]),
            Policy(policy_type="Default", entries=[entry("*", "All", "Deny")]),
        ],
    )
]


def steps(document: object, users: list[User] = USERS, acls: list[Acl] = ACLS) -> list[str]:
    return [each.text for each in changes(parse_document(document), users, acls)]


def test_an_export_refers_to_passwords() -> None:
    document = exported(USERS, ACLS)
    assert document["users"]["my-shop"]["password"] == "${PASSWORD_MY_SHOP}"
    assert document["users"]["my-shop"]["policies"] == [
        {
            "resource": "Topic:a",
            "actions": ["Pub"],
            "decision": "Allow",
            "sourceIps": ["10.0.0.0/8"],
        },
        {"resource": "*", "actions": ["All"], "decision": "Deny", "type": "Default"},
    ]


def test_an_export_refers_to_a_password_of_each_user() -> None:
    names = ["a_b", "a-b", "A.B", "a-b-2", "a"]
    users = exported([User(username=name, user_type="Normal") for name in names], [])["users"]
    assert list(users) == names
    assert {name: each["password"] for name, each in users.items()} == {
        "A.B": "${PASSWORD_A_B}",
        "a": "${PASSWORD_A}",
        "a-b": "${PASSWORD_A_B_2}",
        "a-b-2": "${PASSWORD_A_B_2_2}",
        "a_b": "${PASSWORD_A_B_3}",
    }


def test_an_export_changes_nothing_where_it_came_from() -> None:
    assert steps(exported(USERS, ACLS)) == []


def test_an_export_makes_an_empty_broker_the_same() -> None:
    assert steps(exported(USERS, ACLS), [], []) == [
        "+ root (Super)",
        "+ my-shop (Normal)",
        "+ my-shop: Allow Pub on Topic:a from 10.0.0.0/8",
        "+ my-shop: Deny All on * (Default)",
    ]


def test_changes_of_a_user_are_found() -> None:
    document = {
        "users": {
            "my-shop": {
                "type": "Super",
                "status": "disable",
                "policies": [
                    {"resource": "Topic:a", "actions": "Sub", "decision": "Allow"},
                    {"resource": "Group:g", "actions": ["Sub"], "decision": "Allow"},
                ],
            }
        }
    }
    assert steps(document) == [
        "~ my-shop Normal, enable -> Super, disable",
        "~ my-shop: Allow Sub on Topic:a",
        "+ my-shop: Allow Sub on Group:g",
        "- my-shop: Deny All on * (Default)",
    ]


def broker_after(document: object) -> tuple[list[User], list[Acl]]:
    """What a broker answers once a document was applied to an empty one."""
    users: list[User] = []
    acls: dict[str, model.Acl] = {}
    for change in changes(parse_document(document), [], []):
        name = change.user.username
        if change.creates:
            kind, status = change.user.user_type, change.user.user_status
            users.append(model.User(name, "secret", kind, status).to_wire())
        if change.puts is not None:
            put = model.Acl(name, {change.puts[0]: (change.puts[1],)})
            acls[name] = acls.get(name, model.Acl(name)).updated(put)
    return users, [body for each in acls.values() if (body := each.to_wire()) is not None]


@pytest.mark.parametrize(
    "user",
    [
        {"type": "super", "status": "DISABLE"},
        {"type": " Super ", "status": "Enable"},
        {"policies": [{"resource": "topic:Payroll", "actions": ["Pub"], "decision": "allow"}]},
        {"policies": [{"resource": " Topic:a*b* ", "actions": "pub", "decision": "DENY"}]},
        {"policies": [{"resource": "any:x", "actions": ["SUB", "Pub"], "decision": "Allow"}]},
        {
            "policies": [
                {
                    "resource": "GROUP:*",
                    "actions": ["sub", "Sub"],
                    "decision": "allow",
                    "type": "default",
                    "sourceIps": [" 10.0.0.1/8", "2001:DB8::1"],
                }
            ]
        },
    ],
)
def test_a_document_changes_nothing_the_second_time(user: dict[str, object]) -> None:
    document = {"users": {"a": user}}
    assert steps(document, *broker_after(document)) == []


def test_addresses_are_compared_as_addresses() -> None:
    allowed = {"resource": "Topic:a", "actions": ["Pub"], "decision": "Allow"}
    first = {"users": {"a": {"policies": [allowed | {"sourceIps": ["10.9.9.9/8", "::1"]}]}}}
    second = {"users": {"a": {"policies": [allowed | {"sourceIps": ["0:0::1", "10.0.0.0/8"]}]}}}
    assert steps(second, *broker_after(first)) == []


def test_a_user_is_created_with_its_status() -> None:
    assert steps({"users": {"a": {"status": "disable"}}}) == ["+ a (Normal, disable)"]


def test_policies_of_a_broker_that_cannot_be_read_are_not_deleted() -> None:
    odd = Acl(subject="User:a", policies=[Policy(entries=[entry("Topic:a", "Fly")])])
    with pytest.raises(UnreadablePolicies, match=r"User:a .*Fly"):
        steps({"users": {"a": {}}}, [], [odd])


def test_other_users_are_left_alone() -> None:
    assert steps({"users": {"root": {"type": "Super"}}}) == []


def policy(resource: str, action: str) -> dict[str, object]:
    entry = {"resource": resource, "actions": [action], "decision": "Allow"}
    return {"users": {"a": {"policies": [entry]}}}


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (None, "map of users"),
        ([], "map of users"),
        ({"users": []}, "map of users"),
        ({"users": {"a": 7}}, "user a: must be a map"),
        ({"users": {"a": {"password": "plain-text"}}}, "user a: a password is not written here"),
        ({"users": {"a": {"policies": [{"resource": "Topic:x"}]}}}, "needs resource, actions"),
        ({"users": {"a": {"policies": ["x"]}}}, "needs resource, actions"),
        (policy("Topc:A", "Pub"), "user a: .*Topc"),
        (policy("Topic:A", "Pubb"), "user a: .*Pubb"),
        ({"users": {"a": {"type": "Supper"}}}, "user a: .*Supper"),
        ({"users": {"a": {"policies": {"resource": "*"}}}}, "user a: policies must be a list"),
        (
            {
                "users": {
                    "a": {
                        "policies": [
                            {"resource": "Topic:x", "actions": ["Pub"], "decision": "Allow"},
                            {"resource": "topic:x", "actions": ["Sub"], "decision": "Allow"},
                        ]
                    }
                }
            },
            "user a: two policies are about Topic:x",
        ),
    ],
)
def test_a_document_that_cannot_be_used_is_refused(document: object, text: str) -> None:
    with pytest.raises(BadDocument, match=text) as caught:
        parse_document(document)
    assert "plain-text" not in str(caught.value)


def test_the_password_of_a_new_user_comes_from_the_environment() -> None:
    (user,) = parse_document({"users": {"a": {"password": "${A_PW}"}}})
    assert resolved_password(user, {"A_PW": "secret"}) == "secret"
    with pytest.raises(BadDocument, match="set A_PW"):
        resolved_password(user, {})
    (without,) = parse_document({"users": {"a": None}})
    with pytest.raises(BadDocument, match="the new user a needs a password"):
        resolved_password(without, {"A_PW": "secret"})


@pytest.mark.parametrize("text", ["a: [", "a: 2026-99-99", "\x00", "a: !!python/object:x {}"])
def test_what_is_no_yaml_is_an_error_of_the_file(text: str) -> None:
    with pytest.raises(BadDocument, match="not valid YAML"):
        load_document(text.encode())
