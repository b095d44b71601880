from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.memory_catalog import workflow
from worker.domain.catalog.parameter_values import BadValueError, check_value, pattern_error
from worker.domain.values.workflows import Parameter, ParameterType
from worker.domain.verdict.answers.answer import ProblemKind
from worker.domain.verdict.checks.parameters import check_values
from worker.domain.verdict.checks.report import CheckReport

STRING, INTEGER, NUMBER = ParameterType.STRING, ParameterType.INTEGER, ParameterType.NUMBER
BOOLEAN, ARRAY = ParameterType.BOOLEAN, ParameterType.ARRAY
SECRET_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"


@pytest.mark.parametrize(
    ("parameter", "value", "expected"),
    [
        (Parameter("P", STRING), "5Gi", "5Gi"),
        (Parameter("P", STRING), 5, "5"),
        (Parameter("P", STRING, pattern=SECRET_NAME), "registry-credentials", "registry-credentials"),
        (Parameter("P", STRING, enum=("images", "logs")), "logs", "logs"),
        (Parameter("P", INTEGER), 3, 3),
        (Parameter("P", INTEGER), "3", 3),
        (Parameter("P", INTEGER), 3.0, 3),
        (Parameter("P", INTEGER, minimum=0, maximum=3), 0, 0),
        (Parameter("P", NUMBER), "2", 2),
        (Parameter("P", NUMBER), "1.5", 1.5),
        (Parameter("P", NUMBER), 2, 2),
        (Parameter("P", BOOLEAN), True, True),
        (Parameter("P", BOOLEAN), "false", False),
        (Parameter("P", BOOLEAN), "True", True),
        (Parameter("P", ARRAY), ["a", "b"], ["a", "b"]),
        (Parameter("P", ARRAY, items=Parameter("", INTEGER)), ["1", 2], [1, 2]),
        (Parameter("P", ARRAY), [], []),
    ],
)
def test_values_that_fit_are_taken_in_the_declared_type(parameter, value, expected):
    taken = check_value(parameter, value)
    assert (expected, type(expected)) == (taken, type(taken))


@pytest.mark.parametrize(
    ("parameter", "value", "reason"),
    [
        (Parameter("P", STRING), True, "must be a string, not a boolean"),
        (Parameter("P", STRING), 1.5, "must be a string"),
        (Parameter("P", STRING), ["a"], "must be a string, not an array"),
        (Parameter("P", STRING), "x" * 5000, "at most 4096 characters"),
        (Parameter("P", STRING, min_length=2), "a", "at least 2 characters"),
        (Parameter("P", STRING, max_length=2), "abc", "at most 2 characters"),
        (
            Parameter("P", STRING, pattern=SECRET_NAME),
            "a; kubectl delete ns x #",
            "does not match the pattern",
        ),
        (Parameter("P", STRING, pattern=SECRET_NAME), "name\n", "must not hold line ends"),
        (Parameter("P", STRING, pattern="^(a+)+$"), "a" * 4000 + "b", "does not match the pattern"),
        (Parameter("P", STRING, enum=("Deployment",)), "deployment", "did you mean Deployment?"),
        (Parameter("P", STRING, enum=("images", "logs")), "temp", "must be one of images, logs"),
        (Parameter("P", INTEGER), True, "must be an integer, not True"),
        (Parameter("P", INTEGER), 1.5, "must be an integer"),
        (Parameter("P", INTEGER), "double", "must be an integer, not double"),
        (Parameter("P", INTEGER), "1_000", "must be an integer"),
        (Parameter("P", INTEGER), "٣", "must be an integer"),
        (Parameter("P", INTEGER), 2**63, "must be an integer"),
        pytest.param(
            Parameter("P", INTEGER),
            10**5000,
            "must be an integer, not a number of more than 64 bits",
            id="huge",
        ),
        (Parameter("P", INTEGER), "9" * 5000, "must be an integer"),
        (Parameter("P", INTEGER, minimum=1), 0, "must be at least 1"),
        (Parameter("P", NUMBER, maximum=4), 64, "must be at most 4"),
        (Parameter("P", NUMBER), "nan", "must be a number"),
        (Parameter("P", NUMBER), float("inf"), "must be a number"),
        (Parameter("P", NUMBER), False, "must be a number"),
        (Parameter("P", BOOLEAN), "yes", "must be true or false"),
        (Parameter("P", BOOLEAN), 1, "must be true or false"),
        (Parameter("P", ARRAY), "a,b", "must be an array, not a string"),
        (Parameter("P", ARRAY), ["a"] * 300, "at most 256 items"),
        (Parameter("P", ARRAY, min_length=1), [], "at least 1 items"),
        (Parameter("P", ARRAY, items=Parameter("", enum=("logs",))), ["logs", "x"], "item 1 must be one of"),
    ],
)
def test_values_that_do_not_fit_say_how_to_mend_them(parameter, value, reason):
    with pytest.raises(BadValueError, match=re.escape(reason)):
        check_value(parameter, value)


def checked(parameters, given_values, exempt=()):
    """The values that fit, and the report."""
    report = CheckReport()
    return check_values(workflow(parameters=tuple(parameters)), given_values, report, exempt), report


def messages(report):
    return {p.path.rpartition(".")[2]: p.message for p in report.problems}


def test_all_problems_are_reported_at_once():
    declared = [
        Parameter("FACTOR", NUMBER, maximum=4),
        Parameter("REPLICAS", INTEGER, required=True, description="How many"),
        Parameter("ZONE", STRING, depends_on=("REGION",)),
        Parameter("REGION", STRING),
    ]
    _, report = checked(declared, {"FACTOR": 64, "ZONE": "a", "FORCE_DELETE": True})
    assert {"FACTOR", "REPLICAS", "ZONE", "FORCE_DELETE"} == set(messages(report))
    assert {ProblemKind.PARAMETERS} == {p.kind for p in report.problems}
    assert messages(report)["REPLICAS"] == "is required (integer): How many"
    assert messages(report)["ZONE"] == "requires REGION to be set as well"


def test_a_parameter_that_was_rejected_before_is_not_rejected_again():
    report = CheckReport()
    report.reject_parameter("A", "names another object")
    declared = (Parameter("A", required=True), Parameter("B", required=True))
    check_values(workflow(parameters=declared), {}, report)
    assert ["names another object", "is required (string)"] == [p.message for p in report.problems]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("memory_factor", "did you mean MEMORY_FACTOR?"),
        ("FORCE_DELETE", "leave it out (declared: MEMORY_FACTOR)"),
    ],
)
def test_an_undeclared_parameter_is_an_error_with_a_hint(name, hint):
    values, report = checked([Parameter("MEMORY_FACTOR", NUMBER)], {name: 2})
    assert hint in messages(report)[name]
    assert values == {}


def test_a_null_is_the_same_as_leaving_the_parameter_out():
    assert {"A"} == set(messages(checked([Parameter("A", required=True)], {"A": None})[1]))
    assert messages(checked([Parameter("A")], {"A": None})[1]) == {}


def test_a_default_satisfies_requirement_and_dependency():
    declared = [
        Parameter("A", INTEGER, required=True, default=1),
        Parameter("B", depends_on=("A",)),
    ]
    values, report = checked(declared, {"B": "x"})
    assert (report.problems, values) == ([], {"B": "x"})


def test_a_converted_value_is_noted():
    values, report = checked([Parameter("FACTOR", NUMBER)], {"FACTOR": "2"})
    assert values == {"FACTOR": 2}
    assert report.notes == ["parameter FACTOR: 2 was read as 2"]


def test_exempt_values_are_taken_as_they_are():
    declared = [Parameter("NAMESPACE", required=True, pattern="^[a-z]+$")]
    assert messages(checked(declared, {"NAMESPACE": ""}, {"NAMESPACE"})[1]) == {}
    assert len(messages(checked(declared, {"NAMESPACE": ""})[1])) == 1


@pytest.mark.parametrize(
    ("pattern", "refused"), [("^a+$", False), ("(", True), (r"(?=x)", True), (r"(a)\1", True)]
)
def test_patterns_are_those_of_the_linear_engine(pattern, refused):
    assert refused == bool(pattern_error(pattern))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)
ANY_PARAMETER = st.builds(
    Parameter,
    name=st.just("P"),
    type=st.sampled_from(ParameterType),
    required=st.booleans(),
    minimum=st.none() | st.integers(-5, 5),
    pattern=st.sampled_from(["", "^[a-z]+$"]),
    enum=st.sampled_from([(), ("a", "b"), (1, 2)]),
)


@given(ANY_PARAMETER, st.dictionaries(st.sampled_from(["P", "p", "Q"]), JSON))
def test_a_value_is_either_taken_or_a_problem(parameter, values):
    taken, report = checked([parameter], values)
    stated = {name for name, value in values.items() if value is not None}
    assert stated == set(taken) | (set(messages(report)) & stated)
    for name, value in taken.items():
        assert value == check_value(parameter, value), name
