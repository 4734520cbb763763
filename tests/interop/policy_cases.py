"""Users and policies, and the requests that they send to our broker and to Apache's."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

from bolide.protocol.codes import RequestCode as Code
from bolide.protocol.frame import Frame
from bolide.protocol.signature import ACCESS_KEY, SIGNATURE, signature
from tests.interop.exchanges import EXCHANGES, GROUP, TOPIC, Exchange

ROOT, ROOT_PASSWORD = "root", "root-12345"
PASSWORD = "secret-12345"
CLUSTER = "Cluster:DefaultCluster"
RETRY = f"%RETRY%{GROUP}"
FOREIGN_RETRY = "%RETRY%elsewhere"
POP_RETRY = f"%RETRY%{GROUP}_{TOPIC}"
_QUOTED = f'"{TOPIC}"'.encode()

Entry = tuple[str, str, str, str]
"""Resources and actions, separated by commas; decision; source addresses, which may be none."""

POLICIES: dict[str, dict[str, list[Entry]]] = {
    "pub": {"Custom": [(f"Topic:{TOPIC}", "Pub", "Allow", "")]},
    "sub": {"Custom": [(f"Topic:{TOPIC},Group:{GROUP}", "Sub", "Allow", "")]},
    "topic-only": {"Custom": [(f"Topic:{TOPIC}", "All", "Allow", "")]},
    "group-only": {"Custom": [(f"Group:{GROUP}", "All", "Allow", "")]},
    "other": {"Custom": [("Topic:Elsewhere,Group:elsewhere", "All", "Allow", "")]},
    "prefix": {"Custom": [("Topic:Ans*,Group:ans*", "All", "Allow", "")]},
    "longest": {
        "Custom": [
            ("Topic:*,Group:*", "All", "Allow", ""),
            ("Topic:Ans*,Group:ans*", "All", "Deny", ""),
            ("Topic:Answer*,Group:answers*", "Pub,Sub,Get", "Allow", ""),
        ]
    },
    "denied": {
        "Custom": [
            ("Topic:*,Group:*", "All", "Allow", ""),
            (f"Topic:{TOPIC},Group:{GROUP}", "All", "Deny", ""),
        ]
    },
    "near": {"Custom": [("Topic:*,Group:*", "Pub,Sub", "Allow", "127.0.0.0/8")]},
    "exact": {"Custom": [("*", "All", "Allow", "127.0.0.1")]},
    "far": {"Custom": [("Topic:*,Group:*", "All", "Allow", "10.0.0.0/8,192.168.1.1")]},
    "not-from-here": {
        "Custom": [
            (f"Topic:{TOPIC}", "All", "Allow", ""),
            ("*", "All", "Allow", ""),
            ("Topic:Answers*", "All", "Deny", "127.0.0.1/32"),
        ]
    },
    "defaults": {
        "Custom": [(f"Topic:{TOPIC}", "Pub", "Deny", "")],
        "Default": [("*", "All", "Allow", "")],
    },
    "reader": {"Custom": [("Topic:*,Group:*,Cluster:*", "Get,List", "Allow", "")]},
    "keeper": {"Custom": [(CLUSTER, "Update", "Allow", "")]},
    "creator": {"Custom": [("Topic:*,Group:*", "Create,Update,Delete", "Allow", "")]},
    "disabled": {"Custom": [("*", "All", "Allow", "")]},
    "nothing": {},
}
"""The users, with their policies by kind."""

ANONYMOUS, UNKNOWN, FORGED, UNSIGNED = "(none)", "(unknown)", "(wrong signature)", "(no signature)"
IDENTITIES = (ANONYMOUS, UNKNOWN, FORGED, UNSIGNED, ROOT, *POLICIES)


@dataclass(frozen=True)
class Case:
    """One request of one identity."""

    exchange: Exchange
    identity: str

    @property
    def name(self) -> str:
        return f"{self.exchange.name} by {self.identity}"

    def is_about(self, text: str) -> bool:
        """Whether a field or the body contains a text."""
        fields = self.exchange.fields.values()
        return any(text in each for each in fields) or text.encode() in self.exchange.body


def cases() -> Iterator[Case]:
    for exchange in _exchanges():
        for identity in IDENTITIES:
            yield Case(exchange, identity)


def _exchanges() -> Iterator[Exchange]:
    seen = set()
    for each in EXCHANGES:
        if each.to_name_server or each.code in seen:
            continue
        seen.add(each.code)
        yield each
        if TOPIC in each.fields.values() or _QUOTED in each.body:
            for topic in ("Elsewhere", RETRY, FOREIGN_RETRY, POP_RETRY):
                yield _about(each, topic)
    for code in _WITHOUT_FIELDS:
        yield Exchange(code.name, code)


_WITHOUT_FIELDS = (
    Code.DELETE_EXPIRED_COMMITLOG, Code.TRIGGER_DELETE_FILES, Code.GET_TIMER_METRICS,
    Code.GET_TIMER_CHECK_POINT, Code.AUTH_LIST_USER, Code.AUTH_LIST_ACL,
    Code.GET_COLD_DATA_FLOW_CTR_INFO,
)  # fmt: skip


def _about(each: Exchange, topic: str) -> Exchange:
    """The same request about another topic."""
    fields = {name: topic if text == TOPIC else text for name, text in each.fields.items()}
    body = each.body.replace(_QUOTED, f'"{topic}"'.encode())
    return replace(each, name=f"{each.name} ({topic})", fields=fields, body=body)


def signed(frame: Frame, identity: str) -> Frame:
    """Add the credentials of an identity to a request."""
    if identity == ANONYMOUS:
        return frame
    name = {UNKNOWN: "stranger", FORGED: ROOT, UNSIGNED: ROOT}.get(identity, identity)
    secret = ROOT_PASSWORD if identity == ROOT else PASSWORD
    fields = {**(frame.fields or {}), ACCESS_KEY: name}
    if identity != UNSIGNED:
        fields[SIGNATURE] = signature(fields, frame.body, secret.encode(), frame.version)
    frame.fields = fields
    return frame


def preparation() -> Iterator[tuple[int, dict[str, str], bytes]]:
    """The requests, to be signed by the super user, that create users and policies."""
    for name, policies in POLICIES.items():
        user = {"username": name, "password": PASSWORD, "userType": "Normal"}
        yield Code.AUTH_CREATE_USER, {"username": name}, json.dumps(user).encode()
        subject = f"User:{name}"
        body = {"subject": subject, "policies": [_policy(*each) for each in policies.items()]}
        if policies:
            yield Code.AUTH_CREATE_ACL, {"subject": subject}, json.dumps(body).encode()
    off = {"username": "disabled", "userStatus": "disable"}
    yield Code.AUTH_UPDATE_USER, {"username": "disabled"}, json.dumps(off).encode()


def _policy(kind: str, entries: list[Entry]) -> dict[str, object]:
    return {
        "policyType": kind,
        "entries": [
            {
                "resource": resource,
                "actions": actions.split(","),
                "sourceIps": sources.split(",") if sources else None,
                "decision": decision,
            }
            for resources, actions, decision, sources in entries
            for resource in resources.split(",")
        ],
    }
