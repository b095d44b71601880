"""The process that evaluates Rego. Run as a script of its own: it needs the standard library and `regorus` only.

The evaluator holds the interpreter lock and has no time limit, so the limit is set from outside Python: a timer of the
operating system on the CPU time of this process, whose signal ends it (and so bounds its memory as well).

One JSON document a line: first the policy (`modules`, `data`, `cpu_seconds`), answered by the `packages` found; then
one question a line (`queries`, `input`), answered by the `values` of those queries that have one. `{"error": ...}`
answers what cannot be done. The end of the input ends the process.
"""

from __future__ import annotations

import json
import re
import signal
import sys
from typing import Any

import regorus


def load(policy: dict[str, Any]) -> regorus.Engine:
    """An engine with the modules and data documents of the policy."""
    engine = regorus.Engine()
    engine.set_gather_prints(True)
    for name, source in policy["modules"].items():
        engine.add_policy(name, source)
    for document in policy["data"]:
        engine.add_data_json(json.dumps(document))
    return engine


def evaluate(engine: regorus.Engine, question: dict[str, Any], cpu_seconds: float) -> dict[str, Any]:
    """The value of each query that has one."""
    one = engine.clone()
    one.set_input_json(json.dumps(question["input"]))
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    try:
        found = {name: one.eval_query_as_json(query) for name, query in question["queries"].items()}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return {name: value for name, text in found.items() for value in _first_value(json.loads(text))}


def _first_value(answer: dict[str, Any]) -> list[Any]:
    rows = answer.get("result") or []
    return [rows[0]["expressions"][0]["value"]] if rows else []


def message(error: Exception) -> str:
    """Where the fault is and what it is, on one line, without source text and backtrace."""
    text = str(error).partition("Stack backtrace")[0]
    place = re.search(r"--> (\S+)", text)
    fault = re.search(r"^error: (.+)$", text, re.MULTILINE)
    said = fault[1] if fault else " ".join(text.split()) or type(error).__name__
    return f"{place[1]}: {said}" if place else said


def answer(document: Any) -> None:
    """Write one line to the parent."""
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Load the policy, then evaluate one input after the other."""
    policy = json.loads(sys.stdin.readline())
    try:
        engine = load(policy)
    except Exception as e:  # noqa: BLE001 - the evaluator raises bare exceptions for every fault of a policy
        answer({"error": message(e)})
        return
    answer({"packages": engine.get_packages()})
    for line in sys.stdin:
        try:
            answer({"values": evaluate(engine, json.loads(line), policy["cpu_seconds"])})
        except Exception as e:  # noqa: BLE001 - likewise
            answer({"error": message(e)})


if __name__ == "__main__":
    main()
