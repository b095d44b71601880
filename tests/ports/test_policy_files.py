"""The files of a policy: what is read, what is refused, versions, and following changes."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import subprocess
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.rego import PATIENT, RULES, children, policy_files
from tests.waiting import until
from worker.adapters.rego_policy import PolicyFiles, PolicySources, PolicyUnusable, RegorusPolicy, read_files

LOOK_SECONDS = 0.01
ALWAYS = "package rca.approval\nimport rego.v1\nrequire_approval := true\nreason := data.why\n"
NEVER = "package rca.approval\nimport rego.v1\nrequire_approval := false\n"
BROKEN = "package rca.approval\nimport rego.v1\nrequire_approval if {\n"


@pytest.fixture
def policy_path(tmp_path):
    path = tmp_path / "a.rego"
    path.write_text(RULES)
    return path


def test_a_policy_is_a_file_or_a_directory_with_data(tmp_path):
    (tmp_path / "a.rego").write_text(RULES)
    (tmp_path / "a_test.rego").write_text("package rca.approval_test\n")
    (tmp_path / ".hidden.rego").write_text("not a policy")
    (tmp_path / "limits.yaml").write_text("max: {p0: 1}\n")
    (tmp_path / "more.json").write_text('{"x": 1, "max": {"p1": 2}}')
    (tmp_path / "README.md").write_text("not a policy")
    (tmp_path / "sub").mkdir()
    modules = {str(tmp_path / "a.rego"): RULES}
    data = {"max": {"p0": 1, "p1": 2}, "x": 1}
    assert PolicySources(modules, data) == read_files(tmp_path).sources()
    assert PolicySources(modules) == read_files(tmp_path / "a.rego").sources()
    given = read_files(tmp_path / "a.rego", [tmp_path / "limits.yaml"])
    assert PolicySources(modules, {"max": {"p0": 1}}) == given.sources()
    assert f"rego:a.rego, limits.yaml@{given.version}" == given.title


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("x.txt", b"", "no .*rego file"),
        ("a.rego", b"\xff\xfe", "a.rego: not UTF-8"),
        ("b.json", b'{\n"a": }', "b.json:2: Expecting value"),
        ("b.json", b'{"a": 1, "a": 2}', "the key a occurs twice in one object"),
        ("b.json", b'{"a": NaN}', "b.json: "),
        ("b.json", b"[" * 100_000, "b.json: "),
        ("c.rego", b"x" * 2_000_000, "c.rego: larger than"),
        ("d.yaml", b"day: 2026-01-01", "d.yaml: .*date"),
        ("d.yaml", b"a: 1\nb: 1\na: 2", "d.yaml:3: the key a occurs twice"),
        ("d.yaml", b"a: {1: x}", "d.yaml:1: keys are text"),
        ("d.yaml", b"a: [", "d.yaml:2: "),
        ("d.yaml", b"a: !!python/object:os.system x", "d.yaml:1: "),
        ("d.yaml", b"a: !!bool x", "d.yaml: "),
        ("d.yaml", b"a: !!timestamp x", "d.yaml: "),
        ("d.yaml", b"a: !!int ''", "d.yaml: "),
        ("d.yml", b"", "d.yml: a data document is an object"),
        ("d.yml", b"- 1", "d.yml: a data document is an object"),
    ],
)  # fmt: skip
def test_files_that_are_no_policy_are_refused(tmp_path, name, content, text):
    if not name.endswith((".rego", ".txt")):
        (tmp_path / "good.rego").write_text(RULES)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(PolicyUnusable, match=text) as refused:
        read_files(tmp_path).sources()
    assert str(tmp_path) in str(refused.value)


@given(st.text() | st.text(alphabet="ab:-{}[]!&*<>'\"|\n 0.e~"), st.sampled_from(["x.yaml", "x.json"]))
def test_any_text_is_an_object_or_refused(text, name):
    files = PolicyFiles({"a.rego": b""}, {name: text.encode(errors="surrogatepass")})
    found, refused = None, ""
    try:
        found = files.sources().data
    except PolicyUnusable as e:
        refused = str(e)
    assert refused.startswith(name) or json.loads(json.dumps(found, allow_nan=False)) == found


def test_two_files_must_not_set_the_same(tmp_path):
    (tmp_path / "a.rego").write_text(RULES)
    (tmp_path / "a.yaml").write_text("max: {p0: 1}\n")
    (tmp_path / "b.json").write_text('{"max": {"p0": 1}}')
    with pytest.raises(PolicyUnusable, match=r"b.json: data.max.p0 is set in another file, too"):
        read_files(tmp_path).sources()


def test_a_missing_file_is_refused(policy_path):
    missing = policy_path.with_name("nothing.rego")
    for wanted in ((missing, []), (policy_path, [missing])):
        with pytest.raises(PolicyUnusable, match=r"nothing.rego: No such file"):
            read_files(*wanted)


@pytest.mark.process
def test_the_version_is_that_of_sha256sum(policy_path, tmp_path):
    assert hashlib.sha256(RULES.encode()).hexdigest()[:8] == read_files(policy_path).version
    (tmp_path / "b.yaml").write_text("x: 1\n")
    shell = "sha256sum a.rego b.yaml | sha256sum"
    said = subprocess.run(
        ["sh", "-c", shell], cwd=tmp_path, capture_output=True, check=True, text=True
    ).stdout
    assert said[:8] == read_files(tmp_path).version


def test_any_change_is_another_version():
    texts = [
        policy_files(RULES),
        policy_files(RULES + " "),
        policy_files(RULES, data={"x": 1}),
        policy_files(RULES, data={"x": 2}),
        policy_files(RULES, RULES),
    ]
    assert len(texts) == len({files.version for files in texts})


# --- Following changes ---------------------------------------------------------------------------------------------


class Shelf:
    """What the files are, for each look: the last of `states` stays. An exception is raised."""

    def __init__(self, *states) -> None:
        self.states = list(states)
        self.looks = 0

    def read(self) -> PolicyFiles:
        self.looks += 1
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if isinstance(state, Exception):
            raise state
        return state


async def after(*states: PolicyFiles | Exception):
    """Decisions, problems and names after the start and after each further look at the files."""
    shelf, seen = Shelf(*states), []
    async with RegorusPolicy(shelf.read, PATIENT) as policy:
        before = policy._version
        for look in range(len(states)):
            if look:
                before = await policy._look(before)
            decision = await policy.decide({})
            seen.append((decision.approval, policy.problem, decision.policy))
    return seen


def required(seen):
    return [decision.required for decision, _, _ in seen]


GOOD, STRICT, BAD = policy_files(NEVER), policy_files(ALWAYS, data={"why": "a"}), policy_files(BROKEN)
GONE = PolicyUnusable("policy: No such file or directory")


async def test_a_change_decides_once_two_looks_have_seen_it():
    seen = await after(GOOD, GOOD, STRICT, STRICT, STRICT)
    assert [False, False, False, True, True] == required(seen)
    assert [False, False, True, False, False] == [bool(problem) for _, problem, _ in seen]
    assert [GOOD.version] * 3 + [STRICT.version] * 2 == [name.rpartition("@")[2] for _, _, name in seen]
    assert "rego:0.rego, data.json@" in seen[-1][2]


async def test_changed_data_is_a_change():
    other = policy_files(ALWAYS, data={"why": "b"})
    seen = await after(STRICT, other, other)
    assert [("a",), ("a",), ("b",)] == [decision.reasons for decision, _, _ in seen]


async def test_files_that_are_still_written_do_not_decide():
    half = [policy_files(NEVER[:n]) for n in (20, 40, 60)]
    seen = await after(STRICT, *half, STRICT)
    assert [("a",)] * 5 == [decision.reasons for decision, _, _ in seen]
    assert "" == seen[-1][1]


@pytest.mark.parametrize(
    "broken", [BAD, GONE, policy_files("package other\nx := 1"), policy_files(NEVER, data=[1])]
)
async def test_a_broken_change_means_approval_until_it_is_mended(broken):
    seen = await after(GOOD, broken, broken, broken, GOOD, STRICT, STRICT)
    assert [False, False, True, True, False, False, True] == required(seen)
    decision, problem, name = seen[2]
    assert "could not be evaluated" in decision.reasons[0]
    assert "cannot be used" in decision.reasons[0]
    assert "cannot be used" in problem
    assert name.endswith(f"@{GOOD.version}, replaced by one that cannot be used")
    assert ["", ""] == [seen[4][1], seen[6][1]]


async def test_a_broken_change_mended_by_another_version():
    seen = await after(GOOD, BAD, BAD, policy_files(NEVER + "\n"), policy_files(NEVER + "\n"))
    assert [False, False, True, True, False] == required(seen)


async def test_a_mended_policy_decides_while_the_old_process_still_ends():
    before, shelf = children(), Shelf(GOOD)
    async with RegorusPolicy(shelf.read, PATIENT) as policy:
        (old,) = children() - before
        shelf.states = [BAD]
        await policy._look(await policy._look(""))
        os.kill(old, signal.SIGSTOP)  # it does not end before it is killed
        shelf.states = [STRICT]
        taking_over = asyncio.create_task(policy._look(STRICT.version))

        async def is_replaced():
            return policy._version == STRICT.version

        await until(is_replaced)
        decision = await policy.decide({})
        assert ("a",) == decision.approval.reasons
        await taking_over


async def test_a_change_that_is_cancelled_leaves_no_process_behind():
    before, shelf = children(), Shelf(GOOD)
    async with RegorusPolicy(shelf.read, PATIENT) as policy:
        shelf.states = [STRICT]
        async with policy._lock:  # a decision takes its time
            looking = asyncio.create_task(policy._look(STRICT.version))

            async def is_ready():
                return 2 == len(children() - before) and policy._lock._waiters

            await until(is_ready)
            looking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await looking
            assert 1 == len(children() - before)
        assert not (await policy.decide({})).approval.required
    assert set() == children() - before


async def test_changes_leave_no_process_behind():
    before = children()
    await after(GOOD, STRICT, STRICT, BAD, BAD, BAD, GONE, GONE, GOOD)
    assert set() == children() - before
    shelf = Shelf(GOOD)
    async with RegorusPolicy(shelf.read, PATIENT) as policy:
        shelf.states = [STRICT]
        await policy._look(STRICT.version)
        assert ("a",) == (await policy.decide({})).approval.reasons
        assert 1 == len(children() - before)


async def test_the_files_are_followed_until_the_end(tmp_path):
    path = tmp_path / "approval.rego"
    path.write_text(NEVER)
    async with RegorusPolicy(lambda: read_files(path), PATIENT) as policy:
        following = asyncio.create_task(policy.follow(LOOK_SECONDS))
        new = path.with_suffix(".new")
        new.write_text(ALWAYS.replace("data.why", '"changed"'))
        new.rename(path)

        async def decided_anew():
            return (await policy.decide({})).approval.required

        await until(decided_anew)
        assert ("changed",) == (await policy.decide({})).approval.reasons
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following


async def test_each_decision_is_taken_by_one_version():
    """While versions change under load, a decision names the version that made it."""
    versions = [policy_files(ALWAYS, data={"why": str(n)}) for n in range(4)]
    known = {files.version: str(n) for n, files in enumerate(versions)}
    shelf = Shelf(versions[0])
    found, done = [], asyncio.Event()

    async def ask(policy):
        last = False
        while not last:
            last = done.is_set()
            decision = await policy.decide({})
            version = decision.policy.rpartition("@")[2]
            found.append((known[version], decision.approval.reasons[0]))

    async with RegorusPolicy(shelf.read, PATIENT) as policy:
        asking = [asyncio.create_task(ask(policy)) for _ in range(3)]
        for files in versions[1:]:
            shelf.states = [files]
            before = await policy._look("")
            await policy._look(before)
        done.set()
        await asyncio.gather(*asking)
    assert all(version == reason for version, reason in found)
    assert {"0", "3"} <= {version for version, _ in found}
    assert all(a[0] <= b[0] for a, b in pairwise(found))


async def test_policies_in_subdirectories_do_not_decide_and_are_told_of(tmp_path):
    (tmp_path / "a.rego").write_text(NEVER)
    hidden, below = tmp_path / "..data", tmp_path / "team" / "safety"
    for directory in (hidden, below):
        directory.mkdir(parents=True)
        (directory / "always.rego").write_text(ALWAYS)
        (directory / "always_test.rego").write_text(ALWAYS)
    assert (str(below / "always.rego"),) == read_files(tmp_path).unused
    assert () == read_files(tmp_path / "a.rego").unused
    async with RegorusPolicy(lambda: read_files(tmp_path), PATIENT) as policy:
        assert not (await policy.decide({})).approval.required
        assert str(below / "always.rego") in policy.problem
        assert "not used" in policy.problem


def test_few_policies_below_are_named(tmp_path):
    (tmp_path / "a.rego").write_text(NEVER)
    (tmp_path / "sub").mkdir()
    for n in range(50):
        (tmp_path / "sub" / f"{n}.rego").write_text(NEVER)
    found = read_files(tmp_path)
    assert 8 == len(found.unused)
    assert len(found.left_out) < 300
