"""What mqadmin printed of one cluster, compared with what it printed of the other."""

import difflib
import re
from collections.abc import Iterable, Mapping

from tests.interop.mqadmin_cases import APACHE, OURS, Case, Compare

MASKS = [
    (r"^\tat .*|^\t\.\.\. .*|^For more information.*|^See http.*", ""),
    (r"/127\.0\.0\.1:\d+|127\.0\.0\.1:\d+", "<address>"),
    (r"\d+\.\d+\.\d+\.\d+@[\w#]+(-\w+)?", "<client>"),
    (rf"-({OURS}|{APACHE})\b", ""),  # of the names of client instances
    (r"\b[0-9A-F]{32,}(?=\b|SendResult)", "<id>"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d([,:]\d{3})?|\b20\d{15}\b", "<time>"),
    (r"\b\d+\.\d+\b", "<rate>"),
    (r"\b1\d{12}\b", "<ms>"),
    # What the threads of our client do at the moment.
    (r'^(thread|task) .*|^ *File "[^\n]*(\n {4,}[^\n]*)*', ""),
    # Apache's broker keeps some clients of the mqadmin before for a while.
    (r".*\((mqadmin-\d+|CLIENT_INNER_PRODUCER)\).*|^(TOOLS_CONSUMER|lookers) .*", ""),
    (r'^.*"JAVA%.*', ""),
    (r"\bV\d_\d_\d\w*|version=\d+", "<version>"),
    (r"\S+/([\w-]+-<ms>\.(after|before))", r"<file> \1"),
    (r"(PRODUCE-|Task-|Thread-)\d+", r"\1<number>"),
    (r"\b(rt=)?\d+ms\b|spentTimeMills=\d+", "<period>"),
    (r".*(rmq_sys_bolide_|BOLIDE_PIPELINE_|RMQ_SYS_ROCKSDB_|rmq_sys_SYNC_BROKER_MEMBER_).*", ""),
    (r"(<acl_file>) +\d+", r"\1 <changes>"),
    (r"( OK, )\d+$", r"\1<topics>"),
    (r"(commitLogOffset=|MaxOffset\s+|@<id>@)\d+", r"\1<place>"),
    (r'("counter":)\d+', r"\1<changes>"),
    (r"(PlainAccessConfig@)[0-9a-f]+", r"\1<hash>"),
    (r" {2,}", " "),
    (r",$", ""),  # of JSON, whose order is free
    (r" BROKER: \S+$", ""),
]


def mask(text: str, facts: Mapping[str, str]) -> str:
    """The lines in order, without what differs from run to run."""
    for name in ("broker", "slave", "controller", "namesrv", "files", "compaction_log", "acl_file"):
        if name in facts:
            text = text.replace(facts[name], f"<{name}>")
    for pattern, put in MASKS:
        text = re.sub(pattern, put, text, flags=re.MULTILINE)
    text = re.sub(r"(?<=\{)\w+=[^{}]*(?=\})", _in_order, text)
    return "\n".join(sorted(filter(None, (line.rstrip() for line in text.splitlines()))))


def _in_order(properties: re.Match[str]) -> str:
    """Java's maps have an order of their own."""
    return ", ".join(sorted(properties[0].split(", ")))


def difference(case: Case, ours: str, apache: str) -> str:
    """The lines by which two masked outputs differ; empty if the case takes them for the same."""
    if case.compare is Compare.KEYS:
        own, theirs = (_pairs(text, case.values) for text in (ours, apache))
        missing = [f"-{key}" for key in sorted(keys(apache) - keys(ours) - {*case.lacks})]
        missing += [f"+{key}" for key in case.lacks if key in keys(ours)]
        return "\n".join(missing + ([] if own == theirs else [f"-{theirs}", f"+{own}"]))
    texts = [_without_reasons(text) for text in (apache, ours)]
    if case.compare is Compare.FIGURES:
        texts = [re.sub(r"\d+|<rate>", "#", text) for text in texts]
    theirs, own = (text.splitlines() for text in texts)
    lines = [
        line for line in difflib.unified_diff(sorted(theirs), sorted(own), lineterm="", n=0)
        if not line.startswith(("---", "+++", "@@"))
    ]  # fmt: skip
    return "\n".join(lines + refusals_that_differ(ours, apache))


KEY = re.compile(r'^(?:<broker> )?\s*"?([\w.]+?)(?:_/\S+)?"?\s*[:=]', re.MULTILINE)


def keys(text: str) -> set[str]:
    """Names of settings, figures or JSON fields."""
    return {re.sub(r"^is([A-Z])", _lowered, key) for key in KEY.findall(text)}


def _pairs(text: str, names: Iterable[str]) -> list[str]:
    """The lines of some names."""
    return [line for line in text.splitlines() if set(KEY.findall(line)) & {*names}]


def _lowered(first: re.Match[str]) -> str:
    """Of some settings 5.x shows another name than the one by which it reads them."""
    return first[1].lower()


REFUSAL = re.compile(r"CODE: (\d+) +DESC: (.*)")


def refusals_that_differ(ours: str, apache: str) -> list[str]:
    """Codes and reasons; a reason of ours may go on where Apache's ends."""
    own, theirs = (sorted(REFUSAL.findall(text)) for text in (ours, apache))
    if len(own) == len(theirs) and all(_agree(*both) for both in zip(own, theirs, strict=True)):
        return []
    return [*(f"-{each}" for each in theirs), *(f"+{each}" for each in own)]


def _agree(own: Iterable[str], theirs: Iterable[str]) -> bool:
    (own_code, own_reason), (code, reason) = own, theirs
    return own_code == code and own_reason.startswith(reason.rstrip(". "))


def _without_reasons(text: str) -> str:
    return REFUSAL.sub("<refusal>", text)
