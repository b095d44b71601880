"""Alerts, dashboard and autoscaling ask for what there is, and an on-call person finds what to do."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest
import yaml

from schemas.subjects import Lane, Subjects
from tests.contract.test_deploy import DEPLOY
from tests.contract.test_operations_page import served, table_names

SUFFIXES = ("", "_bucket", "_sum", "_count")
GROUPS = yaml.safe_load((DEPLOY / "monitoring" / "rules.yaml").read_text())["spec"]["groups"]
ALERTS = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}
DASHBOARD = json.loads((DEPLOY / "monitoring" / "dashboard.json").read_text())
QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
SCALING = yaml.safe_load((DEPLOY / "autoscaling" / "scaledobject.yaml").read_text())["spec"]


@pytest.mark.parametrize("expression", [*(rule["expr"] for rule in ALERTS.values()), *QUERIES])
def test_an_expression_asks_for_metrics_and_labels_that_there_are(expression):
    known = {name + suffix: labels for name, labels in served().items() for suffix in SUFFIXES}
    asked = set(re.findall(r"\brca_\w+", expression))
    assert asked <= set(known)
    grouped = {label for by in re.findall(r"by \(([^)]*)\)", expression) for label in by.split(", ")} - {"le"}
    assert grouped <= {label for name in asked for label in known[name]}
    assert asked or "process_" in expression


def test_every_alert_says_what_to_do_and_how_urgent_it_is():
    assert set(ALERTS) == table_names("Alerts")
    assert {"critical", "warning"} == {rule["labels"]["severity"] for rule in ALERTS.values()}
    assert all(["summary"] == list(rule["annotations"]) for rule in ALERTS.values())
    assert all(rule["annotations"]["summary"] for rule in ALERTS.values())


def test_the_panels_do_not_overlap_and_say_what_they_show():
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in DASHBOARD["panels"]]
    assert len(places) == len(set(places))
    assert all(panel["title"] and panel["description"] for panel in DASHBOARD["panels"])


def test_every_lane_makes_workers():
    assert [str(lane) for lane in Lane] == [each["metadata"]["consumer"] for each in SCALING["triggers"]]
    assert {Subjects("rca").requests_stream} == {each["metadata"]["stream"] for each in SCALING["triggers"]}


@pytest.mark.process
@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
@pytest.mark.parametrize("base", ["", "ha"])
def test_kustomize_builds_everything_together(tmp_path, base):
    # Kustomize takes no absolute paths; its root may lie anywhere.
    up = "/".join([".."] * len(tmp_path.resolve().parts[1:]))
    place = f"{up}{DEPLOY.resolve()}"
    components = [f"{place}/monitoring", f"{place}/autoscaling"]
    (tmp_path / "kustomization.yaml").write_text(
        yaml.safe_dump({"resources": [f"{place}/{base}"], "components": components})
    )
    built = subprocess.run(
        ["kubectl", "kustomize", str(tmp_path)],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert 0 == built.returncode, built.stderr
    made = {(m["kind"], m["metadata"]["name"]): m for m in yaml.safe_load_all(built.stdout)}
    assert "replicas" not in made["Deployment", "rca-worker"]["spec"]
    assert 8222 in [port["port"] for port in made["Service", "nats"]["spec"]["ports"]]
    assert {
        ("ScaledObject", "rca-worker"),
        ("PrometheusRule", "rca-worker"),
        ("ConfigMap", "rca-dashboard"),
    } <= set(made)
