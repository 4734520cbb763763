"""The steps from what brokers have to what a document declares: pure functions, no I/O.

A plan is made as a whole, and refused as a whole, before anything is changed. Once it is carried
out, the next plan for the same document has no changes.
"""

from collections.abc import Iterable, Mapping, Sequence

from bolide.admin.access import referenced
from bolide.admin.declared.access_loss import access_losses, gets_other_policies, own_loss
from bolide.admin.declared.changes import (
    QUEUES,
    Action,
    Change,
    Plan,
    PlanRefused,
    attribute_changes,
    value_text,
)
from bolide.admin.declared.document import BrokerState, Declared, Document
from bolide.admin.declared.fields import (
    ATTRIBUTES,
    READ_QUEUES,
    RULES,
    WRITE_QUEUES,
    Fields,
    Kind,
    default_fields,
)
from bolide.broker.metadata.topic_attributes import TOPIC_ATTRIBUTES, changed_attributes
from bolide.model.names import READ, WRITE
from bolide.protocol.refusals import InvalidParameter

_WITH_ACCESS = (Kind.USERS, Kind.ACCOUNTS)
_GRANTS = ("topicPerms", "groupPerms")
_SUPER = "Super"
_PERM = "perm"
_ORDER = "order"
_SHRINKS: Mapping[str, str] = {
    READ_QUEUES: "messages in the other queues are not read any more",
    WRITE_QUEUES: "nothing is sent to the other queues any more; ordered messages change queues",
}


def plan(
    document: Document,
    states: Sequence[BrokerState],
    *,
    prune: bool = False,
    own_name: str | None = None,
    environment: Mapping[str, str] | None = None,
    allow_lock_out: bool = False,
) -> Plan:
    """Compare a document with what the brokers have.

    Args:
        prune: delete objects that the sections of the document do not name.
        own_name: the user or account that applies the document; it is never deleted.
        environment: where references to secrets are looked up.
        allow_lock_out: whether `own_name`, or the last super user or administrator, may be
            disabled or lose what it may do; otherwise that is refused.

    Raises:
        PlanRefused: the document asks for something that cannot be done.
    """
    variables = {} if environment is None else environment
    work = _Planning(document, states, prune=prune, own=own_name, environment=variables)
    return work.run(allow_lock_out=allow_lock_out)


def divergences(
    states: Sequence[BrokerState], names: Mapping[Kind, Iterable[str]] | None = None
) -> list[str]:
    """Where brokers differ among each other, in a sentence for each object.

    Args:
        names: only these objects; by default all of them.
    """
    found: list[str] = []
    for kind in Kind:
        having = [each for each in states if kind in each.objects]
        known = sorted({name for each in having for name in each.objects[kind]})
        wanted = known if names is None else [name for name in known if name in names[kind]]
        found += [
            f"{kind.noun} {name} differs among brokers: {'; '.join(parts)}"
            for name in wanted
            if (parts := _divergence(kind, name, having))
        ]
    return found


def _divergence(kind: Kind, name: str, states: Sequence[BrokerState]) -> list[str]:
    having = [each for each in states if name in each.objects[kind]]
    lacking = [each.label for each in states if name not in each.objects[kind]]
    parts = [f"not at {', '.join(lacking)}"] if lacking else []
    for key in RULES[kind]:
        values: dict[str, list[str]] = {}
        for state in having:
            if key in state.objects[kind][name]:
                text = value_text(kind, key, state.objects[kind][name][key])
                values.setdefault(text, []).append(state.label)
        if len(values) > 1:
            places = (f"{text} at {', '.join(labels)}" for text, labels in values.items())
            parts.append(f"{key} is {' and '.join(places)}")
    return parts


class _Planning:
    """One comparison, and what it has found so far."""

    def __init__(
        self,
        document: Document,
        states: Sequence[BrokerState],
        *,
        prune: bool,
        own: str | None,
        environment: Mapping[str, str],
    ) -> None:
        self._document = document
        self._states = states
        self._prune = prune
        self._own = own
        self._environment = environment
        self._changes: list[Change] = []
        self._deletions: list[Change] = []
        self._warnings: dict[str, None] = {}
        self._problems: dict[str, None] = {}

    def run(self, *, allow_lock_out: bool) -> Plan:
        self._check_kinds()
        for declared in self._document.objects:
            self._check_brokers(declared)
            for state in self._states:
                if declared.kind in state.objects:
                    self._compare(declared, state)
        self._check_order()
        for kind in Kind:
            if self._prune and kind in self._document.kinds:
                self._find_undeclared(kind)
        is_locked_out = self._check_access(allowed=allow_lock_out)
        if self._problems:
            raise PlanRefused([*self._problems])
        names = {kind: set(self._document.of_kind(kind)) for kind in Kind}
        warnings = [*self._warnings, *divergences(self._states, names)]
        own = [each for each in self._changes if self._is_own(each)]
        others = [each for each in self._changes if not self._is_own(each)]
        # Users first lose what they may do with a topic, then the topic goes; who makes all these
        # changes may do so to the last.
        changes = (*others, *reversed(self._deletions), *own)
        return Plan(changes, tuple(warnings), is_locked_out)

    def _is_own(self, change: Change) -> bool:
        return change.kind.is_on_slaves and change.name == self._own

    def _check_access(self, *, allowed: bool) -> bool:
        """Returns whether who makes the changes loses what that needs."""
        is_locked_out = False
        for kind, state in ((kind, state) for kind in _WITH_ACCESS for state in self._states):
            before = state.objects.get(kind, {})
            mine = [each for each in self._changes if each.kind is kind]
            changed = {each.name: each.after for each in mine if each.broker == state.label}
            if own_loss(kind, before, changed, self._own):
                is_locked_out = True
            declared = self._document.of_kind(kind)
            for name, reason in access_losses(kind, before, changed, self._own):
                text = f"{kind.noun} {name} {reason} at {state.label}"
                if allowed:
                    self._warn(declared.get(name), text)
                else:
                    self._problem(declared.get(name), f"{text}; --allow-lock-out does it")
            if kind is Kind.USERS and gets_other_policies(before, changed, self._own):
                text = f"user {self._own} signs this command and gets other policies"
                self._warn(declared.get(self._own or ""), f"{text} at {state.label}")
        return is_locked_out

    def _check_kinds(self) -> None:
        for kind in Kind:
            if kind not in self._document.kinds:
                continue
            for state in self._states:
                if kind in state.missing and (state.is_master or kind.is_on_slaves):
                    self._problem(None, f"{state.label} has no {kind.value}: {state.missing[kind]}")

    def _check_brokers(self, declared: Declared) -> None:
        known = {each.name for each in self._states}
        for broker in (*(declared.only_on or ()), *declared.overrides):
            if broker not in known:
                names = ", ".join(sorted(known))
                self._problem(
                    declared, f"{declared} names the broker {broker}, the cluster has {names}"
                )

    def _compare(self, declared: Declared, state: BrokerState) -> None:
        kind, name = declared.kind, declared.name
        wanted = declared.at(state.name)
        before = state.objects[kind].get(name)
        if before is None and (reason := state.kept.get(kind, {}).get(name)):
            self._problem(declared, f"{declared} at {state.label}: {reason}")
            return
        if wanted is None:
            if before is not None and self._prune:
                self._delete(kind, name, state, everywhere=False)
            return
        wanted = self._supported(declared, state, wanted)
        if before is None:
            after = default_fields(kind, wanted, state.major)
        else:
            after = dict(before) | dict(wanted)
            if after == before:
                return
        self._check(declared, state, before, after)
        self._changes.append(
            Change(
                action=Action.CREATE if before is None else Action.CHANGE,
                kind=kind,
                name=name,
                broker=state.label,
                address=state.address,
                before=before or {},
                after=after,
                secret=self._secret(declared, state, is_new=before is None),
            )
        )

    def _supported(self, declared: Declared, state: BrokerState, wanted: Fields) -> Fields:
        """The fields that the broker has; the others must not say more than their default."""
        rules = RULES[declared.kind]
        for name, value in wanted.items():
            if rules[name].since > state.major and value != rules[name].default:
                self._problem(
                    declared,
                    f"{declared} has {name}, and {state.label} is compatible with RocketMQ"
                    f" {state.major}, which has none: leave it out, or use overrides or onlyOn",
                )
        return {name: each for name, each in wanted.items() if rules[name].since <= state.major}

    def _check(
        self, declared: Declared, state: BrokerState, before: Fields | None, after: Fields
    ) -> None:
        if declared.kind is Kind.ACCOUNTS and declared.name in state.secrets:
            self._check_grants(declared, state, before or {}, after)
        if declared.kind is not Kind.TOPICS:
            return
        old = (before or {}).get(ATTRIBUTES, {})
        if ATTRIBUTES in after and old != after[ATTRIBUTES]:
            self._check_attributes(declared, None if before is None else old, after[ATTRIBUTES])
        perm = after[_PERM]
        if (before is None or before[_PERM] != perm) and not perm & (READ | WRITE):
            self._warn(declared, f"{declared}: with perm {perm} nobody can send or consume")
        for name in QUEUES if before is not None else ():
            if before is not None and after[name] < before[name]:
                self._warn(
                    declared,
                    f"{declared}: {name} shrinks from {before[name]} to {after[name]}"
                    f" at {state.label}: {_SHRINKS[name]}",
                )
        if after[READ_QUEUES] < after[WRITE_QUEUES]:
            self._warn(
                declared,
                f"{declared}: fewer queues are read than written at {state.label}: nobody gets"
                f" what is sent to queues {after[READ_QUEUES]} to {after[WRITE_QUEUES] - 1}",
            )

    def _check_order(self) -> None:
        """Brokers order a topic as long as the NameServer has an order of it for any of them."""
        ordered: dict[str, set[str]] = {}
        for state in self._states:
            for name, fields in state.objects.get(Kind.TOPICS, {}).items():
                if fields[_ORDER]:
                    ordered.setdefault(name, set()).add(state.label)
        topics = [each for each in self._changes if each.kind is Kind.TOPICS]
        for each in topics:
            places = ordered.setdefault(each.name, set())
            places.add(each.broker) if each.after[_ORDER] else places.discard(each.broker)
        for each in topics:
            if not each.after[_ORDER] and (places := ordered[each.name]):
                self._warn(
                    self._document.of_kind(Kind.TOPICS).get(each.name),
                    f"topic {each.name}: order cannot be false at {each.broker} and true at"
                    f" {', '.join(sorted(places))}: it is that of the topic in the NameServer",
                )

    def _check_grants(
        self, declared: Declared, state: BrokerState, before: Fields, after: Fields
    ) -> None:
        """What RocketMQ's brokers refuse, which are those that tell secrets."""
        for name in _GRANTS:
            if before.get(name) and not after[name]:
                self._problem(
                    declared,
                    f"{declared}: the broker {state.label} of RocketMQ cannot empty {name}: deny"
                    " one, such as Orders=DENY, or delete the account first",
                )

    def _check_attributes(
        self, declared: Declared, old: Mapping[str, str] | None, new: Mapping[str, str]
    ) -> None:
        """What every broker refuses, such as another queue.type of a topic that exists."""
        changes = {
            name: value
            for name, value in attribute_changes(old or {}, new).items()
            if name[1:] in TOPIC_ATTRIBUTES
        }
        try:
            changed_attributes(old, changes)
        except InvalidParameter as exc:
            if "LITE" not in str(exc):  # RocketMQ's brokers take light topics
                self._problem(declared, f"{declared}: {exc}")

    def _secret(self, declared: Declared, state: BrokerState, *, is_new: bool) -> str | None:
        """The secret of a new user or account; of others only if RocketMQ wants it again."""
        if not declared.kind.secret:
            return None
        known = state.secrets.get(declared.name)
        if not is_new and (known or declared.kind is Kind.USERS):
            return known
        variable = referenced(declared.secret or "")
        value = self._environment.get(variable or "", "")
        if value.strip():
            return value
        if is_new:
            reason = (
                f"needs a {declared.kind.secret}: a reference such as ${{NAME}}"
                if variable is None
                else f"needs its {declared.kind.secret}: set {variable} in the environment"
            )
            self._problem(declared, f"the new {declared} {reason}")
        return None

    def _find_undeclared(self, kind: Kind) -> None:
        declared = self._document.of_kind(kind)
        for state in self._states:
            for name, fields in state.objects.get(kind, {}).items():
                if name in declared:
                    continue
                if reason := self._kept(kind, name, fields, state):
                    self._warnings[f"{kind.noun} {name} is not deleted: {reason}"] = None
                else:
                    self._delete(kind, name, state, everywhere=True)
        known = {name for state in self._states for name in state.objects.get(kind, {})}
        if known.isdisjoint(declared) and any(each.kind is kind for each in self._deletions):
            text = f"the file declares none of the {kind} that exist"
            self._warn(None, f"{text}: --prune deletes all of them, except what it never deletes")

    def _kept(self, kind: Kind, name: str, fields: Fields, state: BrokerState) -> str | None:
        if kind.is_on_slaves and name == self._own:
            return "this command signs with it"
        if kind is Kind.USERS and fields.get("type") == _SUPER:
            return "it is a super user; deleteUser deletes it"
        if kind is Kind.ACCOUNTS and fields.get("admin"):
            return "it is an administrator; deleteAclConfig deletes it"
        return state.kept.get(kind, {}).get(name)

    def _delete(self, kind: Kind, name: str, state: BrokerState, *, everywhere: bool) -> None:
        self._deletions.append(
            Change(
                action=Action.DELETE,
                kind=kind,
                name=name,
                broker=state.label,
                address=state.address,
                before=state.objects[kind][name],
                is_gone_everywhere=everywhere,
            )
        )

    def _problem(self, declared: Declared | None, text: str) -> None:
        self._problems[self._at(declared) + text] = None

    def _warn(self, declared: Declared | None, text: str) -> None:
        self._warnings[self._at(declared) + text] = None

    def _at(self, declared: Declared | None) -> str:
        line = f":{declared.line}" if declared is not None and declared.line else ""
        return f"{self._document.file}{line}: "
