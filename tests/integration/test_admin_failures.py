"""How every admin command ends when something is wrong: one line, an exit code, no traceback.

Each command runs with the words of its own example, so a new one is covered without more ado.
"""

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bolide.cli import app
from bolide.cli.admin.commands import COMMANDS
from bolide.model.message import Host
from bolide.protocol.message_id import OffsetId
from tests.support.admin_cluster import NOBODY, Cluster
from tests.support.commands import Running

OK, REFUSED, USAGE, UNREACHABLE, NOT_APPLICABLE = range(5)
ADDRESSES = ("127.0.0.1:10911", "127.0.0.1:20911", "127.0.0.1:10811", "127.0.0.1:9878")
NEED_NO_SERVER = {"dumpCompactionLog"}
NOT_HERE = {
    "checkRocksdbCqWriteProgress",
    "rocksDBConfigToJson",
    "exportMetadataInRocksDB",
    "getBrokerLiteInfo",
    "getParentTopicInfo",
    "getLiteTopicInfo",
    "getLiteClientInfo",
    "getLiteGroupInfo",
    "triggerLiteDispatch",
}
ASK_FIRST = {name for name, command in COMMANDS.items() if "yes" in command.verb.__annotations__}
TELL_EACH_SEND = {"checkMsgSendRT"}
ASK_FOR_SECRETS = {"createUser"}
FOREVER = {"startMonitoring", "drain"}
"""Commands that look again and again; tests of their own end them."""
SECRET = "secret-enough-for-all\n" * 2
MESSAGE_ID = "7F00000100002A9F0000000000000000"
"""It has the address of a broker."""


@pytest.fixture(scope="module", autouse=True)
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A directory with the files that the examples name."""
    place = tmp_path_factory.mktemp("files")
    (place / "topics.json").write_text('[{"topicName": "Listed"}]')
    (place / "groups.json").write_text('[{"groupName": "listed"}]')
    (place / "big_orders.py").write_text("def accept(message):\n    return True\n")
    (place / "access.yml").write_text("users: {}\npolicies: {}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.delenv("NAMESRV_ADDR", raising=False)
        yield


def invoke(name: str, *more: str, broker: str = NOBODY) -> tuple[int, str, str]:
    host, _, port = broker.partition(":")
    text = COMMANDS[name].example.replace(MESSAGE_ID, OffsetId(Host(host, int(port)), 0).encode())
    for address in ADDRESSES:
        text = text.replace(address, broker)
    yes = ["--yes"] if name in ASK_FIRST else []
    words = ["admin", name, *shlex.split(text), *yes, *more]
    done = CliRunner().invoke(app, words, input=SECRET)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert "Traceback" not in done.output
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example(name: str) -> None:
    done = CliRunner().invoke(app, ["admin", name, "--help"])

    assert done.exit_code == OK
    assert f"Example: mqadmin {name} -n 127.0.0.1:9876" in done.output


@pytest.mark.parametrize("name", COMMANDS)
def test_an_option_that_is_none_ends_with_2(name: str) -> None:
    code, _, error = invoke(name, "--no-such-option")

    assert code == USAGE
    assert "No such option: --no-such-option" in error


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - NEED_NO_SERVER - NOT_HERE))
def test_a_server_that_is_not_there_is_named(name: str) -> None:
    code, _, error = invoke(name, "-n", NOBODY)

    assert code == UNREACHABLE, error
    assert NOBODY in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize("name", sorted(NOT_HERE))
def test_what_has_no_meaning_here_says_why(name: str) -> None:
    code, _, error = invoke(name, "-n", NOBODY)

    assert code == NOT_APPLICABLE
    assert "not applicable, because " in error


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - NEED_NO_SERVER - NOT_HERE - FOREVER))
def test_a_thing_that_is_not_there_is_no_traceback(cluster: Cluster, name: str) -> None:
    """Topic Orders, group billing and the rest of the examples are not in this cluster."""
    code, _, error = invoke(name, "-n", cluster.name_server, broker=cluster.broker)

    assert code in {OK, REFUSED, NOT_APPLICABLE}, error
    assert bool(error) or code == OK


DESTROY = {
    "deleteTopic", "deleteSubGroup", "resetOffsetByTime", "skipAccumulatedMessage",
    "cloneGroupOffset", "cleanUnusedTopic", "electMaster", "cleanBrokerMetadata", "deleteUser",
    "deleteAcl", "deleteAclConfig", "redriveDeadLetters", "recallMessage", "resolveTransaction",
    "drain",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(DESTROY))
def test_what_destroys_something_asks(name: str) -> None:
    options = CliRunner().invoke(app, ["admin", name, "--help"]).output
    assert "--yes" in options
    assert "--dry-run" in options
    assert COMMANDS[name].changes


PLACE = ("--namesrv-port", "0", "--broker-port", "0", "--host", "127.0.0.1")
GUARDED = (
    "authenticationEnabled=true", "authorizationEnabled=true",
    'initAuthenticationUser={"username":"root","password":"root-password"}',
    "mappedFileSizeCommitLog=16777216",
)  # fmt: skip


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """NameServer and broker with access control: their addresses."""
    home = tmp_path_factory.mktemp("guarded")
    running = Running(
        "bolide", "standalone", "--data", str(home / "data"), *PLACE, *GUARDED,
    )  # fmt: skip
    try:
        broker = running.wait_for(r"The broker\[\S+, (\S+)\] boot success")[1]
        name_server = running.wait_for(r"Name Server boot success.* address (\S+)")[1]
        yield name_server, broker
    finally:
        running.stop()
        running.process.communicate()


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - NEED_NO_SERVER - NOT_HERE))
def test_without_credentials_nothing_is_told_or_changed(
    guarded: tuple[str, str], name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    name_server, broker = guarded
    code, shown, error = invoke(name, "-n", name_server, broker=broker)

    assert code == REFUSED
    assert shown == "" or name in TELL_EACH_SEND | ASK_FOR_SECRETS
    assert "set BOLIDE_ACCESS_KEY and BOLIDE_SECRET_KEY" in error
