"""`bolide console` and the console beside `bolide standalone`, as programs."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.admin_cluster import PORTS, SMALL
from tests.support.commands import Running, run

NOBODY = "127.0.0.1:1"


@pytest.fixture
def without_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As it is without the extras: the packages cannot be found, and not be imported."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "from importlib.machinery import PathFinder\n"
        "HIDDEN = {'nicegui', 'fastapi', 'fastapi_offline', 'mcp'}\n"
        "find = PathFinder.find_spec\n"
        "PathFinder.find_spec = lambda name, *more: None if name in HIDDEN else find(name, *more)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(hidden))
    yield


def test_the_first_start_prints_a_password_that_has_to_be_changed(
    started: list[Running], home: Path
) -> None:
    console = Running("bolide", "console", "-n", NOBODY, "--port", "0", "--data", str(home / "c"))
    started.append(console)
    url = console.wait_for(r"The console is at (http://127\.0\.0\.1:\d+)")[1]
    password = console.wait_for(r"user admin, one-time password (\S+)")[1]
    with httpx.Client(base_url=f"{url}/api/v1", trust_env=False) as client:
        words = {"user": "admin", "password": password}
        assert client.post("/session", json=words).json()["must_change_password"] is True
        assert client.get("/topics").json()["error"] == "PasswordToChange"
        change = {"current": password, "new": "quite-another-1"}
        assert client.put("/session/password", json=change).status_code == 204
        answer = client.get("/topics")  # there is no cluster
        assert answer.status_code in {503, 504}, answer.text
    shown = run("bolide", "status")
    assert url in shown.stdout
    assert console.stop() == 0
    assert "The console has stopped." in console.output
    assert password not in (home / "c" / "accounts.json").read_text()

    again = run("bolide", "console", "--data", str(home / "c"), "--reset-password", "admin")
    assert re.search(r"One-time password of admin: \S{12,}", again.stdout)
    nobody = run("bolide", "console", "--data", str(home / "c"), "--reset-password", "eve")
    assert (nobody.returncode, "there is no account 'eve'" in nobody.stderr) == (3, True)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--no-login", "--host", "0.0.0.0"], "everybody on the network"),
        (["--https-certificate", "c.pem"], "must be given together"),
        (["-n", "nonsense"], "is not an address"),
        (["--port", "99999"], "not in the range"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(home: Path, words: list[str], reason: str) -> None:
    done = run("bolide", "console", "--data", str(home), *words)
    assert done.returncode != 0
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


def test_standalone_goes_on_if_the_port_of_its_console_is_taken(
    started: list[Running], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOLIDE_CONSOLE", "true")
    first = Running("bolide", "console", "-n", NOBODY, "--port", "0", "--data", str(home / "c"))
    started.append(first)
    port = first.wait_for(r"The console is at http://127\.0\.0\.1:(\d+)")[1]
    words = ("--data", str(home / "data"), *PORTS, *SMALL, "--console-port", port)
    cluster = Running("bolide", "standalone", *words)
    started.append(cluster)
    cluster.wait_for(rf"port {port} of 127\.0\.0\.1 is taken.*--console-port")
    cluster.wait_for("the servers run without it")
    assert cluster.process.poll() is None
    assert cluster.stop(signal.SIGINT) == 0


def test_without_the_extra_the_programs_say_how_to_get_it(
    started: list[Running], home: Path, without_packages: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for command in ("console", "mcp"):
        done = run("bolide", command, "-n", NOBODY)
        assert (done.returncode, f"bolide[{command}]" in done.stderr) == (3, True), done.stderr
    monkeypatch.setenv("BOLIDE_CONSOLE", "true")
    cluster = Running("bolide", "standalone", "--data", str(home / "data"), *PORTS, *SMALL)
    started.append(cluster)
    cluster.wait_for(r"The console is not installed: pip install \"bolide\[console\]\"")
    assert cluster.stop() == 0
