"""Play the drills: real worker processes, a real nats-server, real signals. Prints a table in Markdown.

Exit code 0 when all rows pass, 1 when one fails (the others are played all the same), 2 for a wrong name.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.drills import broker, deaths, faults, garbage, load, machine, neighbours, operators, streams
from tests.drills.stage import Ground, ground
from tests.drills.table import Drill, Outcome

MAX_SECONDS = 600.0
DRILLS = (
    Drill(
        "load",
        "1,000 incidents, 4 worker processes, model 200 ms",
        "lost 0, duplicate results 0",
        deaths.many_incidents,
    ),
    Drill(
        "kills",
        "kill -9 a random worker 20 times during 500 incidents",
        "lost 0, duplicates 0, journaled steps paid again 0, outstanding calls <= 1 per run in flight",
        deaths.killed_workers,
    ),
    Drill(
        "before-ack", "crash between publish and ack", "extra LLM calls 0, results 1", deaths.crash_before_ack
    ),
    Drill(
        "broker",
        "nats-server kill -9 and restart x 20 under load",
        "acknowledged lost 0",
        broker.broker_killed,
    ),
    Drill(
        "away",
        "NATS away 60 s",
        "not ready <= 10 s, back <= 10 s after, lost 0",
        broker.broker_away,
        beside=True,
    ),
    Drill(
        "outlive",
        "NATS away 45 s with 16 runs in flight in 2 workers",
        "no run counts as dead or runs in isolation, lost 0",
        broker.runs_outlive_the_broker,
    ),
    Drill(
        "stop-away",
        "SIGTERM while NATS is away, which returns 4 s after the drain; a fresh worker waits for it",
        "exit 0, no run counts as dead or runs in isolation, lost 0",
        broker.stopped_while_away,
    ),
    Drill(
        "frozen",
        "SIGSTOP for 3 x ack_wait, then CONT",
        "results 1, the stale write refused",
        deaths.frozen_worker,
    ),
    Drill(
        "sigterm",
        "SIGTERM mid-run",
        "exit 0 in drain_seconds + 5 s, redelivered <= 5 s, journal used",
        deaths.stopped_worker,
    ),
    Drill(
        "poison",
        "a request that crashes its process",
        "dead letter after 3 deaths while alone, every neighbour gets its result",
        deaths.poison,
        beside=True,  # it mostly waits, longer after each death
    ),
    Drill(
        "exhausted",
        "max deliveries exhausted",
        "in the DLQ <= 60 s, stranded 0",
        broker.deliveries_exhausted,
    ),
    Drill("same", "same id x 10, also outside the duplicate window", "results 1", broker.same_id),
    Drill(
        "aside",
        "a P0 arrives while a suspect (P3) runs alone after the death of its worker",
        "the P0 waits for <= 1 call of it, nothing runs beside it, journaled steps paid again 0",
        deaths.suspect_steps_aside,
    ),
    Drill(
        "aside-p0",
        "a P0 arrives while 8 suspects of the P0 lane are retried in isolation",
        "the P0 waits for <= 1 call of them, nothing runs beside a suspect",
        deaths.p0_suspects,
    ),
    Drill(
        "storm", "2,000 P3 queued, a P0 arrives", "P0 starts <= 1 s later than in an idle worker", load.storm
    ),
    Drill(
        "bad-model",
        "the model answers 529 to half of the calls, hangs in 10 % and cuts the answer in 5 %",
        "results for 100 %, valid or needs-human, <= 5 tries of a call between two outages, each call explained",
        faults.bad_model,
    ),
    Drill(
        "bad-cluster",
        "Kubernetes 50 % 429/500/timeout",
        "results 100 %, gaps marked unknown",
        faults.bad_cluster,
    ),
    Drill(
        "wrong-model",
        "a model name that does not exist (404), 20 queued",
        "readiness gives the provider's message <= 15 s, escalated <= 1",
        faults.wrong_model,
    ),
    Drill(
        "rejected",
        "a setting that the provider rejects in every request (400), 20 queued",
        "readiness gives the provider's message <= 15 s, escalated <= 1",
        faults.rejected_setting,
    ),
    Drill(
        "outage",
        "the model answers 503 for longer than the patience of a request, 20 queued",
        "readiness says so <= 15 s, escalated <= 1",
        faults.model_outage,
    ),
    Drill(
        "html",
        "a proxy answers every call of the model with a page (200, HTML), 20 queued",
        "readiness says so <= 15 s, escalated <= 1",
        faults.model_is_a_page,
    ),
    Drill(
        "hang",
        "the model takes every call and answers none",
        "a notice and a metric <= 15 s, escalated 0",
        faults.model_hangs,
    ),
    Drill(
        "cluster-401",
        "Kubernetes rejects the credentials (401), 20 queued",
        "readiness says so <= 15 s, none analysed without the cluster",
        faults.cluster_credentials,
    ),
    Drill(
        "cluster-403",
        "Kubernetes forbids everything (403), 20 queued",
        "readiness says so <= 15 s, none analysed without the cluster",
        faults.cluster_rights,
    ),
    Drill(
        "cluster-down",
        "the API server drops every connection, 20 queued",
        "readiness says so <= 15 s, none analysed without the cluster",
        faults.cluster_down,
    ),
    Drill("garbage", "100,000 generated bodies", "crashes 0, each answered", garbage.generated_bodies),
    Drill(
        "leaders",
        "three local servers, R3, leader killed 20 times",
        "acknowledged lost 0, results 1 each",
        broker.leader_killed,
    ),
    Drill(
        "upgrade",
        "three local servers, R3; each in turn goes into lame duck mode, ends and is started again, under load",
        "acknowledged lost 0, results 1 each, no run counts as dead or runs in isolation",
        broker.servers_upgraded,
    ),
    Drill(
        "anew",
        "the stream of requests is deleted and provisioned again under load",
        "every request of the new stream gets its result, both rejections with the same sequence number are published",
        streams.queue_created_anew,
    ),
    Drill(
        "consumer",
        "the consumer of a lane is deleted and provisioned again, with free slots and with none",
        "no live run is replaced, calls paid again 0, lost 0",
        streams.consumer_created_anew,
    ),
    Drill(
        "wiped",
        "the server comes back with an empty store under a running worker",
        "readiness says so <= 15 s, lost 0 of what is published afterwards",
        streams.store_wiped,
    ),
    Drill(
        "seen",
        "a lane or a stream is deleted, or refuses writes, one after the other",
        "readiness names it <= 15 s and the metric too, lost 0, duplicates 0",
        streams.faults_seen,
    ),
    Drill(
        "stranded",
        "deliveries are exhausted while the DLQ stores nothing",
        "readiness says so, stranded 0 once the DLQ stores again",
        streams.requests_stranded,
    ),
    Drill(
        "full",
        "three times 56 requests of 300 KB for a store of 16 MiB",
        "those above the limit refused when published, lost 0 of those accepted, journal deleted",
        streams.store_full,
    ),
    Drill(
        "disk",
        "the disk of the server is full (ENOSPC) with 4 runs in flight; freed, and the server restarted later",
        "readiness says so <= 15 s, lost 0",
        streams.disk_full,
    ),
    Drill(
        "letters",
        "2,000 dead letters are listed, `drop` and `replay` of one are repeated; a journal of 2,000 steps is read",
        "all listed and read, a repeated command ends <= 10 s with code 1, replayed once (queued 1)",
        operators.letters_and_steps,
    ),
    Drill(
        "kind",
        "the stream of results has another retention when a worker starts",
        "readiness names it <= 15 s, calls 0; lost 0 once it is created anew",
        operators.other_kind,
    ),
    Drill(
        "ack-wait",
        "ack_wait of the consumers is not that of the settings, and changes",
        "calls paid again 0",
        streams.ack_wait_changed,
    ),
    Drill(
        "policy",
        "the policy process is killed or frozen again and again under load; then none can run for some time",
        "lost 0, duplicates 0, not checked 0, undecided <= 10 and said while none can run, no process left over",
        neighbours.policy_process_lost,
    ),
    Drill(
        "catalog",
        "PostgreSQL with the catalog is stopped or crashes 6 times under load, for 3 s each",
        "lost 0, duplicates 0, escalated 0",
        neighbours.catalog_restarted,
    ),
    Drill(
        "clock",
        "the clock of the worker is two hours ahead; six requests expire in 10 min, a seventh in 3 s",
        "said <= 15 s, expired falsely 0, the one that is late expires",
        machine.wrong_clock,
    ),
    Drill(
        "files",
        "`ulimit -n 64`, all lanes full; then all but 3 descriptors are gone",
        "fewer slots, said <= 15 s, no failed analysis, no gaps",
        machine.few_files,
    ),
)
SOAK = Drill(
    "soak",
    "10 min at 5 incidents/s after 2 min warm-up",
    "RSS growth <= 2 MiB, no task or fd leak",
    load.soak,
)


async def play(drill: Drill, on: Ground, seconds: float) -> Outcome:
    """One row. A drill that breaks off has failed, whatever the reason."""
    try:
        async with asyncio.timeout(seconds):
            return await drill.run(on)
    except TimeoutError:
        return Outcome(passed=False, measured=f"not done within {seconds:.0f} s")
    except Exception as e:  # noqa: BLE001 - the other rows are still worth playing
        traceback.print_exc()
        return Outcome(passed=False, measured=f"broke off: {e!r}"[:200])


def written(drills: Sequence[Drill], outcomes: Mapping[str, Outcome]) -> str:
    """The table in Markdown."""
    rows = ["| drill | must hold | measured | |", "|---|---|---|---|"]
    for drill in drills:
        outcome = outcomes[drill.name]
        cells = (drill.title, drill.wanted, outcome.measured, "pass" if outcome.passed else "FAIL")
        rows.append("| " + " | ".join(" ".join(cell.replace("|", "/").split()) for cell in cells) + " |")
    return "\n".join(rows)


async def play_all(drills: Sequence[Drill], seconds: float, directory: Path) -> dict[str, Outcome]:
    """The outcome of each by name. Progress goes to stderr."""
    outcomes: dict[str, Outcome] = {}

    async def one(drill: Drill) -> None:
        say(f"{drill.name}: {drill.title}")
        began = time.monotonic()
        outcome = outcomes[drill.name] = await play(drill, on, seconds)
        verdict = "passed" if outcome.passed else "FAILED"
        took = time.monotonic() - began
        say(
            f"{drill.name}: {verdict} in {took:.0f} s: {outcome.measured} ({len(outcomes)} of {len(drills)} done)"
        )

    async with ground(directory, lambda text: say(f"      {text}")) as on:
        beside = [asyncio.create_task(one(drill)) for drill in drills if drill.beside]
        for drill in drills:
            if not drill.beside:
                await one(drill)
        await asyncio.gather(*beside)
    return outcomes


def say(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """The command line."""
    by_name = {drill.name: drill for drill in (*DRILLS, SOAK)}
    listed = "\n".join(f"  {d.name:<12} {d.title}: {d.wanted}" for d in by_name.values())
    parser = argparse.ArgumentParser(
        prog="python -m tests.drills",
        description=__doc__,
        epilog=f"drills:\n{listed}\n\nexample: python -m tests.drills poison sigterm --out drills.md",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which drills; by default all but soak")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the table to this file as well")
    chosen = parser.parse_args()
    if unknown := [name for name in chosen.names if name not in by_name]:
        parser.error(f"no drill called {', '.join(unknown)}; there are {', '.join(by_name)}")
    drills = [by_name[name] for name in chosen.names] or list(DRILLS)
    began, directory = time.monotonic(), Path(tempfile.mkdtemp(prefix="rca-drills-"))
    outcomes = asyncio.run(play_all(drills, 1_200.0 if SOAK in drills else MAX_SECONDS, directory))
    table = written(drills, outcomes)
    print(table)
    if chosen.out:
        chosen.out.write_text(table + "\n")
    passed = sum(outcome.passed for outcome in outcomes.values())
    print(f"\n{passed} of {len(drills)} rows passed in {time.monotonic() - began:.0f} s")
    if passed < len(drills):
        say(f"logs: {directory}")
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
