"""The process that evaluates Rego.

Run as a script of its own: it needs the standard library and `regorus` only.

The evaluator holds the interpreter lock and has no limits, so they are set from outside Python: a timer of
the operating system on the CPU time of this process, whose signal ends it, and a limit on its address space.

One JSON document a line: first the policy (`modules`, `data`, `cpu_seconds`, `memory_bytes`), answered by the
`rules` found, each with its number of arguments or null; then one question a line (`queries`, `input`),
answered by the `values` of those queries that have one and the `seconds` it took. `{"error": ...}` answers
what cannot be done. The end of the input ends the process.
"""

from __future__ import annotations

import contextlib
import json
import re
import resource
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

UNSERVED = frozenset({"http.send", "net.cidr_expand", "opa.runtime"})
"""Functions that the evaluator knows, but answers differently from OPA: with nothing, with a list in place of
a set, with its input.
"""

CALLS = "calls"
"""Where a node of the syntax tree keeps the calls in it."""
Call = tuple[list[str], int]
"""The parts of the name of a function, and the line."""


def limit(memory_bytes: int) -> None:
    """Bound the memory, if the system can, and write no core file, which would contain the input.

    Must be called before the evaluator is imported, because its allocator reserves a gigabyte of addresses if
    allowed.
    """
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def load(policy: dict[str, Any]) -> tuple[Any, dict[str, int | None]]:
    """An engine with the modules and the data of the policy, and its rules."""
    import regorus  # noqa: PLC0415 - after the limits

    engine = regorus.Engine()
    engine.set_gather_prints(True)
    for name, source in policy["modules"].items():
        engine.add_policy(name, source)
    modules = json.loads(engine.get_ast_as_json(), object_pairs_hook=heads)
    rules: dict[str, int | None] = {}
    for module in modules:
        rules |= rules_of(module["ast"])
    served = builtins_of(engine)
    for module in modules:
        for name, line in unserved(module, served, rules):
            raise ValueError(f"{module['source']['file']}:{line}: {name} is not supported")
    for rule in rules:
        if name := shadowed(rule.split("."), policy["data"]):
            raise ValueError(f"the data document data.{name} hides the rule data.{rule}: rename the document")
    engine.add_data_json(json.dumps(policy["data"]))
    engine.clone().eval_query_as_json("true")  # compiles all modules: unsafe variables, recursion
    return engine, rules


def heads(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of the syntax tree, reduced to the parts that are needed.

    The whole tree is 40 times as large as the policy.

    Of the bodies of rules, only their calls are kept.
    """
    node = dict(pairs)
    called = [call for _, value in pairs for call in calls_in(value)]
    if "fcn" in node:
        called.append((parts_of(node["fcn"]), node["span"]["line"]))
    if "contents" not in node:
        node = {name: value for name, value in pairs if name not in {"bodies", "span"}}
    return node | {CALLS: called} if called else node


def calls_in(value: Any) -> list[Call]:
    """Remove and return the calls that are noted in an object, or in those of a list."""
    if isinstance(value, dict):
        found: list[Call] = value.pop(CALLS, [])
        return found
    return [call for part in value for call in calls_in(part)] if isinstance(value, list) else []


def builtins_of(engine: Any) -> frozenset[str]:
    """The names of the functions that the evaluator serves."""
    known = next(first_value(json.loads(engine.clone().eval_query_as_json("opa.runtime()"))))["builtins"]
    return frozenset({*known, "print"}) - UNSERVED


def unserved(
    module: dict[str, Any], served: frozenset[str], rules: dict[str, int | None]
) -> Iterator[tuple[str, int]]:
    """The functions that a module calls although nothing defines them, each with its line.

    Neither the evaluator nor another module has such a function.

    The evaluator itself notices an unknown function only when an input leads to the call.
    """
    tree, source = module["ast"], module["source"]["contents"].encode()
    package = parts_of(tree["package"]["refr"])
    elsewhere = {"data", *(imported(one, source) for one in tree["imports"])}
    for name, line in calls_in(module):
        own = ".".join([*package, *name]) in rules
        if name[:1] and name[0] not in elsewhere and not own and ".".join(name) not in served:
            yield ".".join(name), line


def imported(found: dict[str, Any], source: bytes) -> str:
    """The name under which a module uses what it imports."""
    alias = found.get("as")
    return source[alias["start"] : alias["end"]].decode() if alias else parts_of(found["refr"])[-1]


def rules_of(module: dict[str, Any]) -> dict[str, int | None]:
    """Full name of every rule, and how many arguments it takes; None if it is not a function."""
    package = parts_of(module["package"]["refr"])
    found: dict[str, int | None] = {}
    for rule in module["rules"]:
        if "Default" in rule:
            head, arguments = rule["Default"], rule["Default"]["args"] or None
        else:
            head = next(iter(rule["Spec"]["head"].values()))
            arguments = head.get("args")
        found[".".join([*package, *parts_of(head["refr"])])] = None if arguments is None else len(arguments)
    return found


def parts_of(reference: dict[str, Any]) -> list[str]:
    """`a.b["c"][x]` as `a`, `b`, `c`: as far as its names are known."""
    ((kind, node),) = reference.items()
    if kind == "Var":
        return [str(node["value"])]
    if kind == "RefDot":
        return [*parts_of(node["refr"]), str(node["field"][-1])]
    if kind == "RefBrack":
        index = node["index"].get("String")
        return [*parts_of(node["refr"]), *([str(index["value"])] if index else [])]
    return []


def shadowed(path: list[str], data: Any) -> str:
    """The part of the path that is a document; empty if there is none."""
    for depth, part in enumerate(path, 1):
        if part not in data:
            return ""
        data = data[part]
        if not isinstance(data, dict):
            return ".".join(path[:depth])
    return ".".join(path)


def evaluate(engine: Any, question: dict[str, Any], cpu_seconds: float) -> dict[str, Any]:
    """The value of each query that has one, and the duration."""
    one = engine.clone()
    one.set_input_json(json.dumps(question["input"]))
    began = time.perf_counter()
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    try:
        found = {name: one.eval_query_as_json(query) for name, query in question["queries"].items()}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    took = time.perf_counter() - began
    values = {name: value for name, text in found.items() for value in first_value(json.loads(text))}
    return {"values": values, "seconds": took}


def first_value(answer: dict[str, Any]) -> Iterator[Any]:
    """The value of the answer to a query, if it has one."""
    for row in (answer.get("result") or [])[:1]:
        yield row["expressions"][0]["value"]


def message(error: Exception) -> str:
    """The place and the description of the fault, on one line, without source text and backtrace."""
    text = str(error).partition("Stack backtrace")[0]
    place = re.search(r"--> (.+:\d+:\d+)$", text, re.MULTILINE)
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
    limit(policy["memory_bytes"])
    try:
        engine, rules = load(policy)
    except Exception as e:  # noqa: BLE001 - the evaluator raises bare exceptions for every fault of a policy
        answer({"error": message(e)})
        return
    answer({"rules": rules})
    for line in sys.stdin:
        try:
            answer(evaluate(engine, json.loads(line), policy["cpu_seconds"]))
        except Exception as e:  # noqa: BLE001 - likewise
            answer({"error": message(e)})


if __name__ == "__main__":
    main()
