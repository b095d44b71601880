"""How many variants of the known incidents keep their verdict: `python -m tests.eval_variants [--all] [WORDS]`.

By default every second variant is tried. WORDS limit the run to cases and mutations whose names have one of them.
Exits with 1 when fewer than 90 % keep what they must keep (`tests/variants` says what that is), or a workflow is wrong.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from zlib import crc32

from schemas.analysis import Status
from tests.fakes.analyst_scoring import AnalystModel, Ran, analyse
from tests.fakes.memory_catalog import MemoryCatalog
from tests.fakes.memory_cluster import MemoryCluster
from tests.variants.content import CaseContent, read_cases
from tests.variants.mutations import MUTATIONS, Keeps, Mutation
from tests.variants.telling import without_logs

LEAST = 0.9
STEP = 2


@dataclass(frozen=True)
class Scored:
    """One variant. `lost` says what of the verdict did not stay; empty when all did."""

    case: str
    mutation: Mutation
    ran: Ran
    lost: str

    @property
    def kept(self) -> bool:
        """Whether everything that must stay true did."""
        return not self.lost


async def run(content: CaseContent) -> Ran:
    """Analyse an incident in memory, with the offline analyst as the model."""
    model = AnalystModel()
    cluster = MemoryCluster(content.objects, content.logs)
    result = await analyse(content.incident, cluster, MemoryCatalog(content.workflows), model)
    return Ran(content.name, result, content.expected, model.requests)


def variants(
    content: CaseContent, step: int, words: Sequence[str] = ()
) -> Iterator[tuple[Mutation, CaseContent]]:
    """The variants of a case; of those that apply every `step`th, evenly over cases and mutations."""
    for mutation in MUTATIONS:
        seed = crc32(f"{content.name} {mutation.name}".encode())
        if seed // 7 % step or (words and not any(w in f"{content.name} {mutation.name}" for w in words)):
            continue
        changed = mutation.apply(content, Random(seed))
        if changed is not None:
            yield mutation, changed


def lost(before: Ran, after: Ran, keeps: Keeps, *, unexplained: bool = False) -> str:
    """What of a verdict has changed for the worse, in a few words; empty when nothing has.

    `unexplained`: both times nothing but the object that raised the alert is named, so it may be another one.
    """
    resolved = after.result.status is Status.RESOLVED and before.result.status is not Status.RESOLVED
    said = "resolved" if resolved else ""
    if after.workflow_wrong:
        said = f"wrong workflow {after.workflow}"
    if said or keeps is Keeps.SAFETY:
        return said
    if not (unexplained or (after.best if before.best else after.acceptable)):
        said = f"blames {'/'.join(after.resource)}"
    elif before.workflow_fits and not after.workflow_fits:
        said = f"no workflow (was {before.workflow})"
    elif before.signal_fits and after.expected["signal_type"] and not after.signal_fits:
        said = (
            f"signal type {after.result.root_cause_analysis and after.result.root_cause_analysis.signal_type}"
        )
    return said


async def evaluate(step: int = STEP, words: Sequence[str] = ()) -> list[Scored]:
    """Try the variants of all cases."""
    found: list[Scored] = []
    for content in read_cases():
        tried = list(variants(content, step, words))
        if not tried:
            continue
        before = await run(content)
        silent = without_logs(content)
        needs_logs = silent is not None and bool(lost(before, await run(silent), Keeps.VERDICT))
        for mutation, changed in tried:
            keeps = mutation.keeps
            if keeps is Keeps.VERDICT_WITHOUT_LOGS and needs_logs:
                keeps = Keeps.SAFETY
            after = await run(changed)
            unexplained = _names_alert(before, content) and _names_alert(after, changed)
            found.append(
                Scored(content.name, mutation, after, lost(before, after, keeps, unexplained=unexplained))
            )
    return found


def _names_alert(ran: Ran, content: CaseContent) -> bool:
    kind, namespace, name = content.signal
    return ran.resource == (kind, name, namespace)


def report(found: Sequence[Scored]) -> bool:
    """Print the shares and what failed. Whether enough has been kept, and no workflow is wrong."""
    for title, key in (("mutation", lambda s: s.mutation.name), ("case", lambda s: s.case)):
        groups: dict[str, list[Scored]] = defaultdict(list)
        for scored in found:
            groups[key(scored)].append(scored)
        print(f"by {title}:")
        for name, members in groups.items():
            kept = sum(s.kept for s in members)
            if title == "mutation" or kept < len(members):
                print(f"  {name:58} {kept:4} of {len(members):4}")
    for scored in found:
        if scored.lost:
            print(f"LOST {scored.case} {scored.mutation.name}: {scored.lost}")
    kept, wrong = sum(s.kept for s in found), sum(s.ran.workflow_wrong for s in found)
    share = kept / len(found)
    print(
        f"variants that keep what they must keep: {kept} of {len(found)} ({share:.1%}); wrong workflows: {wrong}"
    )
    return share >= LEAST and not wrong


def main() -> None:
    words = [w for w in sys.argv[1:] if not w.startswith("-")]
    found = asyncio.run(evaluate(1 if "--all" in sys.argv else STEP, words))
    sys.exit(not report(found))


if __name__ == "__main__":
    main()
