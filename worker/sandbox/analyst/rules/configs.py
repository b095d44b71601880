"""Configuration that a program refuses: content of a ConfigMap, a changed template, a setting that is missing."""

from __future__ import annotations

import re

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Manifest
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.refs import as_dict, dig, make_ref
from worker.sandbox.analyst.rules.case import Case, sentence, short
from worker.sandbox.analyst.rules.causes import with_change
from worker.sandbox.analyst.rules.rollouts import changed_references, last_change
from worker.sandbox.analyst.shapes import (
    ContainerState,
    Reference,
    command_text,
    env_values,
    pod_spec,
    references,
)

PATH = re.compile(r"(?<![\w.-])/(?:[\w.@+-]+/)*[\w.@+-]+")
FILE = re.compile(r"\b[\w-]+\.(?:ya?ml|json|toml|ini|conf|cfg|properties|xml|env|cnf|hcl|pem|crt|key)\b")
QUOTED = re.compile(r"[\"'`\u201c\u2018]([^\"'`\u201d\u2019]{2,60})[\"'`\u201d\u2019]")
WORD = re.compile(r"[A-Za-z][\w.-]{3,60}")
SETTING = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")
CONFIG_KINDS = ("ConfigMap", "Secret")
ORDINARY = frozenset(
    [
        "error",
        "fatal",
        "config",
        "configuration",
        "failed",
        "parse",
        "parsing",
        "invalid",
        "unknown",
        "unexpected",
        "file",
        "line",
        "detected",
        "aborting",
        "startup",
        "directive",
        "option",
        "setting",
        "field",
        "property",
        "missing",
        "value",
        "exiting",
        "level",
        "load",
        "loading",
        "could",
        "cannot",
        "yaml",
        "json",
    ]
)


def config_finding(
    case: Case, pod: Manifest, state: ContainerState, target: ObjectRef, line: str
) -> Finding | None:
    """A program that refuses its configuration: where that comes from decides what must be changed."""
    change = last_change(case.facts, target)
    source = config_source(case, pod, line)
    told = f"container {state.name} of {target} refuses its configuration: {short(line)}"
    renamed = changed_references(change)
    by_rollout = change is not None and change.touches("image", "command", "args", "].env", "envFrom")
    if source is None or by_rollout or source.name in renamed:
        return _template_fault(case, state, target, told, line)
    reference = make_ref(source.kind, source.name, _namespace(pod))
    bad = _bad_part(case, reference, line) if source.kind == "ConfigMap" else ""
    where = f"mounted at {source.mount}" if source.mount else f"used as {source.how}"
    cause = f"The content of {reference} ({where}) is invalid{bad}; the pod template is unchanged"
    finding = Finding(
        family="config",
        summary=f"{sentence(told)}. {cause}.",
        target=reference,
        certainty=0.87,
        symptoms=("CrashLoopBackOff",),
        remedies=(RemedyKind.FIX_CONFIG,),
        factors=(told, cause),
        workload=target,
        traits=frozenset(
            {"config_content", "template_unchanged", "config_invalid", "crash_on_start", "directive_known"}
        ),
        denied=frozenset({"oom", "dependency_down", "bad_image"}),
        hints={"configmap": source.name, "container": state.name},
    )
    return with_change(finding, None)


def _template_fault(case: Case, state: ContainerState, target: ObjectRef, told: str, line: str) -> Finding:
    """Configuration that stands in the pod template itself, or a reference to another object that a rollout brought."""
    change = last_change(case.facts, target)
    finding = Finding(
        family="config-template",
        summary=f"{sentence(told)}. It comes from the pod template of {target}.",
        target=target,
        certainty=0.78 if change and change.parts else 0.62,
        symptoms=("CrashLoopBackOff",),
        factors=(told, short(line)),
        workload=target,
        traits=frozenset({"config_invalid", "crash_on_start"}),
        denied=frozenset({"oom", "dependency_down", "config_content"}),
        hints={"container": state.name},
    )
    return with_change(finding, change)


def config_source(case: Case, pod: Manifest, line: str) -> Reference | None:
    """The ConfigMap or Secret that the line speaks of: by path, by file name, by a word in its data, or the only one."""
    candidates = [
        r for r in references(pod_spec(pod)) if r.kind in CONFIG_KINDS and r.how != "imagePullSecrets"
    ]
    by_path = mounted_at(candidates, PATH.findall(line))
    if by_path is not None:
        return by_path
    from_command = (
        mounted_at(candidates, PATH.findall(command_text(pod_spec(pod)))) if not PATH.search(line) else None
    )
    named = [r for r in candidates if any(_holds(case, r, _namespace(pod), f) for f in FILE.findall(line))]
    worded = [r for r in candidates if r.kind == "ConfigMap" and _mentions(case, r, _namespace(pod), line)]
    distinct = {(r.kind, r.name): r for r in candidates if r.kind == "ConfigMap"}
    for found in (named, worded, [from_command] if from_command else []):
        if found:
            return found[0]
    return next(iter(distinct.values())) if len(distinct) == 1 else None


def mounted_at(candidates: list[Reference], paths: list[str]) -> Reference | None:
    """The reference whose mount covers one of the paths, the longest mount first."""
    best: Reference | None = None
    for path in paths:
        for reference in candidates:
            mount = reference.mount.rstrip("/")
            if not mount or not (path == mount or path.startswith(f"{mount}/")):
                continue
            if best is None or len(mount) > len(best.mount.rstrip("/")):
                best = reference
    return best


def _holds(case: Case, reference: Reference, namespace: str, file: str) -> bool:
    if file in (reference.key, reference.sub_path):
        return True
    manifest = (
        case.facts.get(reference.kind, reference.name, namespace) if reference.kind == "ConfigMap" else None
    )
    return file in as_dict((manifest or {}).get("data"))


def _mentions(case: Case, reference: Reference, namespace: str, line: str) -> bool:
    manifest = case.facts.get("ConfigMap", reference.name, namespace)
    data = as_dict((manifest or {}).get("data"))
    text = "\n".join(f"{k}\n{v}" for k, v in data.items())
    return any(word in text for word in telling_words(line))


def telling_words(line: str) -> list[str]:
    """Words of a message that name what it is about: quoted ones first, then identifiers."""
    quoted = [q for q in QUOTED.findall(line) if not q.startswith("/")]
    identifiers = [w for w in WORD.findall(line) if ("_" in w or "." in w) and w.lower() not in ORDINARY]
    return list(dict.fromkeys([*quoted, *identifiers]))


def _bad_part(case: Case, reference: ObjectRef, line: str) -> str:
    """Where in the ConfigMap the words of the message stand."""
    manifest = case.facts.of(reference)
    for key, value in as_dict((manifest or {}).get("data")).items():
        for word in telling_words(line):
            for number, text in enumerate(str(value).splitlines(), 1):
                if word in text:
                    return f": key {key}, line {number}: {short(text, 80)}"
    return ""


def missing_setting_finding(
    case: Case, pod: Manifest, state: ContainerState, target: ObjectRef, line: str
) -> Finding | None:
    """An environment variable that the program needs and does not get."""
    spec = pod_spec(pod)
    names = SETTING.findall(line)
    name = names[0] if names else ""
    change = last_change(case.facts, target)
    from_all = [r for r in references(spec) if r.how == "envFrom" and r.kind == "ConfigMap"]
    told = f"container {state.name} of {target} stops because the setting {name or 'it needs'} is missing: {short(line)}"
    in_template = name in env_values(spec) or any(r.how == f"env {name}" for r in references(spec))
    if from_all and not in_template and not (change and change.touches("env")):
        return _missing_key(make_ref("ConfigMap", from_all[0].name, _namespace(pod)), target, name, told)
    finding = Finding(
        family="setting",
        summary=f"{sentence(told)}. The pod template of {target} does not set it.",
        target=target,
        certainty=0.8,
        symptoms=("CrashLoopBackOff",),
        factors=(told,),
        workload=target,
        traits=frozenset({"config_invalid", "crash_on_start", "missing_key"}),
        denied=frozenset({"oom", "dependency_down", "config_content"}),
        hints={"key": name, "container": state.name},
    )
    return with_change(finding, change)


def _missing_key(reference: ObjectRef, target: ObjectRef, name: str, told: str) -> Finding:
    return Finding(
        family="setting",
        summary=f"{sentence(told)}. Its environment comes from {reference}, which has no key {name}.",
        target=reference,
        certainty=0.78,
        symptoms=("CrashLoopBackOff",),
        remedies=(RemedyKind.FIX_CONFIG,),
        factors=(told,),
        workload=target,
        traits=frozenset(
            {"config_content", "template_unchanged", "config_invalid", "crash_on_start", "missing_key"}
        ),
        denied=frozenset({"oom", "dependency_down", "bad_image", "template_changed"}),
        hints={"configmap": reference.name, "key": name},
    )


def missing_file_finding(
    case: Case, pod: Manifest, state: ContainerState, target: ObjectRef, line: str
) -> Finding | None:
    """A file that is not there: a key missing in what is mounted, or a program missing in the image."""
    candidates = [r for r in references(pod_spec(pod)) if r.kind in CONFIG_KINDS]
    source = mounted_at(candidates, PATH.findall(line))
    told = f"container {state.name} of {target} does not find a file: {short(line)}"
    change = last_change(case.facts, target)
    if source is not None and source.name not in changed_references(change):
        reference = make_ref(source.kind, source.name, _namespace(pod))
        case.facts.of(reference)
        return Finding(
            family="config-file",
            summary=f"{sentence(told)}. The path is mounted from {reference}, which does not hold that key.",
            target=reference,
            certainty=0.76,
            symptoms=("CrashLoopBackOff",),
            remedies=(RemedyKind.FIX_CONFIG, RemedyKind.RESTORE_REFERENCE),
            factors=(told,),
            workload=target,
            traits=frozenset({"config_content", "template_unchanged", "missing_key", "crash_on_start"}),
            denied=frozenset({"oom", "dependency_down"}),
            hints={"configmap": reference.name, "container": state.name},
        )
    finding = Finding(
        family="file",
        summary=f"{sentence(told)}. Nothing that is mounted provides it: image or command of {target} are wrong.",
        target=target,
        certainty=0.7,
        symptoms=("CrashLoopBackOff",),
        factors=(told,),
        workload=target,
        traits=frozenset({"bad_command", "crash_on_start"}),
        denied=frozenset({"oom", "dependency_down", "config_content"}),
        hints={"container": state.name},
    )
    return with_change(finding, change)


def _namespace(pod: Manifest) -> str:
    return str(dig(pod, "metadata", "namespace") or "")
