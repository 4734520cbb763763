"""metricsLabel: names that Prometheus reads, and none that a metric has already."""

import ast
from pathlib import Path

import pytest

import bolide
from bolide.broker.settings.config import BrokerConfig, check, load_settings
from bolide.config import ConfigCell
from bolide.controller.config import ControllerConfig
from bolide.errors import ConfigError
from bolide.metrics.exposition import render
from bolide.metrics.families import Family, Kind, Scope
from bolide.metrics.settings import TAKEN_LABELS, labels_of
from tests.support.metrics import Scraped

SOURCES = (
    "broker/metrics/families.py",
    "broker/metrics/state.py",
    "metrics/requests.py",
    "controller/metrics.py",
    "namesrv/metrics.py",
)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("zone:a,topic:zz", "metricsLabel='topic': topic is a label of metrics already"),
        ("node-id:1", "metricsLabel='node-id': node_id is a label of metrics already"),
        ("le:1", "le is a label of metrics already"),
        ("__name__:x", "__name__ is reserved"),
        ("-_x:1", "metricsLabel='-_x': __x is reserved"),
        ("my-zone:a,my_zone:b", "metricsLabel='my_zone': for Prometheus .* same name as 'my-zone'"),
    ],
)
def test_a_label_that_cannot_be_is_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        load_settings({"metricsLabel": text})
    with pytest.raises(ConfigError, match=why):  # at run time
        ConfigCell(BrokerConfig(), check).changes({"metricsLabel": text})
    with pytest.raises(ConfigError, match=why):
        labels_of(ControllerConfig(metrics_label=text))


def test_other_characters_become_underscores_as_in_rocketmq() -> None:
    found = labels_of(BrokerConfig(metrics_label="my-zone:a,k8s.pod:b,7th:c,ünit:d"))
    scope = Scope(tuple(found.items()))
    assert dict(scope.labels)["k8s.pod"] == "b"  # OpenTelemetry takes any name
    family = Family("g", Kind.GAUGE, "x", [((), 1)], scope=scope)
    text = b"".join(render([family], lambda: None)).decode()
    assert Scraped(text).one("g", my_zone="a", k8s_pod="b", _7th="c", _nit="d") == 1


def test_the_labels_of_all_metrics_are_known() -> None:
    found = {name for path in SOURCES for name in label_names(path)}
    assert {"topic", "put_status", "storage_type", "peer_id", "result"} <= found
    assert found <= TAKEN_LABELS


def label_names(path: str) -> set[str]:
    """Names of labels in a source: in what is called `labels…` or `_STORAGE`."""
    tree = ast.parse(Path(bolide.__path__[0], path).read_text(encoding="utf-8"))
    values: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            values += [each.value for each in node.keywords if each.arg == "labels"]
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name.startswith("labels") or name == "_STORAGE":
                values.append(node.value)
    found: set[str] = set()
    for value in values:
        for each in ast.walk(value):
            if isinstance(each, ast.Dict):
                found |= {str(ast.literal_eval(key)) for key in each.keys if key is not None}
            elif isinstance(each, ast.Tuple) and all(
                isinstance(e, ast.Constant) for e in each.elts
            ):
                found |= {str(ast.literal_eval(part)) for part in each.elts}
    return found - {"disk", "local"}  # values of _STORAGE
