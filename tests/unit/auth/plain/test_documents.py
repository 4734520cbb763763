"""Files of access rules."""

import logging
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.auth.plain.accounts import Account, AccountEntry
from bolide.auth.plain.documents import AclDocument, BadAclFile, read_document, write_document
from bolide.auth.plain.yaml_nodes import MAX_SIZE
from bolide.protocol.bodies.data_version import DataVersion

SAMPLE = b"""
# What RocketMQ ships.
globalWhiteRemoteAddresses:
- 10.10.103.*
- 192.168.0.*

accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - topicA=DENY
  - topicB=PUB|SUB
  groupPerms:
  # the group should convert to retry topic
  - groupA=DENY
- accessKey: rocketmq2
  secretKey: "12345678"
  whiteRemoteAddress: 192.168.1.*
  # if it is admin, it could access all resources
  admin: true
dataVersion:
- counter: 3
  timestamp: 1600000000000
"""

ONE = "accounts:\n- accessKey: account\n  secretKey: 12345678\n"


def read(text: str | bytes) -> AclDocument:
    return read_document(text.encode() if isinstance(text, str) else text, "acl.yml")


def test_rocketmqs_sample_is_read() -> None:
    document = read(SAMPLE)
    assert document.white_addresses == ("10.10.103.*", "192.168.0.*")
    assert document.version == DataVersion(counter=3, timestamp=1_600_000_000_000)
    first, second = (each.entry for each in document.accounts)
    assert first == AccountEntry(
        access_key="RocketMQ", secret_key="12345678", default_topic_perm="DENY",
        default_group_perm="SUB", topic_perms=("topicA=DENY", "topicB=PUB|SUB"),
        group_perms=("groupA=DENY",),
    )  # fmt: skip
    assert (first.secret_key, second.secret_key) == ("12345678", "12345678")
    assert second == AccountEntry(
        access_key="rocketmq2", secret_key="12345678", white_remote_address="192.168.1.*",
        admin=True,
    )  # fmt: skip


@pytest.mark.parametrize("text", ["", "# nothing\n", "accounts:\n", "accounts: []\n", "---\n"])
def test_a_file_without_accounts_is_valid(text: str) -> None:
    assert read(text) == AclDocument()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", ":1: the file must be a mapping"),
        ("accounts: here", ":1: accounts must be a list"),
        ("accounts:\n- here", ":2: an account must be a mapping"),
        ("accounts:\n- accessKey: account", ":2: an account needs secretKey"),
        ("accounts:\n- secretKey: 12345678", ":2: an account needs accessKey"),
        (ONE + "  accessKey: account", ":4: accessKey occurs twice in an account"),
        (ONE + "  access_key: account", ":4: access_key occurs twice in an account"),
        (ONE + "accounts: []", ":4: accounts occurs twice in the file"),
        (ONE + "  admin: perhaps", ":4: admin must be true or false"),
        (ONE + "  topicPerms: orders=PUB", ":4: topicPerms must be a list"),
        (ONE + "  topicPerms:\n  - orders: PUB", ":5: an item of topicPerms must be a text"),
        (ONE + "  topicPerms:\n  - orders", ":2: 'orders': must have the form name=PERMISSION"),
        (ONE + "  whiteRemoteAddress: here", ":2: 'here' is not an IP address"),
        (ONE + "  defaultTopicPerm: 2001-01-01", ":4: defaultTopicPerm is read as timestamp"),
        ("globalWhiteRemoteAddresses:\n- 1.2.3", ":2: '1.2.3' is not an IP address"),
        ("globalWhiteRemoteAddresses:\n- *", ":2: "),
        ("accounts:\n- accessKey: 0123456\n  secretKey: 12345678", ":2: accessKey is read as int"),
        ("accounts:\n- accessKey: account\n  secretKey: 1234_5678", ":3: secretKey is read as int"),
        ("accounts:\n- accessKey: account\n  secretKey: 0x1234567", ":3: secretKey is read as int"),
        ("accounts:\n- accessKey: account\n  secretKey: 1234567.8", ":3: secretKey is read as flo"),
        ("a: &x []\naccounts: *x", ":2: aliases are not supported"),
        ("accounts: !!python/object/apply:os.system [x]", ":1: the tag "),
        ("a: !own b", ":1: the tag !own is not supported"),
        ("a: b: c", ":1: "),
        ("--- {}\n--- {}", ":2: a file has one document"),
        ("[" * 100_000, "nested"),
        ("dataVersion:\n- counter: many", ":2: counter must be a whole number"),
        ("a: " + "b" * MAX_SIZE, "over the limit"),
        (b"\xff\xfea", "acl.yml: "),
        (b"a: \xc3\x28", "acl.yml: "),
    ],
)  # fmt: skip
def test_an_invalid_file_is_refused_with_its_line(text: str | bytes, reason: str) -> None:
    with pytest.raises(BadAclFile) as refused:
        read(text)
    assert str(refused.value).startswith("acl.yml")
    assert reason in str(refused.value)
    assert "12345678" not in str(refused.value)


def test_keys_are_compared_as_rocketmq_compares_them() -> None:
    given = "accounts:\n- accesskey: account\n  secret-key: 12345678\n  Default_Topic_Perm: PUB\n"
    (account,) = read(given).accounts
    assert (account.access_key, account.entry.default_topic_perm) == ("account", "PUB")


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("yes", True), ("'true'", True), ("1", True), ("0", False), ("", False)],
)
def test_admin_is_read_as_java_reads_it(text: str, value: bool) -> None:
    (account,) = read(f"{ONE}  admin: {text}").accounts
    assert account.is_admin is value


def test_unknown_keys_and_permissions_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        read(ONE + "  comment: mine\n  defaultTopicPerm: ANY\nother: 1\n")
    assert caplog.messages == [
        "acl.yml:6: other is unknown and ignored",
        "acl.yml:4: comment is unknown and ignored",
        "acl.yml:2: accessKey=account: 'ANY' is no permission and denies",
    ]


def test_what_is_written_is_read_again_with_its_first_comment() -> None:
    document = read(SAMPLE)
    written = write_document(document, b"# first\n\n# second\naccounts: []\n# third\n")
    assert written.startswith(b"# first\n\n# second\nglobalWhite")
    assert read(written) == document


visible = st.text(st.characters(exclude_categories=["Cs"]), min_size=7, max_size=12).filter(
    lambda text: text.isprintable() and text.strip()
)


@given(key=visible, secret=visible)
def test_every_key_survives_being_written(key: str, secret: str) -> None:
    entry = AccountEntry(access_key=key, secret_key=secret)
    written = write_document(AclDocument(accounts=(Account.of(entry),)))
    (account,) = read(written).accounts
    assert account.entry == entry


@given(st.binary(max_size=200))
def test_no_bytes_make_the_reader_fail_otherwise(data: bytes) -> None:
    with suppress(BadAclFile):
        read(data)


@given(st.text(alphabet="ackountsKey:-[]{}&*!#|>'\"\n 01=,.", max_size=120))
def test_no_text_makes_the_reader_fail_otherwise(text: str) -> None:
    with suppress(BadAclFile):
        read(text)


def test_an_account_is_put_and_removed() -> None:
    document = read(SAMPLE)
    new = Account.of(AccountEntry(access_key="RocketMQ", secret_key="another-secret"))
    changed = document.with_account(new)
    assert [each.access_key for each in changed.accounts] == ["rocketmq2", "RocketMQ"]
    assert changed.without("rocketmq2").accounts == (new,)
