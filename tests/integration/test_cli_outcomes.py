"""`rca outcomes report` as somebody types it: published results and outcomes, counted."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from schemas.analysis import Approval, Corroboration
from schemas.permissions import Role
from schemas.taxonomy import RequestKind
from tests.commands import rca
from tests.fakes.proposals import ACTION, outcome, result
from tests.nats_roles import SUBJECTS, environment_of, shipped_server, speaking
from tests.nats_servers import one_server, provisioned
from worker.adapters.nats.layout import wanted
from worker.adapters.nats.provision import provision

REPORT = ("outcomes", "report")
OBSERVED = Approval(required=True, would_require=False)
NOW = datetime.now(UTC)


async def publish(js, subjects, key, executed=None, **fields):
    await js.publish(subjects.result(RequestKind.INCIDENT, key), result(**fields))
    if executed:
        await js.publish(subjects.outcome(key), executed)


async def fill(js, subjects):
    """Three proposals in staging, one in production a month ago, an outcome of nobody, and a message nobody can read."""
    await publish(js, subjects, "rr-1", outcome(), completed_at=NOW, approval=OBSERVED)
    await publish(js, subjects, "rr-2", outcome(outcome="failed"), completed_at=NOW, approval=OBSERVED)
    none = Corroboration(by="none")
    required = Approval(required=True, would_require=True)
    await publish(js, subjects, "rr-3", completed_at=NOW, corroboration=none, approval=required)
    month_ago = NOW - timedelta(days=30)
    await publish(js, subjects, "rr-4", outcome(), completed_at=month_ago, environment="production")
    await js.publish(subjects.outcome("rr-5"), outcome())
    await js.publish(subjects.outcome("rr-6"), b"?")


@pytest.fixture
async def filled(tmp_path):
    async with one_server(tmp_path) as server, provisioned([server]) as case:
        await fill(case.js, case.subjects)
        yield {"RCA_NATS__SERVERS": server.url}


SHOWN = """\
  environment     corroborated  proposed  would pass  succeeded  failed  unknown
IncreaseMemoryLimits
  production      rules                1           1          1       0        0
  staging         none                 1           0          0       0        1
  staging         rules                2           2          1       1        0
all
  proposed                             4           3          2       1        1
  would pass                           3           3          2       1        0
1 outcome without such a result: it has expired, or was never published
1 message could not be read
"""


async def test_the_report_fits_a_terminal(filled):
    ended = await rca(*REPORT, env=filled)
    assert (0, SHOWN, "") == (ended.code, ended.out, ended.err)
    assert max(map(len, ended.out.splitlines())) <= 80


@pytest.mark.parametrize("since", ["7d", (NOW - timedelta(days=2)).date().isoformat()])
async def test_the_report_in_json(filled, since):
    ended = await rca(*REPORT, "--since", since, "--json", env=filled)
    told = json.loads(ended.out)
    counts = {"proposed": 1, "would_pass": 0, "succeeded": 0, "failed": 0, "unknown": 1}
    assert {"action_type": ACTION, "environment": "staging", "corroboration": "none", **counts} == told[
        "groups"
    ][0]
    assert {"proposed": 3, "would_pass": 2, "succeeded": 1, "failed": 1, "unknown": 1} == told["total"]
    assert {"proposed": 2, "would_pass": 2, "succeeded": 1, "failed": 1, "unknown": 0} == (
        told["would_have_passed"]
    )
    assert (1, 1) == (told["outcomes_without_result"], told["unreadable"])
    assert datetime.fromisoformat(told["since"]) < NOW


async def test_nothing_was_proposed(filled):
    ended = await rca(*REPORT, "--since", (NOW + timedelta(days=1)).date().isoformat(), env=filled)
    assert (0, "no result proposes a workflow") == (ended.code, ended.out.splitlines()[0])


async def test_an_invalid_time_is_a_mistake_of_usage():
    ended = await rca(*REPORT, "--since", "last week")
    assert 2 == ended.code
    assert "--since" in ended.err


async def test_streams_that_are_missing_are_named(tmp_path):
    async with one_server(tmp_path) as server:
        ended = await rca(*REPORT, env={"RCA_NATS__SERVERS": server.url})
    assert (1, "") == (ended.code, ended.out)
    assert "rca provision" in ended.err


@pytest.mark.parametrize("role", [Role.OPERATOR, Role.AUDIT_READER])
async def test_roles_that_may_read_it(tmp_path, role):
    async with shipped_server(tmp_path) as server:
        async with speaking(server, Role.PROVISIONER) as provisioner:
            await provision(provisioner.nc, wanted(SUBJECTS))
        async with speaking(server, Role.WORKER) as worker, speaking(server, Role.EXECUTOR) as executor:
            await worker.js.publish("rca.result.incident.rr-1", result())
            await executor.nc.publish("rca.outcome.rr-1", outcome())
            await executor.nc.flush()
        ended = await rca(*REPORT, "--json", env=environment_of(server, role))
    assert 0 == ended.code, ended.err
    assert 1 == json.loads(ended.out)["total"]["succeeded"]


async def test_a_role_that_may_not_is_denied(tmp_path):
    async with shipped_server(tmp_path) as server:
        ended = await rca(*REPORT, env=environment_of(server, Role.GATEWAY))
    assert 1 == ended.code
    assert "does not allow" in ended.err
