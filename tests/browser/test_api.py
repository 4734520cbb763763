"""The HTTP API of a console that runs: log-in, roles, confirmations, errors, documentation."""

from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from bolide.operations.catalog import OPERATIONS
from tests.browser.site import PASSWORD, Site


@pytest.fixture(scope="module")
def viewer(site: Site) -> str:
    """The password of an account that may only look."""
    with site.api() as api:
        made = api.post("/accounts", json={"name": "onlooker", "role": "viewer"}).json()
    with site.api("onlooker", made["password"]) as api:
        assert api.get("/topics").json()["error"] == "PasswordToChange"
        words = {"current": made["password"], "new": "watching-only-5"}
        assert api.put("/session/password", json=words).status_code == 204
    return "watching-only-5"


def test_every_operation_is_documented_and_guarded(site: Site) -> None:
    with site.api() as api:
        document = api.get(f"{site.url}/api/openapi.json").json()
        for operation in OPERATIONS.values():
            entry = document["paths"][f"/api/v1{operation.path}"][operation.method.lower()]
            assert entry["summary"], operation.name
    with httpx.Client(base_url=f"{site.url}/api/v1", trust_env=False) as anonymous:
        for operation in OPERATIONS.values():
            answer = anonymous.request(operation.method, operation.path)
            assert answer.status_code == 401, operation.name


def test_the_documentation_page_works_offline(page: Page) -> None:
    page.goto("/api/docs")
    expect(page.get_by_text("/api/v1/topics", exact=True).first).to_be_visible()


def test_a_session_is_made_used_and_ended(site: Site) -> None:
    with httpx.Client(base_url=f"{site.url}/api/v1", trust_env=False) as client:
        words = {"user": "admin", "password": PASSWORD}
        cookie = client.post("/session", json=words).headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        assert client.get("/session").json()["role"] == "admin"
        elsewhere = {"Origin": "http://evil.example"}
        assert client.delete("/session", headers=elsewhere).status_code == 403
        assert client.delete("/session").status_code == 204
        assert client.get("/session").status_code == 401


def test_failed_log_ins_have_to_wait(site: Site) -> None:
    with httpx.Client(base_url=f"{site.url}/api/v1", trust_env=False) as client:
        words = {"user": "nobody-here", "password": "guess"}
        answers = [client.post("/session", json=words) for _ in range(6)]
        assert [answer.status_code for answer in answers] == [401] * 5 + [429]
        assert int(answers[-1].headers["retry-after"]) >= 1
    with site.api() as api:
        assert api.get("/session").status_code == 200  # others are not locked out


def test_malformed_requests_of_anybody_are_answered(site: Site) -> None:
    kinds = {
        "json": {"Content-Type": "application/json"},
        "form": {"Content-Type": "application/x-www-form-urlencoded"},
    }
    half = b'{"user": "\\ud800", "password": "\\udfff"}'
    form = {"user": "x" * 5000, "password": "y" * 5000, "next": "//["}
    tiny = b"x" * 70_000
    encoded = "multipart/form-data; boundary=b; charset=unicode_escape"
    part = b'--b\r\nContent-Disposition: form-data; name="user"\r\n\r\n\\ud800\r\n--b--\r\n'
    asked: list[tuple[str, str, dict[str, Any], int]] = [
        ("GET", "/login?next=//[", {}, 200),
        ("GET", "/language/en-US?next=http://[", {}, 303),
        ("GET", "/static/%00", {}, 404),
        ("GET", "/static/" + "x" * 5000, {}, 404),
        ("GET", "/topics/%ff%00?search=%ff", {}, 303),
        ("GET", "/api/v1/topics", {"headers": {"Authorization": "Basic /w=="}}, 401),
        ("GET", "/topics", {"headers": {"Accept-Language": "zh;q=x, en;q=", "Cookie": "a"}}, 303),
        ("POST", "/login", {"headers": {"Origin": "http://["}}, 403),
        ("POST", "/login", {"data": form}, 401),
        ("POST", "/login", {"content": part, "headers": {"Content-Type": encoded}}, 401),
        ("POST", "/login", {"content": tiny}, 413),
        ("POST", "/login", {"content": iter([tiny]), "headers": kinds["form"]}, 413),
        ("POST", "/api/v1/session", {"content": half, "headers": kinds["json"]}, 401),
        ("POST", "/api/v1/session", {"content": b"[" * 60_000, "headers": kinds["json"]}, 400),
        ("POST", "/api/v1/session", {"json": {"user": "x" * 5000, "password": "y"}}, 401),
        ("POST", "/api/v1/session", {"content": iter([tiny]), "headers": kinds["json"]}, 413),
    ]
    with httpx.Client(base_url=site.url, trust_env=False) as client:
        found = [client.request(method, path, **given) for method, path, given, _ in asked]
    pairs = zip(asked, found, strict=True)
    assert [
        (method, path[:40], status, answer.status_code, answer.text[:200])
        for (method, path, _, status), answer in pairs
        if answer.status_code != status
    ] == []


def test_a_viewer_changes_nothing(site: Site, viewer: str) -> None:
    with site.api("onlooker", viewer) as api:
        assert api.get("/topics").status_code == 200
        assert api.get("/accounts").status_code == 403
        refused = 0
        for operation in OPERATIONS.values():
            if operation.changes:
                path = operation.path.replace("{", "x").replace("}", "")
                answer = api.request(operation.method, path, params={"confirmation": "yes"})
                # What lacks its parameters is not even asked for its role.
                assert answer.status_code in {403, 422}, (operation.name, answer.text)
                refused += answer.status_code == 403
        assert refused > 5


def test_a_deletion_is_confirmed_for_what_it_is(site: Site) -> None:
    topic = "Api-deletes"
    with site.api() as api:
        made = api.post("/topics", json=new_topic(topic))
        assert made.status_code == 200, made.text
        assert topic in site.ask(lambda admin: admin.topics.names())
        shown = api.delete(f"/topics/{topic}", params={"dry_run": True})
        assert shown.status_code == 428
        asked = api.delete(f"/topics/{topic}")
        assert asked.status_code == 428
        assert asked.json()["effect"]["topic"] == topic
        wrong = api.delete(f"/topics/{topic}", params={"confirmation": "0" * 16})
        assert wrong.status_code == 428
        assert topic in site.ask(lambda admin: admin.topics.names())
        misspelt = api.post("/topics", json={"topic": "Api-misspelt", "queues": 3})
        assert (misspelt.status_code, misspelt.json()["field"]) == (422, "queues")
        done = api.delete(f"/topics/{topic}", params={"confirmation": asked.json()["confirmation"]})
        assert done.status_code == 200, done.text
        assert topic not in site.ask(lambda admin: admin.topics.names())
        entries = api.get("/audit").json()
        assert any(topic in entry["target"] for entry in entries["items"])


def new_topic(name: str) -> dict[str, Any]:
    return {"topic": name, "read_queues": 2, "write_queues": 2}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/topics/no-such-topic", 404),
        ("GET", "/nothing", 404),
        ("GET", "/topics?size=many", 422),
        ("POST", "/topics", 422),
        ("GET", "/topics?serach=orders", 422),
    ],
)
def test_errors_are_answers(site: Site, method: str, path: str, status: int) -> None:
    with site.api() as api:
        answer = api.request(method, path)
        assert answer.status_code == status, answer.text
        assert "Traceback" not in answer.text
