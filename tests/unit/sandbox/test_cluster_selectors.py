from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.sandbox.cluster_failure import ApiFailure
from worker.sandbox.cluster_selectors import field_test, label_test

LABELS = {"app": "api", "tier": "web", "replicas": "3", "example.com/part": "x", "empty": ""}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("", True),
        ("app", True),
        ("!app", False),
        ("! gone", True),
        ("app=api", True),
        ("app==api", True),
        (" app = api ", True),
        ("app=other", False),
        ("app!=api", False),
        ("gone!=x", True),
        ("app in (api)", True),
        ("app in(api,other)", True),
        ("app in (other)", False),
        ("app notin (other)", True),
        ("app notin (api, other)", False),
        ("gone notin (x)", True),
        ("gone in (x)", False),
        ("replicas > 2", True),
        ("replicas>3", False),
        ("replicas<4", True),
        ("app>1", False),
        ("gone<1", False),
        ("app=api,tier=web", True),
        ("app=api,tier!=web", False),
        ("app in (api,b),tier notin (x,y),!gone", True),
        ("example.com/part=x", True),
        ("empty=", True),
        ("empty in (,x)", True),
        ("app=", False),
        ("in", False),
    ],
)
def test_labels(selector: str, expected: bool) -> None:
    assert expected == label_test(selector)(LABELS)


@pytest.mark.parametrize(
    "selector",
    [
        "app=api,",
        ",app",
        "app api",
        "app in api",
        "app in (api",
        "app in (a b)",
        "app => 1",
        "app > x",
        "a=b=c",
        "-app=x",
        "app=x y",
        "/app=x",
        "!",
        "!!app",
        "app=ä",
        "a" * 5000,
    ],
)
def test_labels_that_cannot_be_read(selector: str) -> None:
    with pytest.raises(ApiFailure) as caught:
        label_test(selector)
    assert caught.value.code == 400


names = st.from_regex(r"[a-z]([a-z.-]{0,8}[a-z])?", fullmatch=True)
labels = st.dictionaries(names, names, max_size=3)


@given(labels, names, names)
def test_a_requirement_and_its_negation_never_agree(
    given_labels: dict[str, str], key: str, value: str
) -> None:
    for positive, negative in (("{k}={v}", "{k}!={v}"), ("{k} in ({v})", "{k} notin ({v})"), ("{k}", "!{k}")):
        wanted = label_test(positive.format(k=key, v=value))(given_labels)
        assert wanted != label_test(negative.format(k=key, v=value))(given_labels)


@given(labels)
def test_all_labels_of_an_object_select_it(given_labels: dict[str, str]) -> None:
    selector = ",".join(f"{key}={value}" for key, value in given_labels.items())
    assert label_test(selector)(given_labels)


@given(st.text(alphabet="ab=!<>(), \\\nin.", max_size=40))
def test_any_text_is_read_or_refused(selector: str) -> None:
    with suppress(ApiFailure):
        label_test(selector)({"a": "b"})
    with suppress(ApiFailure):
        field_test(selector, "gizmos.example.com", selectable=("a.b",))({"a": {"b": 1}})


POD: dict[str, Any] = {
    "metadata": {"name": "api-0", "namespace": "shop"},
    "spec": {"nodeName": "worker-1"},
    "status": {"phase": "Pending"},
}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("", True),
        ("metadata.name=api-0", True),
        ("metadata.name==api-0,metadata.namespace=shop", True),
        ("status.phase!=Running", True),
        ("status.phase=Running", False),
        ("status.phase!=Running,spec.nodeName=worker-2", False),
        ("spec.hostNetwork=false", True),
        ("status.podIP=", True),
        ("status.podIPs=", True),
        ("spec.host=worker-1", True),
        (r"metadata.name=api\-0", True),
    ],
)
def test_fields(selector: str, expected: bool) -> None:
    assert expected == field_test(selector, "pods")(POD)


@pytest.mark.parametrize("selector", ["metadata.name", "=x", "metadata.name>1", "spec.containers=x"])
def test_fields_that_cannot_be_read(selector: str) -> None:
    with pytest.raises(ApiFailure) as caught:
        field_test(selector, "pods")
    assert caught.value.code == 400


@pytest.mark.parametrize(
    ("resource", "selector"),
    [
        ("events", "involvedObject.kind=Pod,reason=BackOff,type=Warning,source=kubelet"),
        ("events.events.k8s.io", "regarding.kind=Pod,reason=BackOff,type=Warning"),
        ("nodes", "spec.unschedulable=true"),
        ("jobs.batch", "status.successful=0"),
        ("gizmos.example.com", "spec.anything.at.all=yes"),
    ],
)
def test_fields_by_resource(resource: str, selector: str) -> None:
    manifest = {
        "involvedObject": {"kind": "Pod"},
        "regarding": {"kind": "Pod"},
        "reason": "BackOff",
        "source": {"component": "kubelet"},
        "spec": {"unschedulable": True, "anything": {"at": {"all": "yes"}}},
        "type": "Warning",
    }
    assert field_test(selector, resource, selectable=("spec.anything.at.all",))(manifest)


@pytest.mark.parametrize(
    ("resource", "namespaced", "selector", "message"),
    [
        ("pods", True, "spec.image=x", "field label not supported: spec.image"),
        ("nodes", False, "metadata.namespace=shop", "field label not supported: metadata.namespace"),
        (
            "deployments.apps",
            True,
            "spec.replicas=1",
            '"spec.replicas" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
        (
            "gizmos.example.com",
            True,
            "spec.size=1",
            '"spec.size" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
    ],
)
def test_fields_that_the_server_does_not_offer(
    resource: str, namespaced: bool, selector: str, message: str
) -> None:
    with pytest.raises(ApiFailure) as caught:
        field_test(selector, resource, namespaced=namespaced)
    assert (caught.value.code, caught.value.message) == (400, message)
