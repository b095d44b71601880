from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.hostile import OBJECTS
from tests.fakes.manifests import BORN, crashing, deployment, obj, pod
from worker.domain.cluster.rendering.compact import NoSuchPath, at_path, render_object, render_value
from worker.domain.cluster.rendering.prune import last_change, prune
from worker.domain.values.tokens import estimate_tokens

PEM = "-----BEGIN PRIVATE KEY-----\nMIIBVgIBADANBgkqhkiG9w0BAQEFAASC\nFAKEFAKEFAKEFAKEFAKE\n-----END PRIVATE KEY-----\n"


def shown(manifest, **options):
    return json.loads(render_object(manifest, 4000, **options).body)


def test_an_object_is_one_line_without_bookkeeping_and_defaults():
    manifest = pod(
        "api-0",
        labels={"app": "api"},
        annotations={"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "kept"},
        spec={
            "containers": [
                {
                    "name": "app",
                    "image": "shop/app:1",
                    "terminationMessagePath": "/dev/termination-log",
                    "volumeMounts": [
                        {"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "name": "t"}
                    ],
                    "resources": {},
                }
            ],
            "restartPolicy": "Always",
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "tolerationSeconds": 300}],
            "volumes": [{"name": "kube-api-access-x", "projected": {"sources": [{}]}}],
        },
    )
    body = render_object(manifest, 4000).body
    assert "\n" not in body
    assert {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "api-0",
            "namespace": "shop",
            "creationTimestamp": BORN,
            "labels": {"app": "api"},
            "annotations": {"note": "kept"},
        },
        "spec": {"containers": [{"name": "app", "image": "shop/app:1", "resources": {}}]},
        "status": json.loads(json.dumps(manifest["status"])),
    } == json.loads(body)


def test_a_changed_default_is_shown():
    container = {
        "name": "app",
        "imagePullPolicy": "Always",
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    manifest = pod(
        "api-0", spec={"containers": [container], "restartPolicy": "Never", "tolerations": [{"key": "gpu"}]}
    )
    expected = {"containers": [container], "restartPolicy": "Never", "tolerations": [{"key": "gpu"}]}
    assert expected == shown(manifest)["spec"]


def test_owner_references_keep_what_names_the_owner():
    owner = deployment("api")
    found = shown(obj("ReplicaSet", "api-1", api_version="apps/v1", owner=owner))["metadata"][
        "ownerReferences"
    ]
    assert [{"kind": "Deployment", "name": "api", "controller": True, "apiVersion": "apps/v1"}] == found


def test_field_ownership_becomes_the_last_change():
    fields = [
        {"manager": "helm", "time": "2026-06-01T00:00:00Z", "fieldsV1": {"f:data": {"f:a": {}}}},
        {
            "manager": "kubectl-patch",
            "time": "2026-06-04T19:19:00Z",
            "fieldsV1": {"f:data": {"f:config.yaml": {}}},
        },
        {"manager": "kubelet", "time": "2026-06-05T00:00:00Z", "subresource": "status"},
    ]
    manifest = obj("ConfigMap", "settings", data={"config.yaml": "x"}, managedFields=fields)
    expected = {"by": "kubectl-patch", "at": "2026-06-04T19:19:00Z", "fields": "data.config.yaml"}
    assert expected == last_change(manifest)
    assert expected == shown(manifest)["metadata"]["lastChange"]


def test_a_creation_is_no_change():
    managed = [{"manager": "helm", "time": BORN, "fieldsV1": {"f:data": {}}}]
    manifest = obj("ConfigMap", "settings", managedFields=managed)
    assert last_change(manifest) == {}
    assert "lastChange" not in shown(manifest)["metadata"]


@pytest.mark.parametrize(("observed", "told"), [(4, False), (3, True)])
def test_a_generation_is_told_while_the_controller_has_not_seen_it(observed, told):
    manifest = deployment("api", status={"observedGeneration": observed})
    manifest["metadata"]["generation"] = 4
    found = shown(manifest)
    assert ("generation" in found["metadata"], "observedGeneration" in found["status"]) == (told, told)


def test_a_message_that_only_repeats_its_reason_is_left_out():
    repeats = {
        "type": "Available",
        "status": "False",
        "reason": "MinimumReplicasUnavailable",
        "message": "too few",
    }
    tells = {
        "type": "ReplicaFailure",
        "status": "True",
        "reason": "FailedCreate",
        "message": "exceeded quota",
    }
    found = shown(deployment("api", status={"conditions": [repeats, tells]}))["status"]["conditions"]
    assert ["message" in condition for condition in found] == [False, True]


@pytest.mark.parametrize(("running", "told"), [("shop/app:1", False), ("shop/app:2", True)])
def test_the_image_of_a_container_is_told_where_another_one_runs(running, told):
    waiting = {
        "reason": "CrashLoopBackOff",
        "message": "back-off 5m0s restarting failed container=app pod=api-0_shop",
    }
    status = {"containerStatuses": [{"name": "app", "image": running, "state": {"waiting": waiting}}]}
    spec = {"containers": [{"name": "app", "image": "shop/app:1"}]}
    [container] = shown(pod("api-0", spec=spec, status=status))["status"]["containerStatuses"]
    assert ("image" in container) == told
    assert container["state"]["waiting"]["message"] == "back-off 5m0s restarting failed container=app"


def test_environment_values_that_may_be_secrets_are_hidden():
    env = [
        {"name": "DB_HOST", "value": "postgres:5432"},
        {"name": "DB_CONN", "value": "host=db password=word"},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "db", "key": "password"}}},
    ]
    found = shown(pod("api-0", spec={"containers": [{"name": "app", "env": env}]}))["spec"]["containers"][0][
        "env"
    ]
    assert [env[0], {"name": "DB_CONN", "value": "[REDACTED:env]"}, env[2]] == found


def test_config_map_values_are_shown_but_not_under_secret_names():
    manifest = obj("ConfigMap", "c", data={"max": "15", "DB_PASSWORD": "hunter2"}, binaryData={"k": "AAAA"})
    assert {"max": "15", "DB_PASSWORD": "[REDACTED:value]"} == shown(manifest)["data"]
    assert {"k": "[4 characters of base64]"} == shown(manifest)["binaryData"]


def test_values_of_a_secret_are_never_shown():
    manifest = obj("Secret", "db", data={"password": "aHVudGVyMg=="}, stringData={"user": "app"})
    assert "aHVudGVyMg" not in render_object(manifest, 4000).body
    assert "app" not in json.dumps(shown(manifest)["stringData"])


def test_a_key_over_several_lines_is_redacted_before_it_is_escaped():
    body = render_object(obj("ConfigMap", "c", data={"tls.pem": PEM}), 4000).body
    assert "FAKEFAKE" not in body


def test_half_a_key_cannot_be_asked_for():
    manifest = obj("ConfigMap", "c", data={"tls.pem": PEM})
    body = render_object(manifest, 4000, path="data.tls.pem[30:90]").body
    assert "MIIB" not in body


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("kind", "Pod"),
        ("spec.containers[0].image", "shop/app:1"),
        ("spec.containers.app.image", "shop/app:1"),
        ("spec.containers[name=app].image", "shop/app:1"),
        ("$.spec.nodeName", "node-1"),
        ("spec.containers.image", [{"name": "app", "image": "shop/app:1"}]),
        ("spec.nodeName[0:4]", "node"),
        ("status.conditions.Ready.status", "False"),
    ],
)
def test_a_part_is_found_by_its_path(path, expected):
    assert expected == at_path(prune(pod("api-0", status=crashing())), path)


def test_keys_with_dots_are_found_with_and_without_quotes():
    manifest = {"data": {"app.yaml": "x", "app": {"yaml": "y"}}}
    assert "x" == at_path(manifest, "data.app.yaml")
    assert "x" == at_path(manifest, "data['app.yaml']")


@pytest.mark.parametrize(
    "path", ["spec.container", "spec.containers[3]", "spec.nodeName.x", "spec.containers.²", "]]", "a" * 600]
)
def test_a_wrong_path_says_what_there_is(path):
    with pytest.raises(NoSuchPath) as raised:
        at_path(prune(pod("api-0")), path)
    assert str(raised.value)


def test_a_long_object_loses_what_matters_least_and_says_so():
    manifest = pod(
        "api-0", status=crashing("OOMKilled", 137), annotations={f"note-{i}": "word " * 30 for i in range(9)}
    )
    rendered = render_object(manifest, 250)
    assert "annotations" in rendered.cut
    state = json.loads(rendered.body)["status"]["containerStatuses"][0]
    assert 137 == state["lastState"]["terminated"]["exitCode"]


def test_a_long_text_keeps_head_and_tail_and_names_the_path_of_the_rest():
    manifest = obj("ConfigMap", "c", data={"app.yaml": "first\n" + "line\n" * 4000 + "last"})
    rendered = render_object(manifest, 600)
    value = json.loads(rendered.body)["data"]["app.yaml"]
    assert value.startswith("first\n")
    assert value.endswith("last")
    assert "path=data['app.yaml'][" in value
    assert "path=" in rendered.cut


def test_results_that_cannot_be_asked_for_by_path_name_none():
    rendered = render_value({"workflows": ["word " * 4000]}, 200)
    assert "path=" not in rendered.body + rendered.cut


def test_deep_nesting_is_bounded():
    value = {}
    for _ in range(20_000):
        value = {"a": value}
    assert "[nested too deeply]" in render_object({"kind": "X", "spec": value}, 4000).body


@given(OBJECTS, st.integers(min_value=30, max_value=500))
def test_any_json_object_is_rendered_within_its_budget(manifest, budget):
    rendered = render_object(manifest, budget)
    assert estimate_tokens(rendered.body) <= budget
    assert "\n" not in rendered.body


@given(OBJECTS)
def test_what_is_not_cut_is_json(manifest):
    rendered = render_object(manifest, 100_000)
    assert not rendered.cut
    assert isinstance(json.loads(rendered.body), dict)


def test_an_object_of_a_megabyte_is_shrunk_to_its_budget():
    huge = obj("ConfigMap", "c", data={f"key-{i}": "word " * 4_000 for i in range(50)})
    found = render_object(huge, 500)
    assert estimate_tokens(found.body) <= 500
    assert "missing" in found.cut


def test_a_text_with_line_ends_is_bounded_before_it_is_redacted():
    text = "line\n" * 10_000
    assert "characters cut" in render_object(obj("ConfigMap", "c", data={"a": text}), 40_000).body


def test_a_long_annotation_is_cut():
    noted = prune(obj("Pod", "p", annotations={"note": "x" * 500}))
    assert noted["metadata"]["annotations"]["note"].endswith("…[100 characters cut]")


def test_data_that_is_no_object_is_left_out():
    assert None is prune({"kind": "ConfigMap", "metadata": {}, "data": ["a"]})["data"]


@pytest.mark.parametrize(("deleted", "shown"), [(True, True), (False, False)])
def test_finalizers_of_a_deleted_object_are_not_spared(deleted: bool, shown: bool) -> None:
    found = obj(
        "PersistentVolumeClaim", "data", annotations={"note": "x" * 390}, spec={"accessModes": ["a" * 60] * 9}
    )
    found["metadata"]["finalizers"] = ["kubernetes.io/pvc-protection"]
    if deleted:
        found["metadata"]["deletionTimestamp"] = "2026-06-04T15:00:00Z"
    assert shown == ("pvc-protection" in render_object(found, 260).body)
