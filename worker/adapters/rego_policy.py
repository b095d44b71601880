"""Approval rules in Rego: the Policy port on an evaluator in a process of its own, which can be killed.

A policy is a file or a directory. Its decision is read from `package rca.approval`, or from `package
aianalysis.approval` as in the reference system: `require_approval` (a boolean), and if it likes `reasons` (or one
`reason`) and `risk_factors` (`score` 0 to 100, `reason`). A `package safety` with `validate_action(action)` must also
be true for the action (safety-aware investigation). JSON and YAML files beside the policy become `data` documents.

Whatever goes wrong, approval is required and the reason says so: a fault of the policy, no decision, a decision of the
wrong form, a time limit that is passed. The next evaluation gets a new process.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from schemas.analysis import Approval, RiskFactor
from worker.domain.evidence import one_line

APPROVAL_PACKAGES = ("rca.approval", "aianalysis.approval")
SAFETY_PACKAGE = "safety"
PROGRAM = Path(__file__).with_name("rego_process.py")
MAX_FILE_BYTES = 1024 * 1024
MAX_ANSWER_BYTES = 1024 * 1024
END_SECONDS = 1.0
MAX_REASONS = 32
MAX_REASON_CHARS = 500


class PolicyUnusable(Exception):  # noqa: N818 - a state, not a fault of the caller
    """The policy cannot be read or loaded, or decides nothing. The message says where and why."""


@dataclass(frozen=True, slots=True)
class PolicySources:
    """Rego modules by name, and `data` documents."""

    modules: Mapping[str, str]
    data: tuple[Any, ...] = ()


def read_policy(path: Path | None = None) -> PolicySources:
    """The policy in a file, in a directory (`*.rego`, data in `*.json`, `*.yaml`), or, without a path, the shipped one.

    Raises PolicyUnusable.
    """
    if path is None:
        return PolicySources(
            {"approval.rego": (files("worker") / "policies" / "approval.rego").read_text("utf-8")}
        )
    try:
        names = sorted(p for p in path.iterdir() if p.is_file()) if path.is_dir() else [path]
        modules = {p.name: _read(p) for p in names if p.suffix == ".rego" or p == path}
        data = tuple(
            yaml.safe_load(_read(p)) for p in names if p.suffix in {".json", ".yaml", ".yml"} and p != path
        )
        json.dumps(data, allow_nan=False)
    except (OSError, TypeError, ValueError, RecursionError, yaml.YAMLError) as e:
        raise PolicyUnusable(f"{path}: {one_line(str(e), MAX_REASON_CHARS)}") from e
    if not modules:
        raise PolicyUnusable(f"{path}: no *.rego file")
    return PolicySources(modules, data)


def _read(path: Path) -> str:
    if path.stat().st_size > MAX_FILE_BYTES:
        raise ValueError(f"{path.name} is larger than {MAX_FILE_BYTES} bytes")
    return path.read_text("utf-8")


class RegoPolicy:
    """The Policy port. Start it before use (`start`, or `async with`), close it afterwards.

    `cpu_seconds` bounds one evaluation by the CPU time it takes, so that a busy machine does not change decisions;
    `answer_seconds` by the wall clock, `start_seconds` the loading of the policy in a new process.
    """

    def __init__(
        self,
        sources: PolicySources,
        *,
        cpu_seconds: float = 0.05,
        answer_seconds: float = 2.0,
        start_seconds: float = 10.0,
    ) -> None:
        self._sources = sources
        self._cpu_seconds = cpu_seconds
        self._answer_seconds = answer_seconds
        self._start_seconds = start_seconds
        self._process: Process | None = None
        self._queries: dict[str, str] = {}
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def name(self) -> str:
        """The files the policy consists of, for the audit."""
        return ", ".join(self._sources.modules)

    async def start(self) -> None:
        """Load the policy. Raises PolicyUnusable, so that a worker with a broken policy does not start."""
        async with self._lock:
            await self._running()

    async def close(self) -> None:
        """End the process."""
        async with self._lock:
            await self._end()

    async def decide(self, policy_input: Mapping[str, Any]) -> Approval:
        """The decision on one input. Never raises: see the module."""
        async with self._lock:
            try:
                values = await self._evaluate(policy_input)
                return _approval(values, self._queries)
            except (PolicyUnusable, ValueError, TypeError, RecursionError) as e:
                return fail_closed(str(e))

    async def _evaluate(self, policy_input: Mapping[str, Any]) -> dict[str, Any]:
        process = await self._running()
        line = _line({"queries": self._queries, "input": dict(policy_input)})
        return dict((await self._ask(process, line, self._answer_seconds))["values"])

    async def _running(self) -> Process:
        """The process, started and loaded."""
        if self._process is not None and self._process.returncode is None:
            return self._process
        await self._end()
        policy = {
            "modules": dict(self._sources.modules),
            "data": self._sources.data,
            "cpu_seconds": self._cpu_seconds,
        }
        line = _line(policy)
        process = self._process = await _spawn()
        try:
            loaded = await self._ask(process, line, self._start_seconds)
            self._queries = _queries([str(name).removeprefix("data.") for name in loaded["packages"]])
        except PolicyUnusable:
            await self._end()
            raise
        return process

    async def _ask(self, process: Process, line: bytes, seconds: float) -> dict[str, Any]:
        """One line there, one line back. A process that did not answer, or that nobody waited for, is ended."""
        if process.stdin is None or process.stdout is None:
            raise PolicyUnusable("the evaluator has no pipes")
        answered = b""
        try:
            async with asyncio.timeout(seconds):
                process.stdin.write(line)
                await process.stdin.drain()
                answered = await process.stdout.readline()
        except TimeoutError:
            raise PolicyUnusable(f"no answer within {seconds:g} s") from None
        except (OSError, ValueError) as e:
            raise PolicyUnusable(f"the evaluator ended: {e}") from e
        finally:
            if not answered.endswith(b"\n"):
                code = await self._end(hung=not process.stdout.at_eof())
        if not answered.endswith(b"\n"):
            raise PolicyUnusable(self._death(code))
        answer: dict[str, Any] = json.loads(answered)
        if "error" in answer:
            raise PolicyUnusable(str(answer["error"]))
        return answer

    def _death(self, code: int | None) -> str:
        if code == -signal.SIGPROF:
            return f"it took longer than {self._cpu_seconds * 1000:g} ms"
        return f"the evaluator ended with code {code}"

    async def _end(self, *, hung: bool = False) -> int | None:
        """End the process if there is one. Its exit code, negative for a signal.

        Without its input the process ends by itself. `kill` on one that is about to end would take its exit code away
        from the event loop (`Popen.send_signal` polls), so only a process that hangs is killed.
        """
        process, self._process = self._process, None
        if process is None:
            return None
        if process.stdin is not None:
            process.stdin.close()
        if not hung:
            with suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    return await process.wait()
        with suppress(ProcessLookupError):
            process.kill()
        return await process.wait()


def _line(document: Any) -> bytes:
    return json.dumps(document, allow_nan=False).encode() + b"\n"


async def _spawn() -> Process:
    """The evaluator. It gets nothing of the worker's environment, and no signals meant for the worker's group."""
    environment = {k: v for k, v in os.environ.items() if k in {"LD_LIBRARY_PATH", "PATH"}}
    try:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-I", str(PROGRAM), stdin=PIPE, stdout=PIPE, stderr=DEVNULL,
            env=environment, limit=MAX_ANSWER_BYTES, start_new_session=True,
        )  # fmt: skip
    except OSError as e:
        raise PolicyUnusable(f"the evaluator does not start: {e}") from e


def _queries(packages: list[str]) -> dict[str, str]:
    """What to ask a policy with these packages. Raises PolicyUnusable when none of them decides."""
    queries = {}
    approval = next((name for name in APPROVAL_PACKAGES if name in packages), "")
    if approval:
        queries["approval"] = f"data.{approval}"
    if SAFETY_PACKAGE in packages:
        queries["safety"] = "data.safety.validate_action(input.action)"
    if not queries:
        wanted = " or ".join((*APPROVAL_PACKAGES, SAFETY_PACKAGE))
        raise PolicyUnusable(f"no package {wanted}, only {', '.join(packages) or 'none'}")
    return queries


def fail_closed(detail: str) -> Approval:
    """The decision when there is none."""
    reason = one_line(f"the approval policy could not be evaluated: {detail}", MAX_REASON_CHARS)
    return Approval(required=True, reasons=(reason,))


def _approval(values: Mapping[str, Any], queries: Mapping[str, str]) -> Approval:
    """The decision in the values of the queries. Raises ValueError for one that is no decision."""
    if not queries:
        raise ValueError("the policy was asked nothing")
    reasons: list[str] = []
    required = False
    factors: tuple[RiskFactor, ...] = ()
    if "approval" in queries:
        decision = values.get("approval")
        if not isinstance(decision, dict) or not isinstance(decision.get("require_approval"), bool):
            raise ValueError(f"{queries['approval']}.require_approval is not a boolean")
        required = decision["require_approval"]
        factors = _risk_factors(decision.get("risk_factors"))
        reasons = _reasons(decision) if required else []
    if "safety" in queries and values.get("safety") is not True:
        required = True
        reasons.append("the safety policy does not validate the action")
    return Approval(required=required, reasons=tuple(reasons), risk_factors=factors)


def _reasons(decision: Mapping[str, Any]) -> list[str]:
    said = decision.get("reasons", decision.get("reason"))
    listed = [said] if isinstance(said, str) else said if isinstance(said, list) else []
    reasons = sorted(
        {one_line(text, MAX_REASON_CHARS) for text in listed if isinstance(text, str) and text.strip()}
    )
    return reasons[:MAX_REASONS] or ["the approval policy requires it"]


def _risk_factors(found: Any) -> tuple[RiskFactor, ...]:
    """The highest first. A factor of another form is a fault of the policy: ValueError."""
    factors = []
    for factor in found if isinstance(found, list) else []:
        score, reason = (
            (factor.get("score"), factor.get("reason")) if isinstance(factor, dict) else (None, None)
        )
        if (
            isinstance(score, bool)
            or not isinstance(score, int | float)
            or not isinstance(reason, str)
            or not reason
        ):
            raise ValueError("a risk factor is not {score: number, reason: text}")
        factors.append(
            RiskFactor(score=round(min(max(score, 0), 100)), reason=one_line(reason, MAX_REASON_CHARS))
        )
    return tuple(sorted(factors, key=lambda factor: (-factor.score, factor.reason))[:MAX_REASONS])
