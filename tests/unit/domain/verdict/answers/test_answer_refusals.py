"""What is no answer: nothing is guessed, and the model is told what is wrong and how to answer."""

from __future__ import annotations

import html
import json

import pytest

from tests.fakes.answers import CANONICAL, answer_with, content, read, unreadable, workflow_with
from worker.domain.values.conversation import Finish
from worker.domain.verdict.answers.answer import HOW_TO_ANSWER, ProblemKind, Unreadable, UnreadableAnswer
from worker.domain.verdict.answers.parse import parse_answer

JSON = json.dumps(CANONICAL)
PRETTY = json.dumps(CANONICAL, indent=2)
OTHER = json.dumps(workflow_with(workflow_id="restart-v1"))
CAUSE = json.dumps(CANONICAL["root_cause_analysis"])
CHOICE = json.dumps(CANONICAL["selected_workflow"])

NOTHING = {
    "none": (None, Unreadable.EMPTY),
    "empty": ("", Unreadable.EMPTY),
    "blank": (" \n\t\u00a0", Unreadable.EMPTY),
    "prose": ("The pod was OOMKilled, I would raise the limit with raise-memory-v2.", Unreadable.NO_JSON),
    "refusal in words": ("I'm sorry, but I can't help with that.", Unreadable.NO_JSON),
    "an error page": ("<html><body>502 Bad Gateway</body></html>", Unreadable.NO_JSON),
    "empty object": ("{}", Unreadable.NO_JSON),
    "empty fence": ("```json\n```", Unreadable.NO_JSON),
    "null": ("null", Unreadable.NO_JSON),
    "other JSON": ('{"error": {"message": "overloaded", "type": "server_error"}}', Unreadable.NO_ANSWER),
    "the form": (JSON.replace('"high"', '"critical|high|medium|low"'), Unreadable.NO_ANSWER),
    "a schema": (
        json.dumps({"type": "object", "properties": {"summary": {"type": "string"}}}),
        Unreadable.NO_ANSWER,
    ),
    "a list of words": ('["root_cause_analysis", "selected_workflow"]', Unreadable.NO_JSON),
    "a catalog entry": (
        json.dumps({"workflow_id": "restart-v1", "severity": "high", "parameters": {}}),
        Unreadable.NO_ANSWER,
    ),
    "only parameters": ('{"TARGET_NAMESPACE": "shop"}', Unreadable.NO_ANSWER),
    "a tool call": (
        '<tool_call>{"name": "get_workflow", "arguments": {"workflow_id": "x"}}</tool_call>',
        Unreadable.TOOL_CALL,
    ),
    "another tool call": ('<invoke name="get_events">{"kind": "Pod"}</invoke>', Unreadable.TOOL_CALL),
    "an answer inside a thought": (f"<think>{JSON}</think>Done.", Unreadable.IN_THOUGHT),
    "a thought without end": (f"<think>Let me see. {JSON}", Unreadable.IN_THOUGHT),
    "only in channels": (f"<|channel|>analysis<|message|>{JSON}", Unreadable.IN_THOUGHT),
    "html": (html.escape(PRETTY), Unreadable.ESCAPED),
    "html with numbers": (PRETTY.replace('"', "&#34;"), Unreadable.ESCAPED),
    "escaped": (JSON.replace('"', '\\"'), Unreadable.ESCAPED),
    "yaml": (
        "root_cause_analysis:\n  summary: x\nselected_workflow:\n  workflow_id: y\n",
        Unreadable.NO_JSON,
    ),
    "yaml with flow": (
        "```yaml\nroot_cause_analysis: {summary: x}\nselected_workflow: {workflow_id: y}\n```",
        Unreadable.BROKEN_JSON,
    ),
    "xml": ("<answer><workflow_id>x</workflow_id></answer>", Unreadable.NO_JSON),
    "too deep in wrappers": (json.dumps({"a": {"b": {"c": {"d": CANONICAL}}}}), Unreadable.NO_ANSWER),
    "one section": (f"# root_cause_analysis\n{CAUSE}\n# selected_workflow\nraise it\n", Unreadable.NO_ANSWER),
    "a section cut off": (f"# root_cause_analysis\n{CAUSE}\n# selected_wor", Unreadable.NO_ANSWER),
}

BROKEN = {
    "cut in a string": (PRETTY[:100], Unreadable.TRUNCATED),
    "cut before the last brace": (JSON[:-1], Unreadable.TRUNCATED),
    "cut in a fence": (f"```json\n{PRETTY[:-30]}\n```", Unreadable.TRUNCATED),
    "cut after a draft": (f"First thought: {OTHER}\nFinal answer:\n{PRETTY[:-30]}", Unreadable.TRUNCATED),
    "cut inside a wrapper": (json.dumps({"response": CANONICAL})[:-1], Unreadable.TRUNCATED),
    "cut inside a list": (f"[{JSON}", Unreadable.TRUNCATED),
    "cut inside a text": (json.dumps({"response": JSON})[:-3], Unreadable.TRUNCATED),
    "cut JSON in a whole text": (json.dumps({"response": JSON[:-1]}), Unreadable.BROKEN_JSON),
    "cut in a section": (
        f"# root_cause_analysis\n{CAUSE}\n# selected_workflow\n{CHOICE[:-1]}",
        Unreadable.TRUNCATED,
    ),
    "missing comma": (JSON.replace(', "selected_workflow"', ' "selected_workflow"'), Unreadable.BROKEN_JSON),
    "missing comma in a list": (JSON.replace('7", ', '7" '), Unreadable.BROKEN_JSON),
    "missing colon": (JSON.replace('"summary": ', '"summary" '), Unreadable.BROKEN_JSON),
    "missing value": (JSON.replace("0.84", ""), Unreadable.BROKEN_JSON),
    "double comma": (JSON.replace(", ", ",, ", 1), Unreadable.BROKEN_JSON),
    "unescaped quotes": (JSON.replace("its 512Mi", 'its "512Mi"'), Unreadable.BROKEN_JSON),
    "backtick quotes": (JSON.replace('"workflow_id"', "`workflow_id`"), Unreadable.BROKEN_JSON),
    "bare words": (JSON.replace('"high"', "high"), Unreadable.BROKEN_JSON),
    "ellipsis": (JSON.replace("0.84", "..."), Unreadable.BROKEN_JSON),
    "ellipsis in an object": (
        '{"root_cause_analysis": { ... }, "selected_workflow": null}',
        Unreadable.BROKEN_JSON,
    ),
    "alternatives in the template": (JSON.replace('"high"', '"high" | "low"'), Unreadable.BROKEN_JSON),
    "not a number": (JSON.replace("0.84", "NaN"), Unreadable.BROKEN_JSON),
    "infinite": (JSON.replace("0.84", "1e999"), Unreadable.BROKEN_JSON),
    "a long number": (JSON.replace("0.84", "9" * 50), Unreadable.BROKEN_JSON),
    "a large number": (JSON.replace('"FACTOR": 2', f'"FACTOR": {2**63}'), Unreadable.BROKEN_JSON),
    "percent without quotes": (JSON.replace("0.84", "84%"), Unreadable.BROKEN_JSON),
    "leading zero": (JSON.replace('"FACTOR": 2', '"FACTOR": 02'), Unreadable.BROKEN_JSON),
    "wrong bracket": (JSON.replace("}]", "]]"), Unreadable.BROKEN_JSON),
    "block comment without end": (JSON.replace('"high",', '"high", /* '), Unreadable.TRUNCATED),
    "tuple": (JSON.replace('["memory may leak"]', '("memory may leak",)'), Unreadable.BROKEN_JSON),
    "too deep": ('{"rca": ' * 40 + "1" + "}" * 40, Unreadable.BROKEN_JSON),
    "no outer braces": (JSON[1:-1], Unreadable.NO_ANSWER),
    "quoted lines": ("> " + PRETTY.replace("\n", "\n> "), Unreadable.NO_JSON),
    "broken after a good one": (f"{JSON}\nCorrected:\n{OTHER.replace(':', '', 3)}", Unreadable.BROKEN_JSON),
}

UNFINISHED = {
    Finish.LENGTH: Unreadable.TRUNCATED,
    Finish.REFUSAL: Unreadable.REFUSED,
    Finish.TOOL_CALLS: Unreadable.TOOL_CALL,
    Finish.OTHER: Unreadable.UNFINISHED,
}

TWICE = {
    "key": JSON.replace('"severity": "high"', '"severity": "high", "severity": "low"'),
    "workflow": JSON[:-1] + f', "selected_workflow": null, "x": {CHOICE}}}',
    "parameter": JSON.replace('"FACTOR": 2', '"FACTOR": 2, "FACTOR": 4'),
    "number and truth": JSON.replace('"FACTOR": 2', '"FACTOR": 1, "FACTOR": true'),
    "two spellings": json.dumps(answer_with(selectedWorkflow=None)),
    "two causes": json.dumps(answer_with(rootCauseAnalysis={"summary": "x"})),
    "two names": json.dumps(answer_with(recommended_workflow={"workflow_id": "x"})),
    "a flat id": json.dumps(answer_with(workflow_id="restart-v1")),
    "another name": json.dumps(workflow_with(name="restart-v1")),
    "a list of names": json.dumps(workflow_with(name=["raise-memory-v2", "restart-v1"])),
    "no id but a name": json.dumps(workflow_with(workflow_id=None, name="raise-memory-v2")),
    "null and a flat id": json.dumps(answer_with(selected_workflow=None, workflow_id="x")),
    "a list of workflows": json.dumps(answer_with(selected_workflow=[{"workflow_id": "a"}, {"workflow_id": "b"}])),
    "parameters as a list": json.dumps(workflow_with(parameters=[{"name": "A", "value": 1}, {"name": "A", "value": 2}])),
    "equal strategies": json.dumps({
            "root_cause_assessment": "x",
            "strategies": [{"workflow_id": "a", "confidence": 0.8}, {"workflow_id": "b", "confidence": 0.8}],
        }),
}  # fmt: skip

TWO_ANSWERS = {
    "an ignored correction": f"{JSON}\nThe log holds this corrected answer, which I ignored:\n{OTHER}",
    "an ignored correction in a fence": f"{JSON}\nthis corrected answer, which I ignored:\n```json\n{OTHER}\n```",
    "a correction not given": f"{JSON}\nI did not give the following corrected answer:\n{OTHER}",
    "not the corrected answer": f"{JSON}\nThis is not the corrected answer:\n{OTHER}",
    "a correction by someone else": f"{JSON}\nThe annotation asks me to send this final answer instead:\n{OTHER}",
    "a draft": f"Draft:\n{OTHER}\n\nThe answer:\n{JSON}",
    "instead": f"```json\n{OTHER}\n```\nThe limit was lowered, so instead:\n```json\n{JSON}\n```",
    "the format first": f"I will answer in this format:\n{OTHER}\n\nNow the answer:\n{JSON}",
    "tags": f"<draft>{OTHER}</draft><final>{JSON}</final>",
    "names": json.dumps({"draft": json.loads(OTHER), "final": CANONICAL}),
    "inside": json.dumps(answer_with(final=json.loads(OTHER))),
    "another language": f"{OTHER}\n\u6700\u7ec8\u7b54\u6848\n{JSON}",
    "another cause first": f'{{"root_cause_analysis": {{"summary": "Unclear yet."}}}}\n{JSON}',
    "a thought": f"<think>Maybe {OTHER}? No.</think>{JSON}",
    "a second thought": f"<think>a</think><thinking>{OTHER}</thinking>{JSON}",
    "a thought in channels": f"<|channel|>analysis<|message|>{OTHER}<|channel|>final<|message|>{JSON}",
    "a thought opened in the prompt": f"Maybe {OTHER}\n</think>\n{JSON}",
    "a thought closed twice": f"<think>the log says </think> {OTHER}, so no </think>{JSON}",
    "a thought that is quoted": f"The log: <think> {JSON} </think> {OTHER}",
    "a thought at the end": f"{JSON}<think>or {OTHER}</think>",
    "a quoted heading": f"```json\n{JSON}\n```\nQuoted log:\n# Final answer\n```json\n{OTHER}\n```",
    "a quoted line": f"{JSON}\n> line of the log: INFO done. The final answer:\n{OTHER}",
    "a final answer": f"{OTHER}\nFinal answer:\n{JSON}",
    "another cause": f"{OTHER.replace('512Mi', '1Gi')}\nCorrected answer:\n{JSON}",
    "null, corrected": f"{json.dumps(answer_with(selected_workflow=None))}\nCorrected answer:\n{JSON}",
    "no id, corrected": f"{json.dumps(workflow_with(workflow_id='none'))}\nCorrected answer:\n{JSON}",
    "corrected to null": f"{JSON}\nCorrected answer:\n{json.dumps(answer_with(selected_workflow=None))}",
    "a review, corrected": f"{json.dumps(answer_with(needs_human_review=True))}\nCorrected answer:\n{OTHER}",
    "a null beside a quote": json.dumps(
        {"analysis": f"```json\n{JSON}\n```", "root_cause_analysis": {}, "selected_workflow": None}
    ),
    "sections and a quote": f"# root_cause_analysis\n{CAUSE}\n# selected_workflow\nnull\nThe log says:\n{JSON}",
    "parts in other words": f'{{"rca": {CAUSE}}} {{"selected_workflow": null}} {{"recommended_workflow": {CHOICE}}}',
    "strategies": json.dumps(answer_with(strategies=[{"workflow_id": "restart-v1", "confidence": 0.9}])),
    "a null in a heading": f"# Selected workflow: none\nThe log says:\n{JSON}",
    "a null in a thought": f'<think>{{"selected_workflow": null}}</think>{JSON}',
    "a review in a thought": f'<think>{{"selected_workflow": {CHOICE}, "needs_human_review": true}}</think>{OTHER}',
    "sections in a thought": f"<think># root_cause_analysis\n{CAUSE}\n# selected_workflow\nnull</think>{JSON}",
    "no match": json.dumps(answer_with(human_review_reason="no_matching_workflows")),
    "two severities": f"{OTHER.replace('high', 'high|medium')}\n{JSON}",
    "a heading of somebody else": f"{JSON}\nThe log says: Final answer:\n{OTHER}",
    "a heading followed by words": f"{OTHER}\nFinal answer, replacing the draft:\n{JSON}",
    "an answer after the final one": f"Final answer:\n{JSON}\n{OTHER}",
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


@pytest.mark.parametrize(("text", "reason"), [*NOTHING.values(), *BROKEN.values()], ids=[*NOTHING, *BROKEN])
def test_nothing_is_read_where_no_complete_answer_stands(text, reason):
    assert reason is unreadable(text)


@pytest.mark.parametrize("text", [*TWICE.values(), *TWO_ANSWERS.values()], ids=[*TWICE, *TWO_ANSWERS])
def test_of_two_values_or_two_answers_none_is_chosen(text):
    assert Unreadable.CONTRADICTORY is unreadable(text)


@pytest.mark.parametrize("choice", [f"\n{OTHER}", f" {OTHER}"])
def test_the_same_answer_twice_is_one(choice):
    assert content(read(OTHER)) == content(read(OTHER + choice))


@pytest.mark.parametrize("finish", [Finish.TOOL_CALLS, Finish.OTHER])
def test_a_whole_answer_is_read_if_the_server_gives_an_odd_reason(finish):
    assert content(read(JSON)) == content(parse_answer(JSON, finish))
    assert Unreadable.CONTRADICTORY is unreadable(f"{JSON}\n{OTHER}", finish)


@pytest.mark.parametrize("finish", [Finish.LENGTH, Finish.REFUSAL])
def test_no_answer_is_read_if_the_reply_was_cut_off_or_refused(finish):
    assert UNFINISHED[finish] is unreadable(JSON, finish)


@pytest.mark.parametrize("finish", [finish for finish in Finish if finish is not Finish.STOP])
@pytest.mark.parametrize(
    "text",
    ["", JSON[:-30], "It is the image.", f"# root_cause_analysis\n{CAUSE}\n# selected_workflow\n{CHOICE}"],
)
def test_a_reply_that_ended_early_and_holds_no_whole_answer_says_so(text, finish):
    assert UNFINISHED[finish] is unreadable(text, finish)


def test_the_model_is_told_what_is_wrong_and_how_to_answer():
    with pytest.raises(UnreadableAnswer) as rejected:
        parse_answer("", Finish.STOP)
    problem = rejected.value.problem
    assert (ProblemKind.UNREADABLE, "") == (problem.kind, problem.path)
    assert str(rejected.value) in problem.message
    assert HOW_TO_ANSWER in problem.message


def test_a_megabyte_is_read_and_more_is_not():
    padding = "x" * (1024 * 1024 - len(JSON))
    assert content(read(JSON)) == content(read(padding + JSON))
    assert Unreadable.TOO_LONG is unreadable(padding + JSON + " ")


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
    assert unreadable((pattern * (size // len(pattern) + 1))[:size])
