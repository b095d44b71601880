"""From the labels of an alert to a request: which object, how urgent, and whether it is one of a storm."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.incident import request_digest
from schemas.taxonomy import RequestKind
from worker.domain.alerts.request import (
    address_of,
    alert_id,
    is_incident,
    request_of,
    resource_of,
    storm_request,
)
from worker.domain.alerts.storm import KEPT, Decision, Storm, StormRule, Stormwatch
from worker.domain.alerts.webhook import Alert, InvalidWebhook, read_webhook
from worker.domain.intake.decode import Decoded, decode
from worker.domain.values.objects import ObjectRef

NOW = datetime(2026, 6, 4, 12, tzinfo=UTC)
POD = ObjectRef("Pod", "api-7d9", "shop")


def alert(status="firing", annotations=None, fingerprint="0a1b2c3d4e5f6071", **labels):
    return Alert.model_validate(
        {
            "status": status,
            "labels": {"alertname": "KubePodCrashLooping", "namespace": "shop", **labels},
            "annotations": annotations or {},
            "startsAt": "2026-06-04T11:58:00.123Z",
            "endsAt": "0001-01-01T00:00:00Z",
            "generatorURL": "http://prometheus/graph",
            "fingerprint": fingerprint,
        }
    )


# --- which object

KSM = {"job": "kube-state-metrics", "instance": "10.0.0.9:8080", "service": "kube-state-metrics"}


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        ({"namespace": "shop", "pod": "api-7d9", "container": "api", **KSM}, POD),
        (
            {"namespace": "shop", "deployment": "api", "pod": "kube-state-metrics-6f"},
            ObjectRef("Deployment", "api", "shop"),
        ),
        ({"namespace": "shop", "statefulset": "db", **KSM}, ObjectRef("StatefulSet", "db", "shop")),
        ({"namespace": "shop", "daemonset": "agent"}, ObjectRef("DaemonSet", "agent", "shop")),
        (
            {"namespace": "shop", "job_name": "report-29", "job": "kube-state-metrics"},
            ObjectRef("Job", "report-29", "shop"),
        ),
        (
            {"namespace": "shop", "horizontalpodautoscaler": "api"},
            ObjectRef("HorizontalPodAutoscaler", "api", "shop"),
        ),
        (
            {"namespace": "shop", "persistentvolumeclaim": "data-db-0"},
            ObjectRef("PersistentVolumeClaim", "data-db-0", "shop"),
        ),
        (
            {"node": "worker-3", "namespace": "monitoring", "pod": "node-exporter-x"},
            ObjectRef("Node", "worker-3"),
        ),
        ({"persistentvolume": "pvc-1", "namespace": "monitoring"}, ObjectRef("PersistentVolume", "pvc-1")),
        (
            {
                "exported_namespace": "shop",
                "exported_pod": "api-7d9",
                "namespace": "monitoring",
                "pod": "exporter",
            },
            POD,
        ),
        (
            {
                "alertname": "ClusterOperatorDegraded",
                "name": "etcd",
                "namespace": "openshift-cluster-version",
            },
            ObjectRef("ClusterOperator", "etcd", api_version="config.openshift.io/v1"),
        ),
        ({"namespace": "shop", "service": "api"}, ObjectRef("Service", "api", "shop")),
        ({"namespace": "shop", "pod": "kube-state-metrics-6f", **KSM}, ObjectRef("Namespace", "shop")),
        ({"pod": "api-7d9"}, None),
        ({"instance": "10.0.0.1:9100", "job": "node-exporter"}, None),
    ],
)
def test_the_object_of_an_alert_is_what_the_exporter_saw(labels, found):
    assert found == resource_of(labels)


@pytest.mark.parametrize(
    ("instance", "host"),
    [("10.0.0.1:9100", "10.0.0.1"), ("[fd00::1]:9100", "fd00::1"), ("worker-3", "worker-3"), ("", "")],
)
def test_the_address_of_a_machine_is_its_instance(instance, host):
    assert host == address_of({"instance": instance})


# --- the request


def decoded(body):
    found = decode(json.dumps(body).encode(), RequestKind.INCIDENT, NOW)
    assert isinstance(found, Decoded), found
    return found


@pytest.mark.parametrize(
    ("given", "severity", "priority"),
    [
        ("critical", "critical", "P1"),
        ("warning", "medium", "P2"),
        ("info", "low", "P3"),
        ("page", "unknown", "P2"),
    ],
)
def test_the_words_of_alerting_are_mapped(given, severity, priority):
    request = decoded(request_of(alert(severity=given), POD, environment="unknown", cluster_name="")).request
    assert (severity, priority) == (request.severity, request.priority)


def test_labels_say_more_than_defaults():
    labels = {"severity": "critical", "priority": "p0", "environment": "Production", "cluster": "eu-1"}
    request = decoded(request_of(alert(**labels), POD, environment="staging", cluster_name="x")).request
    assert ("P0", "production", "eu-1") == (request.priority, request.environment, request.cluster_name)


def test_the_same_alert_is_the_same_question_whenever_it_is_sent():
    one, again = (request_of(alert(), POD, environment="", cluster_name="") for _ in range(2))
    assert request_digest(decoded(one).request) == request_digest(decoded(again).request)
    assert not decoded(one).ignored_fields


def test_an_alert_without_a_fingerprint_is_known_by_its_labels():
    ids = {alert_id(alert(fingerprint=text, pod=pod)) for text in ("", "../x") for pod in ("a", "b")}
    assert 2 == len(ids)


@pytest.mark.parametrize(
    ("one", "means"),
    [(alert(), True), (alert(status="resolved"), False), (alert(severity="none"), False)],
)
def test_only_what_fires_and_is_meant_for_somebody_is_an_incident(one, means):
    assert means is is_incident(one)


@given(st.dictionaries(st.text(max_size=30), st.text(max_size=60), max_size=6))
def test_any_labels_give_a_body_or_nothing(labels):
    one = alert(**{f"l_{number}": value for number, value in enumerate(labels.values())})
    one = one.model_copy(update={"labels": {**one.labels, **labels}})
    target = resource_of(one.labels)
    if target is not None:
        json.dumps(request_of(one, target, environment="", cluster_name=""))


@pytest.mark.parametrize(
    "labels",
    [
        {"alertname": "A" * 300},
        {"alertname": " "},
        {"environment": "e" * 300, "cluster": "c" * 300},
        {"k" * 1_500: "v"},
        {"big": "x" * 600_000},
        {f"l{n}": "x" * 9_000 for n in range(70)},
    ],
)
def test_what_is_too_large_for_a_request_is_cut(labels):
    one = alert(annotations={"summary": "s", **{f"a{n}": "x" * 9_000 for n in range(70)}}, **labels)
    decoded(request_of(one, POD, environment="", cluster_name=""))


def test_a_storm_has_the_same_id_after_a_restart():
    body = request_of(alert(), pod(1), environment="", cluster_name="")
    ids = {
        storm_request(body, Storm("rate", count, (POD,)), window="300s")["remediation_id"] for count in (5, 6)
    }
    assert 1 == len(ids)


# --- storms


def watch(**rule):
    return Stormwatch(StormRule(window=timedelta(minutes=5), **rule))


def at(seconds):
    return NOW + timedelta(seconds=seconds)


def pod(number):
    return ObjectRef("Pod", f"api-{number}", "shop")


def test_the_same_alert_about_the_same_object_is_published_once_in_the_window():
    seen = watch(alerts=100)
    decisions = [seen.decide("A", POD, at(seconds))[0] for seconds in (0, 60, 299, 301)]
    assert [Decision.PUBLISH, Decision.DUPLICATE, Decision.DUPLICATE, Decision.PUBLISH] == decisions
    assert Decision.PUBLISH is seen.decide("B", POD, at(302))[0]


def test_one_alert_about_many_objects_is_a_pattern_and_one_request():
    seen = watch(objects=5, alerts=100)
    found = [seen.decide("A", pod(number), at(number)) for number in range(8)]
    assert [Decision.PUBLISH] * 4 + [Decision.STORM] + [Decision.IN_STORM] * 3 == [each[0] for each in found]
    storm = found[4][1]
    assert ("pattern", 5, tuple(map(pod, range(5)))) == (storm.type, storm.alerts, storm.objects)
    assert Decision.PUBLISH is seen.decide("A", pod(9), at(400))[0], "the window is over"


def test_one_alert_again_and_again_is_a_rate():
    seen = watch(objects=100, alerts=3)
    found = [seen.decide("A", POD, at(number)) for number in range(4)]
    assert [Decision.PUBLISH, Decision.DUPLICATE, Decision.STORM, Decision.IN_STORM] == [
        each[0] for each in found
    ]
    assert "rate" == found[2][1].type


def test_namespaces_have_storms_of_their_own():
    seen = watch(objects=2)
    assert Decision.STORM is [seen.decide("A", pod(n), at(n)) for n in range(2)][-1][0]
    assert Decision.PUBLISH is seen.decide("A", ObjectRef("Pod", "api-1", "other"), at(3))[0]


def test_memory_is_bounded():
    seen = watch(objects=10**6, alerts=10**6)
    for number in range(KEPT + 10):
        seen.decide(f"A{number}", POD, at(0))
    assert KEPT == len(seen._seen) == len(seen._groups)


def test_a_storm_is_a_valid_request_that_says_so():
    seen = watch(objects=2)
    _, storm = [seen.decide("A", pod(n), at(n)) for n in range(2)][-1]
    body = request_of(alert(), pod(1), environment="", cluster_name="")
    request = decoded(storm_request(body, storm, window="300s")).request
    assert (True, "pattern", 2) == (request.is_storm, request.storm_type, request.storm_alert_count)
    assert ("Pod/shop/api-0", "Pod/shop/api-1") == request.affected_resources


# --- the webhook


def test_other_versions_and_broken_bodies_are_refused_with_a_reason():
    for body in (
        b"",
        b"[]",
        b'{"version": "3", "alerts": []}',
        b'{"version": "4", "alerts": [{"status": "on"}]}',
    ):
        with pytest.raises(InvalidWebhook, match=r"\w"):
            read_webhook(body)


def notification(**fields):
    one = {"status": "firing", "labels": {"alertname": "A"}, "startsAt": "2026-06-04T11:58:00Z"}
    return {"version": "4", "alerts": [one | fields]}


def test_a_date_that_no_calendar_has_is_refused():
    for text in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"):
        with pytest.raises(InvalidWebhook, match="1970"):
            read_webhook(json.dumps(notification(startsAt=text)).encode())


def test_an_alert_that_cannot_be_read_leaves_the_others():
    body = notification()
    body["alerts"] += [{"status": "firing"}, 5, body["alerts"][0] | {"startsAt": "soon"}]
    read = read_webhook(json.dumps(body).encode())
    assert (["A"], 3) == ([alert.name for alert in read.alerts], len(read.invalid))
    assert read.invalid[0].startswith("1.labels")


def test_an_error_does_not_repeat_what_it_is_about():
    body = notification(labels={"k" * 100_000: 1})
    with pytest.raises(InvalidWebhook) as raised:
        read_webhook(json.dumps(body).encode())
    assert len(str(raised.value)) <= 300
