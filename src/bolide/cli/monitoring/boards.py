"""Grafana's document of the dashboard, and the alert rules of Prometheus."""

from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any, Final

import yaml

_HERE = files(__package__)
_COLUMNS, _HEIGHT, _STAT_HEIGHT, _TABLE_HEIGHT = 24, 8, 4, 10
_WIDTHS = {"graph": 8, "stat": 4, "table": 24}
_TYPES = {"graph": "timeseries", "stat": "stat", "table": "table"}
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

SHORT: Final[Mapping[str, str]] = {
    "@of": 'cluster=~"$cluster",node_id=~"$broker"',
    "@group": 'consumer_group=~"$group"',
    "@topic": 'topic=~"$topic"',
    "@user": 'is_system="false"',
    "@sends": 'request_code=~"send_message.*|send_batch_message"',
    "@reads": 'request_code=~"pull_message|lite_pull_message|pop_message",'
    'is_long_polling="false",response_code="success"',
    "@refused": 'response_code!~"success|pull_not_found|pull_retry_immediately|polling_timeout"',
}
"""What queries in dashboard.yml abbreviate."""


def alert_rules(job: str | None = None) -> str:
    """The alert rules as Prometheus reads them.

    Args:
        job: the name that the scrape configuration gives to the servers of the cluster, printable.
    """
    # Expressions with a job are block scalars: whatever the name is, no part of it is YAML.
    text = _HERE.joinpath("alerts.yml").read_text(encoding="utf-8")
    return text if job is None else text.replace('job="bolide"', f"job={_quoted(job)}")


def dashboard(job: str = "bolide") -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    given = yaml.safe_load(_HERE.joinpath("dashboard.yml").read_text(encoding="utf-8"))
    return {
        "title": given["title"],
        "uid": given["uid"],
        "tags": given["tags"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": []},
        "templating": {"list": [_datasource(), *map(_variable, given["variables"])]},
        "panels": list(_panels(given["rows"], job)),
    }


def _datasource() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "current": {},
        "hide": 0,
    }


def _variable(given: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": given["name"],
        "label": given["label"],
        "type": "query",
        "datasource": _DATASOURCE,
        "query": {"query": given["query"], "refId": given["name"]},
        "definition": given["query"],
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
        "sort": 1,
    }


def _panels(rows: list[dict[str, Any]], job: str) -> Iterator[dict[str, Any]]:
    """Rows and their panels, placed from left to right and from top to bottom."""
    number = y = 0
    for row in rows:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": row["title"],
            "collapsed": False,
            "gridPos": {"h": 1, "w": _COLUMNS, "x": 0, "y": y},
            "panels": [],
        }
        y += 1
        x = height = 0
        for given in row["panels"]:
            number += 1
            kind = given.get("kind", "graph")
            width = given.get("width", _WIDTHS[kind])
            if x + width > _COLUMNS:
                x, y, height = 0, y + height, 0
            own = {"stat": _STAT_HEIGHT, "table": _TABLE_HEIGHT}.get(kind, _HEIGHT)
            yield _panel(number, kind, given, job) | {
                "gridPos": {"h": own, "w": width, "x": x, "y": y}
            }
            x, height = x + width, max(height, own)
        y += height


def _panel(number: int, kind: str, given: Mapping[str, Any], job: str) -> dict[str, Any]:
    return {
        "id": number,
        "type": _TYPES[kind],
        "title": given["title"],
        "description": given.get("help", ""),
        "datasource": _DATASOURCE,
        "targets": [
            _target(place, kind, query, job) for place, query in enumerate(given["queries"])
        ],
        "fieldConfig": {"defaults": _defaults(kind, given), "overrides": []},
        "options": _OPTIONS[kind],
    } | (_columns(given["queries"]) if kind == "table" else {})


def _target(place: int, kind: str, query: Mapping[str, str], job: str) -> dict[str, Any]:
    return {
        "refId": chr(ord("A") + place),
        "datasource": _DATASOURCE,
        "expr": written_out(query["expr"], job),
        "legendFormat": query.get("legend", ""),
        "instant": kind == "table",
        "range": kind != "table",
        "format": "table" if kind == "table" else "time_series",
    }


def written_out(query: str, job: str = "bolide") -> str:
    """A query of dashboard.yml without abbreviations."""
    for short, selector in SHORT.items():
        query = query.replace(short, selector)
    return query.replace("@job", f"job={_quoted(job)}")


def _defaults(kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    limit = given.get("limit")
    if limit is not None:
        steps.append({"color": "red", "value": limit})
    defaults: dict[str, Any] = {
        "unit": given.get("unit", "short"),
        "min": 0,
        "thresholds": {"mode": "absolute", "steps": steps},
    }
    if kind == "graph":
        style = "off" if limit is None else "line"
        defaults["custom"] = {
            "drawStyle": "line",
            "fillOpacity": 10,
            "lineWidth": 1,
            "showPoints": "never",
            "spanNulls": False,
            "thresholdsStyle": {"mode": style},
        }
    return defaults


_OPTIONS: Final[Mapping[str, dict[str, Any]]] = {
    "graph": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {
        "colorMode": "value",
        "graphMode": "area",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "textMode": "auto",
    },
    "table": {"showHeader": True, "cellHeight": "sm"},
}


def _columns(queries: list[Mapping[str, str]]) -> dict[str, Any]:
    """One row for each group and topic, with a column for each query."""
    names = {f"Value #{chr(ord('A') + place)}": q["legend"] for place, q in enumerate(queries)}
    return {
        "transformations": [
            {"id": "merge", "options": {}},
            {
                "id": "organize",
                "options": {"excludeByName": {"Time": True}, "renameByName": names},
            },
            {"id": "sortBy", "options": {"sort": [{"field": queries[0]["legend"], "desc": True}]}},
        ]
    }


def _quoted(text: str) -> str:
    """A value of a label in a query."""
    escaped = text.replace("\\", r"\\").replace('"', r"\"")
    return f'"{escaped}"'
