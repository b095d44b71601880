"""One version of a policy in a process of its own, which can be killed.

After that, the next evaluation gets a new process.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import os
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.analysis import Approval
from worker.adapters.rego_policy.files import PolicySources, PolicyUnusable
from worker.domain.verdict.approval.policy_answer import approval_decision, safety_decision, strictest

PROGRAM = Path(__file__).with_name("process.py")
MAX_INPUT_BYTES = 1024 * 1024
MAX_ANSWER_BYTES = 1024 * 1024
END_SECONDS = 1.0
APPROVAL_PACKAGES = ("rca.approval", "aianalysis.approval")
SAFETY_PACKAGE = "safety"
DECIDING = dict.fromkeys(APPROVAL_PACKAGES, "require_approval") | {SAFETY_PACKAGE: "validate_action"}
"""The packages that decide, and the rule each must have."""
SAFETY_RULES = ("validate_action", "requires_approval", "reasons", "risk_factors")
WANTED = (
    f"a policy has a rule require_approval in package {' or '.join(APPROVAL_PACKAGES)}, "
    f"or validate_action(action) in package {SAFETY_PACKAGE}"
)
SHOWN_RULES = 10

Rules = Mapping[str, int | None]
"""Full names of rules, and how many arguments each takes; None if it is not a function."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of one evaluation.

    `cpu_seconds` bounds its CPU time, so that a busy machine does not change decisions; `answer_seconds` by
    the wall clock; `start_seconds` the loading of the policy in a new process. `memory_bytes` is the memory
    of that process, of which it needs 60 MB for itself.
    """

    cpu_seconds: float = 0.05
    answer_seconds: float = 2.0
    start_seconds: float = 10.0
    memory_bytes: int = 256 * 1024 * 1024


class ProcessLost(PolicyUnusable):
    """The process died or stopped without passing a limit, which says nothing about the policy."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A decision, and its duration by the wall clock."""

    approval: Approval
    seconds: float


class Evaluator:
    """Evaluates one version of a policy.

    The caller sends one input at a time, and closes the evaluator in the end.
    """

    def __init__(self, sources: PolicySources, bounds: Bounds) -> None:
        self._sources, self._bounds = sources, bounds
        self._process: Process | None = None
        self._asked: dict[str, str] = {}
        self._fault, self._start_after = "", 0.0

    async def evaluate(self, policy_input: Mapping[str, Any]) -> Evaluated:
        """The decision on one input. Raises PolicyUnusable, with the reason, if there is none.

        If the process is lost meanwhile, a new one evaluates the input once more.
        """
        try:
            return await self._evaluate(policy_input)
        except ProcessLost:
            return await self._evaluate(policy_input)

    async def _evaluate(self, policy_input: Mapping[str, Any]) -> Evaluated:
        process = await self.start()
        with _translated():
            line = _line({"queries": self._asked, "input": dict(policy_input)})
            if len(line) > MAX_INPUT_BYTES:
                raise PolicyUnusable(f"the input is longer than {MAX_INPUT_BYTES} bytes")
            answer = await self._ask(process, line, self._bounds.answer_seconds)
            approval = decision(answer["values"], self._asked, _action(policy_input))
            return Evaluated(approval, answer["seconds"])

    async def start(self) -> Process:
        """Start the process and load the policy, unless it is there already. Raises PolicyUnusable.

        After a failed start, none is tried for as long as it took: where starts hang, decisions that wait for
        one another would else take that long each.
        """
        if self._process is not None and self._process.returncode is None:
            return self._process
        if (began := time.monotonic()) < self._start_after:
            raise PolicyUnusable(self._fault)
        await self.close()
        policy = {
            "modules": dict(self._sources.modules),
            "data": dict(self._sources.data),
            "cpu_seconds": self._bounds.cpu_seconds,
            "memory_bytes": self._bounds.memory_bytes,
        }
        try:
            with _translated():
                line = _line(policy)
                process = self._process = await _spawn()
                answer = await self._ask(process, line, self._bounds.start_seconds)
                self._asked = questions(answer["rules"])
        except PolicyUnusable as e:
            await self.close()
            self._fault, self._start_after = str(e), 2 * time.monotonic() - began
            # Not a ProcessLost, because a process that is lost at its start is not replaced at once.
            raise PolicyUnusable(self._fault) from e
        return process

    async def _ask(self, process: Process, line: bytes, seconds: float) -> dict[str, Any]:
        """Send a line and read one. Ends the process if it does not answer, or if the call is cancelled."""
        if process.stdin is None or process.stdout is None:
            raise PolicyUnusable("the evaluator has no pipes")
        answered = b""
        try:
            async with asyncio.timeout(seconds):
                process.stdin.write(line)
                with suppress(ConnectionError):  # it ended early; its exit code tells why
                    await process.stdin.drain()
                answered = await process.stdout.readline()
        except TimeoutError:
            raise ProcessLost(f"no answer within {seconds:g} s") from None
        except ValueError:
            raise PolicyUnusable(f"its answer is longer than {MAX_ANSWER_BYTES} bytes") from None
        finally:
            if not answered.endswith(b"\n"):
                code = await self.close(hung=not process.stdout.at_eof())
        if not answered.endswith(b"\n"):
            raise self._death(code)
        answer: dict[str, Any] = json.loads(answered)
        if "error" in answer:
            raise PolicyUnusable(str(answer["error"]))
        return answer

    def _death(self, code: int | None) -> PolicyUnusable:
        if code == -signal.SIGPROF:
            return PolicyUnusable(f"it took longer than {self._bounds.cpu_seconds * 1000:g} ms")
        if code == -signal.SIGABRT:
            return PolicyUnusable(f"it needed more than {self._bounds.memory_bytes // 1024**2} MiB of memory")
        return ProcessLost(f"the evaluator ended with code {code}")

    async def close(self, *, hung: bool = False) -> int | None:
        """End the process if there is one. Its exit code, negative for a signal.

        Without its input the process ends by itself. `kill` on one that is about to end would take its exit
        code away from the event loop (`Popen.send_signal` polls), so only a process that hangs is killed.
        """
        process, self._process = self._process, None
        if process is None:
            return None
        if process.stdin is not None:
            process.stdin.close()
        try:
            if not hung:
                with suppress(TimeoutError):
                    async with asyncio.timeout(END_SECONDS):
                        return await process.wait()
            return await _killed(process)
        except asyncio.CancelledError:  # only this call knows the process now
            await _killed(process)
            raise


async def _killed(process: Process) -> int:
    with suppress(ProcessLookupError):
        process.kill()
    return await process.wait()


@contextmanager
def _translated() -> Iterator[None]:
    """Raise PolicyUnusable for values that are not JSON, and for answers of the wrong form."""
    try:
        yield
    except (ValueError, TypeError, LookupError, RecursionError) as e:
        raise PolicyUnusable(str(e) or type(e).__name__) from e


def _action(policy_input: Mapping[str, Any]) -> str:
    action = policy_input.get("action")
    return str(action.get("action") or "the action") if isinstance(action, dict) else "the action"


def _line(document: Any) -> bytes:
    return json.dumps(document, allow_nan=False).encode() + b"\n"


async def _spawn() -> Process:
    """Start the evaluator without the worker's environment and outside its process group.

    Signals sent to the group of the worker thus do not reach it.
    """
    environment = {k: v for k, v in os.environ.items() if k in {"LD_LIBRARY_PATH", "PATH"}}
    try:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-I", str(PROGRAM), stdin=PIPE, stdout=PIPE, stderr=DEVNULL,
            env=environment, limit=MAX_ANSWER_BYTES, start_new_session=True,
        )  # fmt: skip
    except OSError as e:
        raise PolicyUnusable(f"the evaluator does not start: {e}") from e


def questions(rules: Rules) -> dict[str, str]:
    """Queries by name for a policy with these rules.

    Raises PolicyUnusable if none of them decides, or if one was probably meant to decide but does not: a
    misspelt name among several must not go unnoticed.
    """
    _no_near_misses({rule.rpartition(".")[0] for rule in rules})
    found: dict[str, str] = {}
    for package, rule in DECIDING.items():
        if f"{package}.{rule}" in rules:
            found |= dict(_safety(rules)) if package == SAFETY_PACKAGE else {package: f"data.{package}"}
        elif own := _shown(name for name in rules if name.rpartition(".")[0] == package):
            raise PolicyUnusable(f"package {package} has no rule {rule}; its rules are {own}")
    if not found:
        raise PolicyUnusable(f"no rule that decides: {WANTED}; the rules here are {_shown(rules) or 'none'}")
    return found


def _no_near_misses(packages: Iterable[str]) -> None:
    for package in packages:
        inside = any(f"{package}.".startswith(f"{name}.") for name in DECIDING)
        near = [] if inside else difflib.get_close_matches(package, DECIDING, n=1, cutoff=0.8)
        if near:
            raise PolicyUnusable(
                f"package {package} is not used; rename it to {near[0]}, or give it another name"
            )


def _shown(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)[:SHOWN_RULES])


def _safety(rules: Rules) -> Iterator[tuple[str, str]]:
    """The rules of a safety policy, as functions of the action or without arguments."""
    for name in (f"{SAFETY_PACKAGE}.{rule}" for rule in SAFETY_RULES):
        if name not in rules:
            continue
        arguments = rules[name]
        if arguments not in {None, 1}:
            raise PolicyUnusable(f"data.{name} takes {arguments} arguments; it must take one (the action)")
        yield name, f"data.{name}(input.action)" if arguments else f"data.{name}"


def decision(values: Mapping[str, Any], asked: Mapping[str, str], action: str) -> Approval:
    """The decision in the values of the queries `asked`. Raises NoDecision if there is none."""
    decisions = [
        approval_decision(values.get(name), f"data.{name}") for name in APPROVAL_PACKAGES if name in asked
    ]
    if f"{SAFETY_PACKAGE}.validate_action" in asked:
        said = {name.removeprefix(f"{SAFETY_PACKAGE}."): value for name, value in values.items()}
        decisions.append(safety_decision(said, action))
    return strictest(decisions)
