"""Files of declared clusters: every mistake is told with its line and the name of the thing."""

import pytest

from bolide.admin.declared.document import BadAclFile, read_document
from bolide.admin.declared.fields import Kind

WHOLE = """\
version: 1
cluster: Shop
topics:
  Orders: {writeQueueNums: 4, order: true, overrides: {broker-b: {writeQueueNums: 2}}}
  Bills: {onlyOn: [broker-a]}
groups:
  billing: {groupRetryPolicy: {type: CUSTOMIZED, customizedRetryPolicy: {next: [1, 2]}}}
users:
  shop:
    password: ${PASSWORD_SHOP}
    policies:
      - {resource: "topic:Orders", actions: [pub, Sub], decision: allow, sourceIps: 10.1.1.1/8}
accounts:
  orders-app: {secretKey: "${KEY}", topicPerms: [Orders=SUB|PUB]}
"""


def test_a_document_has_canonical_values_at_each_broker() -> None:
    found = read_document(WHOLE.encode(), "c.yml")
    orders, bills, billing, shop, account = found.objects
    assert (found.cluster, found.kinds) == ("Shop", frozenset(Kind))
    assert orders.at("broker-a") == {"writeQueueNums": 4, "order": True}
    assert orders.at("broker-b") == {"writeQueueNums": 2, "order": True}
    assert (bills.at("broker-a"), bills.at("broker-b")) == ({}, None)
    assert billing.fields["groupRetryPolicy"]["customizedRetryPolicy"] == {"next": [1, 2]}
    assert shop.secret == "${PASSWORD_SHOP}"
    assert shop.fields["policies"] == {
        "Topic:Orders": {
            "resource": "Topic:Orders",
            "actions": ["Pub", "Sub"],
            "sourceIps": ["10.0.0.0/8"],
            "decision": "Allow",
        }
    }
    assert account.fields["topicPerms"] == {"Orders": "PUB|SUB"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "c.yml:1: the file needs a version: 1"),
        ("version: 2", "c.yml:1: version 2 is unknown; this reads 1"),
        ("version: one", "c.yml:1: version must be a whole number"),
        ("version: 1\ntopic: {}", "c.yml:2: the file: unknown field topic, did you mean topics?"),
        ("version: 1\ntopics: [a]", "c.yml:2: topics must be a mapping"),
        ("version: 1\ntopics:\n  A: 1\n  A: 2", "c.yml:4: A occurs twice in topics"),
        (
            "version: 1\ntopics:\n  A:\n    perm: 6\n    writequeuenum: 1",
            "c.yml:5: topic A: unknown field writequeuenum, did you mean writeQueueNums?",
        ),
        ("version: 1\ntopics:\n  A: {perm: 8}", "topic A: perm=8: must be a whole number from 0 t"),
        ("version: 1\ntopics:\n  A: {perm: six}", "topic A: perm must be a whole number"),
        ("version: 1\ntopics:\n  A: {order: 7}", "c.yml:3: topic A: order must be true or false"),
        ("version: 1\ntopics:\n  A b: {}", "c.yml:3: topic 'A b': The specified topic"),
        ("version: 1\ntopics:\n  '%DLQ%g': {}", "topic %DLQ%g is not declared: it belongs to a gr"),
        ("version: 1\ntopics:\n  TBW102: {}", "topic TBW102 is not declared: it is a system topic"),
        ("version: 1\ngroups:\n  TOOLS_CONSUMER:", "TOOLS_CONSUMER is not declared: it is a syste"),
        (
            "version: 1\ntopics:\n  A: {attributes: {message.typ: FIFO}}",
            "c.yml:3: topic A: attributes: unknown attribute message.typ, did you mean message",
        ),
        (
            "version: 1\ntopics:\n  A: {attributes: {message.type: FIFA}}",
            "c.yml:3: topic A: attributes: message.type='FIFA': it is one of",
        ),
        (
            "version: 1\ntopics:\n  A: {overrides: {b: {prem: 1}}}",
            "topic A: overrides: b: unknown field prem, did you mean perm?",
        ),
        (
            (
                "version: 1\ngroups:\n  g:\n"
                "    groupRetryPolicy: {exponentialRetryPolicy: {initial: -1}}"
            ),
            "c.yml:4: group g: groupRetryPolicy: initial and max must be 0 or more",
        ),
        (
            (
                "version: 1\ngroups:\n  g:\n"
                "    groupRetryPolicy: {exponentialRetryPolicy: {multiplier: 0}}"
            ),
            "groupRetryPolicy: multiplier=0: must be 1 or more",
        ),
        (
            (
                "version: 1\ngroups:\n  g:\n"
                "    groupRetryPolicy: {customizedRetryPolicy: {next: [1, -1]}}"
            ),
            "groupRetryPolicy: the delays of next must be 0 or more",
        ),
        (
            "version: 1\ngroups:\n  g: {groupRetryPolicy: {type: NEVER}}",
            "c.yml:3: group g: groupRetryPolicy: Invalid enum value 'NEVER'",
        ),
        ("version: 1\nusers:\n  u: {onlyOn: [a]}", "user u: unknown field onlyOn"),
        (
            "version: 1\nusers:\n  u: {status: of}",
            "user u: status='of': must be one of enable, dis",
        ),
        (
            "version: 1\nusers:\n  u: {policies: [{resource: 'Topic:A'}]}",
            "c.yml:3: a policy of user u: policies needs actions, decision",
        ),
        (
            "version: 1\nusers:\n  u:\n    policies:\n    - {resource: A, actions: a, decision: b}",
            "c.yml:5: user u: policies: The resource type 'A' is unknown",
        ),
        (
            "version: 1\naccounts:\n  a: {topicPerms: [Orders=ALL]}",
            "c.yml:3: account a: topicPerms: 'Orders=ALL': write name=PERMISSION",
        ),
        ("version: 1\ntopics: *a", "c.yml:2: "),
    ],
)
def test_a_mistake_is_told_with_its_line(text: str, reason: str) -> None:
    with pytest.raises(BadAclFile) as bad:
        read_document(text.encode(), "c.yml")
    assert reason in str(bad.value)


def test_a_secret_in_clear_is_refused_and_not_repeated() -> None:
    with pytest.raises(BadAclFile) as bad:
        read_document(b"version: 1\nusers:\n  u: {password: hunter2}", "c.yml")
    assert "refers to the environment" in str(bad.value)
    assert "hunter2" not in str(bad.value)
