"""The Policy port on Rego files, whose changes are followed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Self

import structlog

from worker.adapters.rego_policy.evaluator import Bounds, Evaluator
from worker.adapters.rego_policy.files import PolicyFiles, PolicyUnusable
from worker.domain.values.ports import PolicyDecision
from worker.domain.verdict.approval.policy import example_input
from worker.domain.verdict.approval.policy_answer import fail_closed

CHANGED = "the policy files have changed; the new ones decide once they have stayed the same for a while"

log = structlog.stdlib.get_logger(__name__)


class RegorusPolicy:
    """Implements the Policy port. Start it before use (`start`, or `async with`), close it afterwards.

    `read` gives the files as they are now, or raises PolicyUnusable.

    A change counts once two looks in a row have seen the same, so that files are not read while they are
    written: until then the policy that was good decides. Then the new one does, from one decision to the
    next. One that cannot be used means approval for everything until it is mended: its author wanted other
    rules than the old ones, perhaps stricter ones, and deciding by the old ones for longer would be looser
    than anything that is written now. `problem` tells.

    Policies that load but give no decision are noticed before an incident needs one: an example is decided
    when a policy is loaded, and again at each look while the last decision failed.
    """

    def __init__(self, read: Callable[[], PolicyFiles], bounds: Bounds | None = None) -> None:
        self._read, self._bounds = read, bounds or Bounds()
        self._evaluator: Evaluator | None = None
        self._lock = asyncio.Lock()
        self._title = self._version = self._unusable = self._notice = self._left_out = self._undecided = ""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def name(self) -> str:
        """The files that decide now and their version, such as `rego:approval.rego@1a2b3c4d`."""
        return f"{self._title}, replaced by one that cannot be used" if self._unusable else self._title

    @property
    def problem(self) -> str:
        """Why the present files, or some of them, do not decide; empty if all do."""
        return self._unusable or self._notice or self._undecided or self._left_out

    async def start(self) -> None:
        """Load the policy. Raises PolicyUnusable, so that a worker with a broken policy does not start."""
        files = await asyncio.to_thread(self._read)
        await self._serve(files)
        self._tell_left_out(files)

    async def close(self) -> None:
        """End the process."""
        async with self._lock:
            if self._evaluator is not None:
                await self._evaluator.close()

    async def decide(self, policy_input: Mapping[str, Any]) -> PolicyDecision:
        """The decision on one input.

        Never raises: after any failure, approval is required and the reason says so.
        """
        async with self._lock:
            name = self.name
            try:
                if self._unusable or self._evaluator is None:
                    raise PolicyUnusable(self._unusable or "the policy is not loaded")
                approval = (await self._evaluator.evaluate(policy_input)).approval
                self._undecided = ""
            except PolicyUnusable as e:
                approval = fail_closed(str(e))
                self._tell_undecided(str(e))
            return PolicyDecision(approval, name)

    async def follow(self, poll_seconds: float) -> None:
        """Follow changes of the files until cancelled."""
        before = self._version
        while True:
            await asyncio.sleep(poll_seconds)
            before = await self._look(before)
            if self._undecided:
                await self.decide(example_input())

    async def _look(self, before: str) -> str:
        """Look once. Returns the fingerprint to compare with the next one."""
        try:
            files = await asyncio.to_thread(self._read)
        except PolicyUnusable as e:
            seen = f"unreadable: {e}"
            if seen == before:
                self._refuse(str(e))
            else:
                self._notice = CHANGED
            return seen
        self._tell_left_out(files)
        if files.version == self._version:
            self._settle()
        elif files.version == before:
            await self._take_over(files)
        else:
            self._notice = CHANGED
        return files.version

    async def _take_over(self, files: PolicyFiles) -> None:
        """Let the new files decide.

        If this fails, it is retried at each look: the cause may be a lack of processes.
        """
        try:
            await self._serve(files)
        except PolicyUnusable as e:
            self._refuse(str(e))
        else:
            log.info("policy_reloaded", policy=self.name)

    async def _serve(self, files: PolicyFiles) -> None:
        sources = await asyncio.to_thread(files.sources)
        fresh = Evaluator(sources, self._bounds)
        try:
            await fresh.start()
            async with self._lock:
                old, self._evaluator = self._evaluator, fresh
                self._title, self._version = files.title, files.version
                self._settle()
        except BaseException:
            await fresh.close()
            raise
        if old is not None:
            await old.close()
        await self.decide(example_input())

    def _tell_left_out(self, files: PolicyFiles) -> None:
        """Log policy files that are not used, although the operator may expect them to be."""
        if files.left_out and files.left_out != self._left_out:
            log.warning("policy_files_unused", files=files.unused)
        self._left_out = files.left_out

    def _tell_undecided(self, why: str) -> None:
        text = f"the policy gave no decision: {why}"
        if text != self._undecided and not self._unusable:
            log.warning("policy_undecided", error=why)
        self._undecided = text

    def _refuse(self, why: str) -> None:
        text = f"the policy files have changed and cannot be used, so everything needs approval: {why}"
        if text != self._unusable:
            log.error("policy_unusable", error=why)
        self._unusable, self._notice = text, ""

    def _settle(self) -> None:
        if self._unusable:
            log.info("policy_usable", policy=self.name)
        self._unusable = self._notice = ""
