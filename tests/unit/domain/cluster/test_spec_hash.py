from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.export import V1
from tests.fakes.hostile import VALUES
from worker.domain.cluster.spec_hash import (
    absent_config_map_hash,
    canonical_hash,
    canonical_json,
    composite,
    config_map_hash,
    config_map_names,
    fingerprint,
    parameters_digest,
)

EMPTY = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
"""SHA-256 of `{}`."""
GO_TEXTS = {
    "a && b": r'"a \u0026\u0026 b"',
    "<b>": r'"\u003cb\u003e"',
    "café 日本 🎈": '"café 日本 🎈"',
    "line\u2028and\u2029paragraph": r'"line\u2028and\u2029paragraph"',
    'say "no" \\ /': r'"say \"no\" \\ /"',
    "\n\r\t\b\f\x00\x1f\x7f": r'"\n\r\t\b\f\u0000\u001f' + '\x7f"',
    "half \ud83d": '"half \ufffd"',
}
GO_NUMBERS = {
    "3": "3",
    "-7": "-7",
    "3.0": "3",
    "1e3": "1000",
    "0.5": "0.5",
    "0.1": "0.1",
    "-0.25": "-0.25",
    "-0.0": "-0",
    "123456789012345678": "123456789012345678",
    "9223372036854775807": "9223372036854775807",
    "-9223372036854775808": "-9223372036854775808",
    "9223372036854775808": "9223372036854776000",
    "18446744073709551615": "18446744073709552000",
    "1e20": "100000000000000000000",
    "1.5e20": "150000000000000000000",
    "1e21": "1e+21",
    "1.5e300": "1.5e+300",
    "0.000001": "0.000001",
    "0.0000015": "0.0000015",
    "1e-7": "1e-7",
    "1.5e-10": "1.5e-10",
    "5e-324": "5e-324",
    "1.7976931348623157e308": "1.7976931348623157e+308",
}


def digest(text):
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


@pytest.mark.parametrize(("text", "expected"), GO_TEXTS.items())
def test_texts_are_written_as_go_writes_them(text, expected):
    assert expected == canonical_json(text)


@pytest.mark.parametrize(("written", "expected"), GO_NUMBERS.items())
def test_numbers_are_written_as_go_writes_them(written, expected):
    assert expected == canonical_json(json.loads(written))


def test_keys_are_in_order_of_their_bytes_and_lists_in_order_of_their_text():
    value = {"é": 1, "z": [10, 9, "9", None, True, [2, 1], {"b": 1, "a": 2}], "Z": {}, "a": []}
    assert '{"Z":{},"a":[],"z":["9",10,9,[1,2],null,true,{"a":2,"b":1}],"é":1}' == canonical_json(value)


def test_elements_are_compared_as_they_are_written():
    assert r'["\u003c","z"]' == canonical_json(["z", "<"])
    assert r'["A","\u0026","a"]' == canonical_json(["a", "A", "&"])


def test_the_same_list_in_another_order_has_the_same_hash():
    one = {"spec": {"containers": [{"name": "a", "args": ["x", "y"]}, {"name": "b"}]}}
    other = {"spec": {"containers": [{"name": "b"}, {"args": ["y", "x"], "name": "a"}]}}
    assert fingerprint(one) == fingerprint(other)


@pytest.mark.parametrize("nothing", [None, {}, {"metadata": {"name": "x"}, "kind": "X", "status": {}}])
def test_nothing_is_hashed_as_an_empty_object(nothing):
    assert EMPTY == fingerprint(nothing)


def test_what_the_cluster_keeps_for_itself_is_not_hashed():
    shown = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "resourceVersion": "7"},
        "spec": {"replicas": 3.0, "template": {"spec": {"command": ["sh", "-c", "a && b > /tmp/é"]}}},
        "status": {"readyReplicas": 1},
    }
    text = (
        '{"spec":{"replicas":3,"template":{"spec":{"command":['
        r'"-c","a \u0026\u0026 b \u003e /tmp/é","sh"]}}}}'
    )
    assert digest(text) == fingerprint(shown)


def test_kinds_without_a_spec_are_hashed_by_what_they_hold():
    one = {"kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"b": "2", "a": "1"}}
    assert digest('{"data":{"a":"1","b":"2"}}') == fingerprint(one)
    assert digest('{"spec":{"a":"1"}}') != fingerprint({"a": "1"})


def test_an_object_nested_too_deeply_has_no_hash():
    deep = {}
    for _ in range(5_000):
        deep = {"a": deep}
    assert "" == fingerprint({"spec": deep})


# -- ConfigMaps


POD = {
    "volumes": [
        {"name": "a", "configMap": {"name": "volume"}},
        {
            "name": "b",
            "projected": {"sources": [{"configMap": {"name": "projected"}}, {"secret": {"name": "s"}}]},
        },
        {"name": "c", "secret": {"secretName": "not-this"}},
        "junk",
    ],
    "containers": [{"envFrom": [{"configMapRef": {"name": "from"}}, {"secretRef": {"name": "no"}}]}],
    "initContainers": [
        {"env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "key", "key": "k"}}}]}
    ],
    "ephemeralContainers": [{"envFrom": [{"configMapRef": {"name": "from"}}, {"configMapRef": {"name": 7}}]}],
}
NAMES = ("from", "key", "projected", "volume")


@pytest.mark.parametrize(
    ("kind", "spec", "expected"),
    [
        ("Pod", POD, NAMES),
        ("Deployment", {"template": {"spec": POD}}, NAMES),
        ("Job", {"template": {"spec": POD}}, NAMES),
        ("CronJob", {"jobTemplate": {"spec": {"template": {"spec": POD}}}}, NAMES),
        ("Rollout", {"template": {"spec": POD}}, ()),
        ("Deployment", {"template": "junk"}, ()),
        ("Node", {}, ()),
    ],
)
def test_config_maps_of_the_pods_of_a_workload(kind, spec, expected):
    assert expected == config_map_names({"kind": kind, "spec": spec})


def test_a_config_map_is_hashed_line_by_line():
    shown = {"data": {"b": "2", "a": "x=1\ny"}, "binaryData": {"z": "AAE=", "c": "/w=="}}
    assert digest("d:a=x=1\ny\nd:b=2\nb:c=/w==\nb:z=AAE=") == config_map_hash(shown)
    assert digest("") == config_map_hash({})


def test_a_config_map_that_cannot_be_read_is_not_an_empty_one():
    assert digest("d:__sentinel__=__absent:api-config__") == absent_config_map_hash("api-config")


def test_the_hash_of_a_resource_holds_those_of_its_config_maps_by_name():
    own, a, b = EMPTY, config_map_hash({"data": {"k": "a"}}), absent_config_map_hash("b")
    assert digest(f"{own}\na:{a}\nb:{b}") == composite(own, {"b": b, "a": a})
    assert own == composite(own, {})
    assert "" == composite("", {"a": a})


def test_known_hashes_stay_as_they_are():
    """Stored by executors and compared for 90 days: a change of any of these loses the history of every resource."""
    deployment = {
        "kind": "Deployment",
        "spec": {"replicas": 2, "note": "a < b & c", "list": ["b", "a"], "name": "café", "cpu": 0.5},
    }
    assert digest(
        r'{"spec":{"cpu":0.5,"list":["a","b"],"name":"café","note":"a \u003c b \u0026 c","replicas":2}}'
    ) == fingerprint(deployment)
    assert "sha256:991eabf45109c461a3f145050cb73483275dd4dd618dc80236db675c97882ae5" == fingerprint(
        deployment
    )


@pytest.mark.parametrize("vector", json.loads((V1 / "samples" / "spec-hashes.json").read_bytes()))
def test_the_vectors_for_other_languages_hold(vector):
    assert vector["spec_hash"] == canonical_hash(vector["manifest"], vector["config_maps"])


def test_a_config_map_that_could_not_be_read_counts_as_absent():
    manifest = {"kind": "Deployment", "spec": {"template": {"spec": POD}}}
    read = {name: {"data": {"a": name}} for name in NAMES}
    hashes = {name: config_map_hash(each) for name, each in read.items()}
    assert composite(fingerprint(manifest), hashes) == canonical_hash(manifest, read)
    hashes["key"] = absent_config_map_hash("key")
    assert composite(fingerprint(manifest), hashes) == canonical_hash(manifest, {**read, "key": None})


def test_parameters_are_told_apart_without_being_kept():
    assert parameters_digest({"A": "1", "B": 2}) == parameters_digest({"B": 2, "A": "1"})
    assert parameters_digest({"A": "1"}) != parameters_digest({"A": "2"})


@given(st.dictionaries(st.text(max_size=8), VALUES, max_size=4))
def test_whatever_the_api_answers_has_a_hash_and_reads_back(manifest):
    assert fingerprint(manifest).startswith("sha256:")
    assert 71 == len(fingerprint(manifest))
    json.loads(canonical_json(manifest))
    assert isinstance(config_map_names(manifest), tuple)
    assert config_map_hash(manifest).startswith("sha256:")


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_number_reads_back_as_itself(number):
    assert number == float(canonical_json(number))


def test_what_json_cannot_hold_is_null():
    assert "null" == canonical_json(object())


def test_binary_data_that_is_no_base64_is_hashed_as_it_is():
    odd = {"binaryData": {"a": "x"}}
    assert digest("b:a=x") == config_map_hash(odd)
