"""Access control of the brokers to compare: ACL 2.0, with one user for the loads."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from bolide.protocol import fastjson
from bolide.protocol.bodies.access import Acl, Policy, PolicyEntry, User
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.access import SubjectHeader, UserHeader
from bolide.remoting.client import RemotingClient
from bolide.remoting.signing import Signer


class Credentials(NamedTuple):
    """Who signs, and with what."""

    access_key: str
    secret_key: str


ADMIN = Credentials("bench-admin", "a secret of the benchmarks")
USER = Credentials("bench", "another secret of the benchmarks")

SETTINGS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps(
        {"username": ADMIN.access_key, "password": ADMIN.secret_key}
    ),
    "innerClientAuthenticationCredentials": json.dumps(
        {"accessKey": ADMIN.access_key, "secretKey": ADMIN.secret_key}
    ),
}
"""Of both brokers."""

_AUTH = "org.apache.rocketmq.auth"
APACHE_SETTINGS = {
    "authenticationProvider": f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": (
        f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider"
    ),
    "authorizationProvider": f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": (
        f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider"
    ),
}
"""Of Apache's broker, which has no access control without them; as its documentation has them."""

_POLICIES = {"Topic:bench-*": ["Pub", "Sub", "Get"], "Group:bench_*": ["Sub"]}


async def create_user(addresses: Sequence[str]) -> None:
    """Create the user of the loads, who may do no more than they need."""
    user = User(
        username=USER.access_key, password=USER.secret_key, user_type="Normal", user_status="enable"
    )
    entries = [
        PolicyEntry(resource=resource, actions=actions, decision="Allow")
        for resource, actions in _POLICIES.items()
    ]
    subject = f"User:{USER.access_key}"
    acl = Acl(subject=subject, policies=[Policy(policy_type="Custom", entries=entries)])
    created = (
        (RequestCode.AUTH_CREATE_USER, UserHeader(USER.access_key), user),
        (RequestCode.AUTH_CREATE_ACL, SubjectHeader(subject), acl),
    )
    async with RemotingClient(hooks=[Signer(*ADMIN)]) as client:
        for address in addresses:
            for code, header, body in created:
                await client.call(address, code, header, body=fastjson.encode(body))
