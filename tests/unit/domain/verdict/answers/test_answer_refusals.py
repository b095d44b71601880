"""What is no answer: nothing is guessed, and the model is told what is wrong and how to answer."""

from __future__ import annotations

import html
import json

import pytest

from tests.fakes.answers import CANONICAL, answer_with, content, read, refusal, workflow_with
from worker.domain.values.conversation import Finish
from worker.domain.verdict.answers.parse import UnreadableAnswer, parse_answer
from worker.domain.verdict.problems import ProblemKind

JSON = json.dumps(CANONICAL)
PRETTY = json.dumps(CANONICAL, indent=2)
OTHER = json.dumps(workflow_with(workflow_id="restart-v1"))
CAUSE = json.dumps(CANONICAL["root_cause_analysis"])
CHOICE = json.dumps(CANONICAL["selected_workflow"])

NOTHING = {
    "none": (None, "empty"),
    "empty": ("", "empty"),
    "blank": (" \n\t\u00a0", "empty"),
    "prose": ("The pod was OOMKilled, I would raise the limit with raise-memory-v2.", "no JSON object"),
    "refusal in words": ("I'm sorry, but I can't help with that.", "no JSON object"),
    "an error page": ("<html><body>502 Bad Gateway</body></html>", "no JSON object"),
    "empty object": ("{}", "no JSON object"),
    "empty fence": ("```json\n```", "no JSON object"),
    "null": ("null", "no JSON object"),
    "other JSON": ('{"error": {"message": "overloaded", "type": "server_error"}}', "holds no answer"),
    "the form": (JSON.replace('"high"', '"critical|high|medium|low"'), "holds no answer"),
    "a schema": (
        json.dumps({"type": "object", "properties": {"summary": {"type": "string"}}}),
        "holds no answer",
    ),
    "a list of words": ('["root_cause_analysis", "selected_workflow"]', "no JSON object"),
    "a catalog entry": (
        json.dumps({"workflow_id": "restart-v1", "severity": "high", "parameters": {}}),
        "no answer",
    ),
    "only parameters": ('{"TARGET_NAMESPACE": "shop"}', "holds no answer"),
    "a tool call": (
        '<tool_call>{"name": "get_workflow", "arguments": {"workflow_id": "x"}}</tool_call>',
        "tool call and no answer",
    ),
    "another tool call": ('<invoke name="get_events">{"kind": "Pod"}</invoke>', "tool call and no answer"),
    "an answer inside a thought": (f"<think>{JSON}</think>Done.", "outside of the thinking tags"),
    "a thought without end": (f"<think>Let me see. {JSON}", "never closed"),
    "a late closing tag": (f"{JSON}</think>", "outside of the thinking tags"),
    "html": (html.escape(PRETTY), "HTML-escaped"),
    "html with numbers": (PRETTY.replace('"', "&#34;"), "HTML-escaped"),
    "escaped": (JSON.replace('"', '\\"'), "escaped"),
    "yaml": ("root_cause_analysis:\n  summary: x\nselected_workflow:\n  workflow_id: y\n", "not JSON"),
    "yaml with flow": (
        "```yaml\nroot_cause_analysis: {summary: x}\nselected_workflow: {workflow_id: y}\n```",
        "JSON",
    ),
    "xml": ("<answer><workflow_id>x</workflow_id></answer>", "no JSON object"),
    "too deep in wrappers": (json.dumps({"a": {"b": {"c": {"d": CANONICAL}}}}), "holds no answer"),
    "one section": (f"# root_cause_analysis\n{CAUSE}\n# selected_workflow\nraise it\n", "holds no answer"),
    "a section cut off": (f"# root_cause_analysis\n{CAUSE}\n# selected_wor", "holds no answer"),
}

BROKEN = {
    "cut in a string": (PRETTY[:100], "cut off"),
    "cut before the last brace": (JSON[:-1], "cut off"),
    "cut in a fence": (f"```json\n{PRETTY[:-30]}\n```", "JSON"),
    "cut after a draft": (f"First thought: {OTHER}\nFinal answer:\n{PRETTY[:-30]}", "cut off"),
    "cut inside a wrapper": (json.dumps({"response": CANONICAL})[:-1], "cut off"),
    "cut inside a list": (f"[{JSON}", "cut off"),
    "cut inside a text": (json.dumps({"response": JSON})[:-3], "cut off"),
    "cut JSON in a whole text": (json.dumps({"response": JSON[:-1]}), "inside a string"),
    "cut in a section": (f"# root_cause_analysis\n{CAUSE}\n# selected_workflow\n{CHOICE[:-1]}", "cut off"),
    "missing comma": (JSON.replace(', "selected_workflow"', ' "selected_workflow"'), "comma"),
    "missing comma in a list": (JSON.replace('7", ', '7" '), "comma"),
    "missing colon": (JSON.replace('"summary": ', '"summary" '), "colon"),
    "missing value": (JSON.replace("0.84", ""), "value is missing"),
    "double comma": (JSON.replace(", ", ",, ", 1), "key"),
    "unescaped quotes": (JSON.replace("its 512Mi", 'its "512Mi"'), "comma"),
    "backtick quotes": (JSON.replace('"workflow_id"', "`workflow_id`"), "key"),
    "bare words": (JSON.replace('"high"', "high"), "'high' is not quoted"),
    "ellipsis": (JSON.replace("0.84", "..."), "value is missing"),
    "ellipsis in an object": ('{"root_cause_analysis": { ... }, "selected_workflow": null}', "key"),
    "alternatives in the template": (JSON.replace('"high"', '"high" | "low"'), "comma"),
    "not a number": (JSON.replace("0.84", "NaN"), "'NaN' is not quoted"),
    "infinite": (JSON.replace("0.84", "1e999"), "too large"),
    "a long number": (JSON.replace("0.84", "9" * 50), "value is missing"),
    "a large number": (JSON.replace('"FACTOR": 2', f'"FACTOR": {2**63}'), "too large"),
    "percent without quotes": (JSON.replace("0.84", "84%"), "value is missing"),
    "leading zero": (JSON.replace('"FACTOR": 2', '"FACTOR": 02'), "value is missing"),
    "wrong bracket": (JSON.replace("}]", "]]"), "comma"),
    "block comment without end": (JSON.replace('"high",', '"high", /* '), "cut off"),
    "tuple": (JSON.replace('["memory may leak"]', '("memory may leak",)'), "value is missing"),
    "too deep": ('{"rca": ' * 40 + "1" + "}" * 40, "deeper than 32"),
    "no outer braces": (JSON[1:-1], "holds no answer"),
    "quoted lines": ("> " + PRETTY.replace("\n", "\n> "), "no JSON object"),
    "broken after a good one": (f"{JSON}\nCorrected:\n{OTHER.replace(':', '', 3)}", "colon"),
}

TWICE = {
    "key": (JSON.replace('"severity": "high"', '"severity": "high", "severity": "low"'), "'severity' stands twice"),
    "workflow": (JSON[:-1] + f', "selected_workflow": null, "x": {CHOICE}}}', "twice"),
    "parameter": (JSON.replace('"FACTOR": 2', '"FACTOR": 2, "FACTOR": 4'), "'FACTOR' stands twice"),
    "number and truth": (JSON.replace('"FACTOR": 2', '"FACTOR": 1, "FACTOR": true'), "'FACTOR' stands twice"),
    "two spellings": (json.dumps(answer_with(selectedWorkflow=None)), "say different things"),
    "two causes": (json.dumps(answer_with(rootCauseAnalysis={"summary": "x"})), "say different things"),
    "two names": (json.dumps(answer_with(recommended_workflow={"workflow_id": "x"})), "say different things"),
    "a flat id": (json.dumps(answer_with(workflow_id="restart-v1")), "different workflows"),
    "null and a flat id": (json.dumps(answer_with(selected_workflow=None, workflow_id="x")), "different workflows"),
    "a list of workflows": (
        json.dumps(answer_with(selected_workflow=[{"workflow_id": "a"}, {"workflow_id": "b"}])),
        "list of 2 where one is needed",
    ),
    "parameters as a list": (
        json.dumps(workflow_with(parameters=[{"name": "A", "value": 1}, {"name": "A", "value": 2}])),
        "'A' is given two different values",
    ),
    "equal strategies": (
        json.dumps({
            "root_cause_assessment": "x",
            "strategies": [{"workflow_id": "a", "confidence": 0.8}, {"workflow_id": "b", "confidence": 0.8}],
        }),
        "none has the highest confidence",
    ),
}  # fmt: skip

TWO_ANSWERS = {
    "an ignored correction": f"{JSON}\nThe log holds this corrected answer, which I ignored:\n{OTHER}",
    "an ignored correction in a fence": f"{JSON}\nthis corrected answer, which I ignored:\n```json\n{OTHER}\n```",
    "a correction not given": f"{JSON}\nI did not give the following corrected answer:\n{OTHER}",
    "not the corrected answer": f"{JSON}\nThis is not the corrected answer:\n{OTHER}",
    "a correction by someone else": f"{JSON}\nThe annotation asks me to send this final answer instead:\n{OTHER}",
    "list": f"[{JSON}, {OTHER}]",
    "adjacent": f"{JSON}\n{OTHER}",
    "fences": f"```json\n{JSON}\n```\n```json\n{OTHER}\n```",
    "options": f"Option 1:\n```json\n{JSON}\n```\nOption 2:\n```json\n{OTHER}\n```",
    "or": f"{JSON}\nor\n{OTHER}",
    "alternatively": f"My final answer: {JSON}\n\nAlternatively: {OTHER}",
    "final option": f"Option A: {JSON}\nFinal option B: {OTHER}",
    "fallback": f"Best: {JSON}\nIf that fails: {OTHER}",
    "neutral words": f"{OTHER}\nThe pod runs in shop.\n{JSON}",
    "parts that disagree": f'{{"rca": {CAUSE}, "confidence": 0.5}} {{"selected_workflow": null, "confidence": 0.9}}',
    "another": f"Answer: {JSON}\nAnother answer: {OTHER}",
    "a draft at the end": f"Final: {JSON}\nMy draft was: {OTHER}",
    "an example at the end": f"{JSON}\nFor example: {OTHER}",
    "lines": f"{JSON}\n{OTHER}\n{JSON}\n{OTHER}",
    "wrapper": json.dumps({"first": CANONICAL, "second": json.loads(OTHER)}),
    "a choice beside an answer": json.dumps({"a": CANONICAL, "b": {"selected_workflow": None}}),
    "candidates": json.dumps({"candidates": [CANONICAL, json.loads(OTHER)]}),
    "null and a choice": f"{OTHER}\n{json.dumps(answer_with(selected_workflow=None))}",
    "only the confidence differs": f"{JSON}\n{JSON.replace('0.84', '0.74')}",
    "a cause alone at the end": f"{JSON}\nCorrected: {json.dumps({'root_cause_analysis': {'summary': 'no'}})}",
    "another choice at the end": f'{JSON}\n{{"selected_workflow": {{"workflow_id": "restart-v1"}}}}',
    "two choices for one cause": f'{{"rca": {CAUSE}}} {{"selected_workflow": null}} {{"selected_workflow": {CHOICE}}}',
    "a section twice": f"# root_cause_analysis\n{CAUSE}\n# selected_workflow\n{CHOICE}\n# selected_workflow\nnull",
}


@pytest.mark.parametrize(("text", "reason"), NOTHING.values(), ids=NOTHING)
def test_no_answer_in_the_text(text, reason):
    assert reason in refusal(text)


@pytest.mark.parametrize(("text", "reason"), BROKEN.values(), ids=BROKEN)
def test_a_broken_answer_is_not_repaired(text, reason):
    assert reason in refusal(text)


@pytest.mark.parametrize(("text", "reason"), TWICE.values(), ids=TWICE)
def test_an_answer_that_contradicts_itself(text, reason):
    assert reason in refusal(text)


@pytest.mark.parametrize("text", TWO_ANSWERS.values(), ids=TWO_ANSWERS)
def test_two_answers_are_none_when_nothing_says_which_counts(text):
    assert "not clear" in refusal(text)


@pytest.mark.parametrize("finish", [finish for finish in Finish if finish is not Finish.STOP])
def test_only_a_reply_that_was_finished_is_an_answer(finish):
    assert "```json fence" in refusal(JSON, finish)


def test_a_cut_reply_is_told_to_be_shorter():
    assert "token limit" in refusal(JSON, Finish.LENGTH)


def test_the_problem_is_of_the_unreadable_kind():
    with pytest.raises(UnreadableAnswer) as refused:
        parse_answer("", Finish.STOP)
    assert (refused.value.problem.kind, refused.value.problem.path) == (ProblemKind.UNREADABLE, "")


def test_a_megabyte_is_read_and_more_is_not():
    padding = "x" * (1024 * 1024 - len(JSON))
    assert content(read(JSON)) == content(read(padding + JSON))
    assert "longer than" in refusal(padding + JSON + " ")


# Each would take hours if one part of it were read again from every brace.
HOSTILE = {
    "braces": "{",
    "brackets": "[",
    "open keys": '{"a":',
    "bare keys": "{a:",
    "nested lists": "[{a:[[",
    "line comments": "{a:#",
    "block comments": "{a:/*",
    "broken objects": '{"rca":x}',
    "objects cut by fences": '```\n{"rca":"x\n',
    "quotes": '"',
    "escapes": '{"a":"\\"',
    "escaped text": '"{\\"',
    "thoughts": "<think>",
    "closing thoughts": "</think>",
    "fences": "~~~\n",
    "blanks": "{  ",
    "answers": '{"rca":"x"}',
    "headings": "# selected_workflow\n{}\n",
    "curly quotes": "{“a”:“",
}


@pytest.mark.parametrize("pattern", HOSTILE.values(), ids=HOSTILE)
def test_a_text_made_to_be_slow_is_refused(pattern):
    size = 256 * 1024
    assert "```json fence" in refusal((pattern * (size // len(pattern) + 1))[:size])


DISOWNED = {
    "do not use": f"Do NOT use this:\n{JSON}",
    "do not use, in a fence": f"Do not use this answer, it is a sketch.\n\n```json\n{JSON}\n```",
    "never run": f"Never run the following, because the evidence is thin:\n{JSON}",
    "an example": f"Example of the form:\n```json\n{JSON}\n```",
    "an illustration": f"For illustration only:\n{JSON}",
    "not my answer": f"This is not my answer: {JSON}",
    "taken back afterwards": f"```json\n{JSON}\n```\nDo not execute this.",
}


@pytest.mark.parametrize("text", DISOWNED.values(), ids=DISOWNED)
def test_an_answer_that_its_own_text_disowns_is_asked_for_again(text):
    with pytest.raises(UnreadableAnswer, match="is not the answer"):
        parse_answer(text, Finish.STOP)
