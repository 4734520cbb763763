"""A tester: may this user do this with that, from this address, and by which rule.

Bolide's brokers decide themselves, by the same code as for requests. RocketMQ's brokers have no
such request: the decision is made here, by the rules of ACL 2.0 or 1.0 and what the brokers list.
"""

from dataclasses import dataclass, field

from bolide.auth.plain.accounts import Account, AccountEntry
from bolide.auth.plain.addresses import matches, parse_pattern, parts_of
from bolide.auth.plain.needs import needs_of_action as plain_needs
from bolide.auth.plain.rules import denial
from bolide.auth.policies.decisions import Need, find_rule, parsed_address
from bolide.auth.policies.model import (
    Acl,
    Action,
    BadPolicy,
    Decision,
    Pattern,
    Resource,
    ResourceType,
)
from bolide.auth.policies.requirements import needs_of_action
from bolide.operations.access.brokers import (
    TURN_ON,
    AccessKind,
    BrokerAccess,
    Site,
    access_overview,
    ask_each,
)
from bolide.operations.access.users import PolicyView, UserView, read_users
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import read
from bolide.operations.errors import BadInput, NotSupported
from bolide.operations.views import Failure, reason_of
from bolide.protocol.bodies import access as wire
from bolide.protocol.bodies.access import PlainAccount, PlainAccounts
from bolide.protocol.headers.access import CanIReply
from bolide.protocol.refusals import RequestCodeNotSupported

_SECRET = "not-the-real-one"  # noqa: S105  an account is evaluated without its secret


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedDecision:
    """One of the permissions that an action needs, and the rule that decides about it."""

    needs: str
    """Such as `Sub on Group:billing`."""
    allowed: bool
    rule: PolicyView | None = None
    """None: no policy matches, so that it is denied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDecision:
    """The decision of one broker."""

    broker: str
    allowed: bool
    reason: str
    evaluated_here: bool
    """The broker cannot be asked: its policies were read, and RocketMQ's rules applied here."""
    needs: list[NeedDecision] = field(default_factory=list)
    """Empty for super users, and for accounts of ACL 1.0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessDecision:
    """Whether a user may do something, at all brokers."""

    username: str
    action: str
    resource: str
    source: str
    allowed: bool | None
    """None: the brokers differ, or none answered."""
    brokers: list[BrokerDecision]
    failures: list[Failure] = field(default_factory=list)


@read("/access-control/check")
async def check_access(
    cluster: Cluster,
    *,
    username: str,
    action: str,
    resource: str,
    source: str = "127.0.0.1",
) -> AccessDecision:
    """Tell whether a user may do an action on a resource from an address, and by which rule.

    The action is one of Pub, Sub, Create, Update, Delete, Get and List; the resource names one
    topic, group or cluster, as `Topic:orders`. To consume, a user needs Sub on the topic and on
    the group. `evaluated_here` tells that a broker cannot be asked, as RocketMQ's: its policies
    are read then and RocketMQ's rules applied.
    """
    question = _question(username, action, resource, source)
    overview = await access_overview.function(cluster)
    guarded = [each for each in overview.brokers if each.kind is not AccessKind.OFF]
    if overview.brokers and not guarded:
        raise NotSupported(f"everybody may do everything: {TURN_ON}")
    brokers = {Site(each.broker, each.address, each.cluster): each for each in guarded}
    decisions, failures = await ask_each(
        list(brokers), lambda site: _decide(cluster, brokers[site], question)
    )
    told = {each.allowed for each in decisions.values()}
    return AccessDecision(
        username=question.username,
        action=question.action.value,
        resource=str(question.resource),
        source=question.source,
        allowed=told.pop() if len(told) == 1 else None,
        brokers=list(decisions.values()),
        failures=[*overview.failures, *failures],
    )


@dataclass(frozen=True, slots=True)
class _Question:
    username: str
    action: Action
    resource: Resource
    source: str


def _question(username: str, action: str, resource: str, source: str) -> _Question:
    """Raises BadInput."""
    try:
        asked = Action.parse(action)
    except BadPolicy as error:
        raise BadInput("action", str(error)) from error
    if asked is Action.ALL:
        raise BadInput("action", "name one action; All is for policies")
    try:
        about = Resource.parse(resource)
    except BadPolicy as error:
        raise BadInput("resource", str(error)) from error
    if about.pattern is not Pattern.LITERAL or about.type is ResourceType.ANY:
        raise BadInput("resource", "name one topic, group or cluster: patterns are for policies")
    if not username.strip():
        raise BadInput("username", "name a user")
    if parsed_address(source) is None:
        raise BadInput("source", f"{source!r} is not an IP address")
    return _Question(username.strip(), asked, about, source.strip())


async def _decide(cluster: Cluster, broker: BrokerAccess, question: _Question) -> BrokerDecision:
    told = await _told(cluster, broker.address, question)
    if broker.kind is AccessKind.ACCOUNTS:
        if told is not None:
            return _as_told(broker.broker, told, [])
        accounts = await cluster.admin.plain_acl.accounts(broker.address)
        return _by_account(broker.broker, accounts, question)
    site = Site(broker.broker, broker.address, broker.cluster)
    evaluated = await _evaluate(cluster, site, question, decides=broker.decides is not False)
    if told is None:
        return evaluated
    agrees = told.allowed == evaluated.allowed  # else the rules that were read are others
    return _as_told(broker.broker, told, evaluated.needs if agrees else [])


async def _told(cluster: Cluster, address: str, question: _Question) -> CanIReply | None:
    """What the broker says; None if it knows no such request."""
    try:
        return await cluster.admin.permissions.can_i(
            address,
            str(question.resource),
            question.action.value,
            username=question.username,
            source=question.source,
        )
    except RequestCodeNotSupported:
        return None


def _as_told(broker: str, told: CanIReply, needs: list[NeedDecision]) -> BrokerDecision:
    reason = told.reason or ("allowed" if told.allowed else "denied")
    return BrokerDecision(
        broker=broker, allowed=told.allowed, reason=reason, evaluated_here=False, needs=needs
    )


async def _evaluate(
    cluster: Cluster, site: Site, question: _Question, *, decides: bool
) -> BrokerDecision:
    users = await read_users(cluster)
    if site not in users.by_site:
        reasons = [each.reason for each in users.failures if each.server == site.broker]
        raise NotSupported(f"its users cannot be read: {', '.join(reasons) or 'it has none'}")
    user = users.by_site[site].get(question.username)
    if user is None:
        return _evaluated(site, False, f"there is no user {question.username!r}")
    if not user.is_enabled:
        return _evaluated(site, False, f"user {question.username} is disabled")
    if user.is_super:
        return _evaluated(site, True, "a super user may do everything")
    if not decides:
        return _evaluated(site, True, "policies do not decide: authorizationEnabled is false")
    acl = _acl_of(user)
    needs = [
        _need_decision(acl, need, question.source)
        for need in needs_of_action(question.resource, question.action, site.cluster)
    ]
    denied = next((each for each in needs if not each.allowed), None)
    if denied is None:
        return _evaluated(site, True, "allowed by the user's policies", needs)
    why = "no policy matches" if denied.rule is None else f"denied by: {denied.rule}"
    return _evaluated(site, False, f"{denied.needs}: {why}", needs)


def _evaluated(
    site: Site, allowed: bool, reason: str, needs: list[NeedDecision] | None = None
) -> BrokerDecision:
    return BrokerDecision(
        broker=site.broker,
        allowed=allowed,
        reason=reason,
        evaluated_here=True,
        needs=needs or [],
    )


def _need_decision(acl: Acl | None, need: Need, source: str) -> NeedDecision:
    words = " or ".join(each.value for each in Action if each in need.actions)
    rule = find_rule(acl, need, source)
    if rule is None:
        return NeedDecision(needs=f"{words} on {need.resource}", allowed=False)
    entry = rule.entry.to_wire()
    return NeedDecision(
        needs=f"{words} on {need.resource}",
        allowed=rule.entry.decision is Decision.ALLOW,
        rule=PolicyView(
            resource=entry.resource or "",
            actions=entry.actions,
            decision=entry.decision or "",
            sources=entry.source_ips or [],
            kind=rule.type.value,
        ),
    )


def _acl_of(user: UserView) -> Acl | None:
    """The policies as decisions need them. Raises BadInput if one cannot be read."""
    policies = [
        wire.Policy(
            policy_type=each.kind,
            entries=[
                wire.PolicyEntry(
                    resource=each.resource,
                    actions=each.actions,
                    source_ips=each.sources or None,
                    decision=each.decision,
                )
            ],
        )
        for each in user.policies
    ]
    if not policies:
        return None
    try:
        return Acl.of(wire.Acl(subject=f"User:{user.username}", policies=policies))
    except BadPolicy as error:
        raise BadInput(
            "username", f"a policy of {user.username} cannot be read: {reason_of(error)}"
        ) from error


# ---- ACL 1.0


def _by_account(broker: str, accounts: PlainAccounts, question: _Question) -> BrokerDecision:
    def decision(allowed: bool, reason: str) -> BrokerDecision:
        return BrokerDecision(broker=broker, allowed=allowed, reason=reason, evaluated_here=True)

    if _is_white(accounts.global_white_addrs, question.source):
        return decision(True, f"{question.source} is in the global white list")
    found = next(
        (e for e in accounts.plain_access_configs if e.access_key == question.username), None
    )
    if found is None:
        return decision(False, f"there is no account {question.username!r}")
    if _is_white([found.white_remote_address or ""], question.source):
        return decision(True, f"{question.source} is in the white list of the account")
    try:
        account = Account.of(_entry_of(found))
    except ValueError as error:
        raise BadInput("username", f"the account cannot be read: {reason_of(error)}") from error
    reason = denial(account, *plain_needs(question.resource, question.action))
    if reason is not None:
        return decision(False, reason)
    return decision(True, "an administrator" if account.is_admin else "allowed by the account")


def _is_white(patterns: list[str], source: str) -> bool:
    parts = parts_of(source)
    try:
        parsed = [parse_pattern(each) for each in patterns]
    except ValueError:
        return False
    return parts is not None and matches(parsed, parts)


def _entry_of(account: PlainAccount) -> AccountEntry:
    return AccountEntry(
        access_key=account.access_key or "",
        secret_key=_SECRET,
        white_remote_address=account.white_remote_address,
        admin=account.admin,
        default_topic_perm=account.default_topic_perm,
        default_group_perm=account.default_group_perm,
        topic_perms=tuple(account.topic_perms or ()),
        group_perms=tuple(account.group_perms or ()),
    )
