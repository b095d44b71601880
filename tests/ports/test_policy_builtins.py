"""Every function of OPA's capabilities list (v1.20) is either served with OPA's value or refused when a policy is loaded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.rego import rego
from worker.adapters.rego_policy import PolicyUnusable
from worker.adapters.rego_policy.process import UNSERVED, builtins_of, evaluate, load

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "policy.md"
NOON = "1609502400000000000"  # Friday 2021-01-01T12:00:00Z
SCHEMA = '{"type": "object", "properties": {"a": {"type": "number"}}}'
SERVED: dict[str, tuple[str, Any]] = {
    "abs": ("abs(-2)", 2), "array.concat": ("array.concat([1], [2])", [1, 2]), "array.reverse": ("array.reverse([1, 2])", [2, 1]),
    "array.slice": ("array.slice([1, 2, 3], 1, 2)", [2]), "base64.decode": ('base64.decode("YQ==")', "a"),
    "base64.encode": ('base64.encode("a")', "YQ=="), "base64.is_valid": ('base64.is_valid("YQ==")', True),
    "base64url.decode": ('base64url.decode("YQ==")', "a"), "base64url.encode": ('base64url.encode("a")', "YQ=="),
    "base64url.encode_no_pad": ('base64url.encode_no_pad("a")', "YQ"), "bits.and": ("bits.and(6, 3)", 2), "bits.lsh": ("bits.lsh(1, 3)", 8),
    "bits.negate": ("bits.negate(1)", -2), "bits.or": ("bits.or(4, 1)", 5), "bits.rsh": ("bits.rsh(8, 3)", 1), "bits.xor": ("bits.xor(6, 3)", 5),
    "ceil": ("ceil(1.2)", 2), "concat": ('concat("-", ["a", "b"])', "a-b"), "contains": ('contains("abc", "b")', True), "count": ("count([1, 2])", 2),
    "endswith": ('endswith("abc", "c")', True), "floor": ("floor(1.8)", 1), "format_int": ("format_int(10, 16)", "a"),
    "glob.match": ('glob.match("a*", [], "abc")', True), "glob.quote_meta": ('glob.quote_meta("a*")', "a\\*"),
    "graph.reachable": ('graph.reachable({"a": ["b"], "b": []}, ["a"]) == {"a", "b"}', True),
    "graph.reachable_paths": ('graph.reachable_paths({"a": ["b"], "b": []}, ["a"]) == {["a", "b"]}', True),
    "hex.decode": ('hex.decode("61")', "a"), "hex.encode": ('hex.encode("a")', "61"), "indexof": ('indexof("abc", "b")', 1),
    "indexof_n": ('indexof_n("abab", "b")', [1, 3]), "intersection": ("intersection({{1, 2}, {2}}) == {2}", True),
    "is_array": ("is_array([])", True), "is_boolean": ("is_boolean(true)", True), "is_null": ("is_null(null)", True), "is_number": ("is_number(1)", True),
    "is_object": ("is_object({})", True), "is_set": ("is_set(set())", True), "is_string": ('is_string("")', True),
    "json.filter": ('json.filter({"a": 1, "b": 2}, ["a"])', {"a": 1}), "json.is_valid": ('json.is_valid("{}")', True),
    "json.marshal": ('json.marshal([1, "a"])', '[1,"a"]'),
    "json.marshal_with_options": ('json.marshal_with_options([1], {"pretty": false})', "[1]"),
    "json.match_schema": (f'json.match_schema({{"a": 1}}, {SCHEMA})[0]', True), "json.verify_schema": (f"json.verify_schema({SCHEMA})[0]", True),
    "json.patch": ('json.patch({"a": 1}, [{"op": "add", "path": "/b", "value": 2}])', {"a": 1, "b": 2}),
    "json.remove": ('json.remove({"a": 1, "b": 2}, ["a"])', {"b": 2}), "json.unmarshal": ('json.unmarshal("[1]")', [1]), "lower": ('lower("A")', "a"),
    "max": ("max([1, 3, 2])", 3), "min": ("min([2, 1])", 1), "net.cidr_contains": ('net.cidr_contains("10.0.0.0/8", "10.1.2.3")', True),
    "net.cidr_is_valid": ('net.cidr_is_valid("10.0.0.0/8")', True),
    "numbers.range": ("numbers.range(1, 3)", [1, 2, 3]), "numbers.range_step": ("numbers.range_step(1, 5, 2)", [1, 3, 5]),
    "object.filter": ('object.filter({"a": 1, "b": 2}, ["a"])', {"a": 1}), "object.get": ('object.get({"a": 1}, "b", 7)', 7),
    "object.keys": ('object.keys({"a": 1}) == {"a"}', True), "object.remove": ('object.remove({"a": 1, "b": 2}, ["a"])', {"b": 2}),
    "object.subset": ('object.subset({"a": 1, "b": 2}, {"a": 1})', True), "object.union": ('object.union({"a": 1}, {"b": 2})', {"a": 1, "b": 2}),
    "object.union_n": ('object.union_n([{"a": 1}, {"a": 2}])', {"a": 2}), "print": ('print("x")', True), "product": ("product([2, 3])", 6),
    "rand.intn": ('rand.intn("seed", 1)', 0), "regex.find_all_string_submatch_n": ('regex.find_all_string_submatch_n("a(.)", "ab ac", -1)', [["ab", "b"], ["ac", "c"]]),
    "regex.find_n": ('regex.find_n("a.", "ab ac", 1)', ["ab"]), "regex.is_valid": ('regex.is_valid("a+")', True), "regex.match": ('regex.match("^a+$", "aa")', True),
    "regex.replace": ('regex.replace("abc", "b", "x")', "axc"), "regex.split": ('regex.split("-", "a-b")', ["a", "b"]),
    "regex.template_match": ('regex.template_match("urn:{.*}", "urn:x", "{", "}")', True), "replace": ('replace("abc", "b", "x")', "axc"), "round": ("round(1.6)", 2),
    "semver.compare": ('semver.compare("1.2.3", "1.10.0")', -1), "semver.is_valid": ('semver.is_valid("1.2.3")', True), "sort": ("sort([2, 1])", [1, 2]),
    "split": ('split("a/b", "/")', ["a", "b"]), "sprintf": ('sprintf("%v is %d", ["a", 1])', "a is 1"), "startswith": ('startswith("abc", "a")', True),
    "strings.any_prefix_match": ('strings.any_prefix_match("abc", ["x", "ab"])', True), "strings.any_suffix_match": ('strings.any_suffix_match("abc", ["x", "bc"])', True),
    "strings.count": ('strings.count("abab", "ab")', 2), "strings.replace_n": ('strings.replace_n({"a": "x"}, "aba")', "xbx"),
    "strings.reverse": ('strings.reverse("abc")', "cba"), "substring": ('substring("abc", 1, 1)', "b"), "sum": ("sum([1, 2])", 3),
    "time.add_date": ("time.add_date(0, 0, 0, 1)", 86400000000000), "time.clock": (f"time.clock({NOON})", [12, 0, 0]), "time.date": (f"time.date({NOON})", [2021, 1, 1]),
    "time.diff": (f"time.diff({NOON}, 0)", [51, 0, 0, 12, 0, 0]), "time.format": (f"time.format({NOON})", "2021-01-01T12:00:00Z"),
    "time.now_ns": (f"time.now_ns() > {NOON}", True), "time.parse_duration_ns": ('time.parse_duration_ns("1m")', 60000000000),
    "time.parse_ns": ('time.parse_ns("2006-01-02", "2021-01-01")', 1609459200000000000), "time.parse_rfc3339_ns": ('time.parse_rfc3339_ns("2021-01-01T12:00:00Z")', int(NOON)),
    "time.weekday": (f"time.weekday({NOON})", "Friday"), "to_number": ('to_number("1.5")', 1.5), "trace": ('trace("x") != false', True), "trim": ('trim("xax", "x")', "a"),
    "trim_left": ('trim_left("xa", "x")', "a"), "trim_prefix": ('trim_prefix("xa", "x")', "a"), "trim_right": ('trim_right("ax", "x")', "a"), "trim_space": ('trim_space(" a ")', "a"),
    "trim_suffix": ('trim_suffix("ax", "x")', "a"), "type_name": ("type_name([])", "array"), "union": ("union({{1}, {2}}) == {1, 2}", True),
    "units.parse": ('units.parse("1K")', 1000), "units.parse_bytes": ('units.parse_bytes("1KiB")', 1024), "upper": ('upper("a")', "A"),
    "urlquery.decode": ('urlquery.decode("a%20b")', "a b"), "urlquery.decode_object": ('urlquery.decode_object("a=1")', {"a": ["1"]}),
    "urlquery.encode": ('urlquery.encode("a b")', "a+b"), "urlquery.encode_object": ('urlquery.encode_object({"a": "1"})', "a=1"),
    "uuid.parse": ('uuid.parse("00000000-0000-4000-8000-000000000000").version', 4), "uuid.rfc4122": ('count(uuid.rfc4122("x"))', 36),
    "walk": ("[path | walk([7], [path, 7])]", [[0]]), "yaml.is_valid": ('yaml.is_valid("a: 1")', True), "yaml.marshal": ('yaml.marshal({"a": 1})', "a: 1\n"),
    "yaml.unmarshal": ('yaml.unmarshal("a: 1")', {"a": 1}),
    # Operators: functions by name in the list, not in a policy.
    "and": ("{1, 2} & {2} == {2}", True), "assign": ("1 == 1", True), "div": ("6 / 3", 2), "eq": ("1 == 1", True), "equal": ("1 == 1", True), "gt": ("2 > 1", True),
    "gte": ("2 >= 2", True), "internal.member_2": ("1 in [1]", True), "internal.member_3": ("0, 1 in [1]", True), "lt": ("1 < 2", True), "lte": ("2 <= 2", True),
    "minus": ("3 - 1", 2), "mul": ("2 * 3", 6), "neq": ("1 != 2", True), "or": ("{1} | {2} == {1, 2}", True), "plus": ("1 + 2", 3), "rem": ("5 % 3", 2),
}  # fmt: skip
REFUSED = {
    "all", "any", "array.flatten", "cast_array", "cast_boolean", "cast_null", "cast_object", "cast_set", "cast_string",
    "crypto.hmac.equal", "crypto.hmac.md5", "crypto.hmac.sha1", "crypto.hmac.sha256", "crypto.hmac.sha512", "crypto.md5",
    "crypto.parse_private_keys", "crypto.sha1", "crypto.sha256", "crypto.x509.parse_and_verify_certificates",
    "crypto.x509.parse_and_verify_certificates_with_options", "crypto.x509.parse_certificate_request",
    "crypto.x509.parse_certificates", "crypto.x509.parse_keypair", "crypto.x509.parse_rsa_private_key", "graphql.is_valid",
    "graphql.parse", "graphql.parse_and_verify", "graphql.parse_query", "graphql.parse_schema", "graphql.schema_is_valid",
    "http.send", "internal.print", "internal.template_string", "internal.test_case", "io.jwt.decode", "io.jwt.decode_verify",
    "io.jwt.encode_sign", "io.jwt.encode_sign_raw", "io.jwt.verify_eddsa", "io.jwt.verify_es256", "io.jwt.verify_es384",
    "io.jwt.verify_es512", "io.jwt.verify_hs256", "io.jwt.verify_hs384", "io.jwt.verify_hs512", "io.jwt.verify_ps256",
    "io.jwt.verify_ps384", "io.jwt.verify_ps512", "io.jwt.verify_rs256", "io.jwt.verify_rs384", "io.jwt.verify_rs512",
    "net.cidr_contains_matches", "net.cidr_expand", "net.cidr_intersects", "net.cidr_merge", "net.cidr_overlap", "net.lookup_ip_addr",
    "opa.runtime", "providers.aws.sign_req", "re_match", "regex.globs_match", "rego.metadata.chain", "rego.metadata.rule",
    "rego.parse_module", "set_diff", "strings.render_template", "strings.split_n", "uri.is_valid", "uri.parse",
}  # fmt: skip
HEAD = "package rca.approval\nimport rego.v1\ndefault require_approval := false\n"


def loaded(rules: str) -> Any:
    engine, _ = load({"modules": {"p.rego": HEAD + rules}, "data": {}})
    return engine


@pytest.mark.parametrize("name", SERVED)
def test_a_served_function_answers_as_opa_does(name):
    expression, expected = SERVED[name]
    engine = loaded(f"value := v if v := {expression}")
    asked = {"queries": {"value": "data.rca.approval.value"}, "input": {}}
    assert {"value": expected} == evaluate(engine, asked, cpu_seconds=60.0)["values"]


@pytest.mark.parametrize("call", ["require_approval if {}(1, 2)", "value := [x | input.never; x := {}()]"])
@pytest.mark.parametrize("name", sorted(REFUSED))
def test_any_other_function_is_refused_before_an_input_leads_to_it(name, call):
    with pytest.raises(ValueError, match=re.escape(f"p.rego:4: {name} is not supported")):
        loaded(call.format(name))


@pytest.mark.parametrize("name", sorted(UNSERVED))
async def test_a_worker_does_not_start_with_a_policy_that_calls_it(name):
    with pytest.raises(PolicyUnusable, match=f"{name} is not supported"):
        async with rego(HEAD + f"require_approval if {name}({{}})"):
            pass


def test_the_evaluator_has_no_function_of_which_nothing_is_known():
    named = {name.replace("__builtin_sets.", "") for name in builtins_of(loaded(""))}
    assert set() == named - set(SERVED)


HELPERS = "package lib\nimport rego.v1\nsend(_) := true\n"


@pytest.mark.parametrize(
    "module",
    [
        "package rca.approval\nimport rego.v1\nimport data.lib as http\nrequire_approval := http.send(1)\n",
        "package rca.approval\nimport rego.v1\nimport data.lib\nrequire_approval := lib.send(1)\n",
        "package rca.approval\nimport rego.v1\nrequire_approval := data.lib.send(1)\n",
        "package rca.approval\nimport rego.v1\nsend(x) := x\nrequire_approval := send(true)\n",
    ],
)
async def test_functions_of_the_policy_itself_are_no_builtins(module):
    async with rego(module, HELPERS) as policy:
        assert (await policy.decide({})).approval.required is True


def test_the_documentation_names_what_is_served_and_what_is_not():
    text = DOCUMENTATION.read_text()
    section = text.partition("## Functions")[2].partition("\n## ")[0]
    served, _, refused = section.partition("Not supported")
    operators = {name for name in SERVED if re.search(rf"\b{re.escape(name)}\(", SERVED[name][0]) is None}
    assert set(re.findall(r"`([a-z0-9_.]+)`", served)) == set(SERVED) - operators
    assert set(re.findall(r"`([a-z0-9_.]+)`", refused)) == {
        n for n in REFUSED if not n.startswith("internal")
    }
