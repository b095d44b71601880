"""One answer in every dress models put it in: fences, prose, tags, thoughts, wrappers, loose spelling."""

from __future__ import annotations

import json
import pprint
from dataclasses import replace

import pytest

from tests.fakes.answers import CANONICAL, answer_with, content, read, workflow_with

JSON = json.dumps(CANONICAL)
PRETTY = json.dumps(CANONICAL, indent=2)
DRAFT = json.dumps(workflow_with(workflow_id="restart-v1", confidence=0.4))
PART = '{"selected_workflow": {"workflow_id": "restart-v1"}}'
EXPECTED = content(read(JSON))
NULL_CHOICE = answer_with(selected_workflow=None, rationale="Nothing in the catalog fits.")

FENCES = {
    "plain": f"{PRETTY}",
    "json": f"```json\n{PRETTY}\n```",
    "upper case": f"```JSON\n{PRETTY}\n```",
    "no label": f"```\n{PRETTY}\n```",
    "jsonc": f"```jsonc\n{PRETTY}\n```",
    "javascript": f"```javascript\nconst answer = {PRETTY};\n```",
    "spaces before the label": f"```  json\n{PRETTY}\n```",
    "attributes": f'```{{.json title="a.json"}}\n{PRETTY}\n```',
    "four backticks": f"````json\n{PRETTY}\n````",
    "tildes": f"~~~json\n{PRETTY}\n~~~",
    "unclosed": f"Here it is:\n```json\n{PRETTY}",
    "closed on the last line": f"```json\n{PRETTY}```",
    "on one line": f"```json {JSON} ```",
    "inline code": f"The answer is `{JSON}`.",
    "indented": "  ```json\n" + "\n".join(f"  {line}" for line in PRETTY.splitlines()) + "\n  ```",
    "windows lines": f"```json\n{PRETTY}\n```".replace("\n", "\r\n"),
    "byte order mark": f"\ufeff{PRETTY}",
    "list item": f"1. Answer:\n\n   ```json\n   {JSON}\n   ```",
    "html block": f'<pre><code class="language-json">{JSON}</code></pre>',
}

SURROUNDINGS = {
    "before": f"The pods were killed.\n\n{JSON}",
    "after": f"{JSON}\n\nLet me know if you need more.",
    "braces before": f"Labels {{app: api}} and ${{HOST}} and {{{{ .Values.x }}}} and {{}} matter.\n{JSON}",
    "brackets before": f"[INFO] see [docs](http://x/y) [1] [[wiki]] and [cut: 3 lines]\n{JSON}",
    "odd quotes before": f"It's 5\" wide, isn't it? `\"` \n{JSON}",
    "a log line of JSON": f'Log: {{"level": "error", "msg": "out of memory"}}\n```json\n{JSON}\n```',
    "a cut log line": f'Log: `{{"level":"error","msg":"out of mem`\n```json\n{JSON}\n```',
    "a cut event in a fence": f'```\n{{"kind": "Event", "involvedObject": {{"kind": "Pod"\n```\n```json\n{JSON}\n```',
    "a list of objects": f'Pods: [{{"name": "a"}}, {{"name": "b"}}]\n{JSON}',
    "yaml": f"```yaml\nkind: Pod\nspec: {{nodeName: n1, tolerations: []}}\n```\n{JSON}",
    "shell": f"```bash\nkubectl get po -o jsonpath='{{.items[*].metadata.name}}' | awk '{{print $1}}'\n```\n{JSON}",
    "go": f"```go\nfunc main() {{ if x {{ y() }}\n```\n{JSON}",
    "template": f"{{% if x %}}{{# note #}}{{% endif %}}\n{JSON}",
    "an open brace": f"The selector {{app: api is wrong.\n{JSON}",
    "an echoed tool result": f'{{"workflows": [{{"workflow_id": "restart-v1", "score": 0.5}}]}}\n{JSON}',
    "an echoed tool call": f'get_workflow({{"workflow_id": "restart-v1"}})\n{JSON}',
    "a status object after": f'{JSON}\n{{"status": "done", "tokens": 8448}}',
    "a stray brace after": f"{JSON}}}\n}}",
    "a stray fence after": f"{JSON}\n```\n```",
    "an end token": f"{JSON}<|im_end|>",
    "the same answer twice": f"{JSON}\n{PRETTY}",
    "a yaml-like brace after": f"{JSON}\nNext: set {{replicas: 3}} by hand.",
    "headings": f"## Root Cause Analysis\nToo little memory.\n\n## Selected Workflow\nraise-memory\n\n{JSON}",
}

TAGS = {
    "json": f"<json>{JSON}</json>",
    "answer": f"<answer>\n{PRETTY}\n</answer>",
    "output": f"<output>```json\n{JSON}\n```</output>",
    "think": f"<think>Maybe {PART}? No.</think>\n{JSON}",
    "thinking": f"<thinking>\n```json\n{PART}\n```\n</thinking>\n\n```json\n{JSON}\n```",
    "reasoning": f"<reasoning effort='high'>{PART}</reasoning>{JSON}",
    "reflection": f"\n<REFLECTION>{PART}</REFLECTION>{JSON}",
    "two thoughts": f"<think>a {{ b</think>\n<think>{PART}</think>{JSON}",
    "a thought closed by another name": f"<thinking>{PART}</think>{JSON}",
    "a thought opened in the prompt": f"Maybe it is {{the image}}.\n</think>\n{JSON}",
    "square thoughts": f"[THINK]{PART}[/THINK]{JSON}",
    "channels": f"<|channel|>analysis<|message|>{PART}<|end|><|start|>assistant<|channel|>final<|message|>{JSON}",
    "the same answer in a thought": f"<think>{JSON}</think>{JSON}",
    "other words in a thought": f"<think>{JSON.replace('0.84', '0.6')}</think>{JSON}",
    "the same answer in a thought opened in the prompt": f"{JSON}</think>{JSON}",
    "a closing tag behind it": f"{JSON}\nThe log ends with </think>, as usual.",
    "a broken thought": f'<think>{{"root_cause_analysis": {{"summary": "abc</think>{JSON}',
    "tool call": f'<tool_call>{{"name": "submit", "arguments": {JSON}}}</tool_call>',
    "tool call with arguments as text": f"<tool_call>{json.dumps({'name': 'submit', 'arguments': JSON})}</tool_call>",
    "function": f"<function=submit_result>{JSON}</function>",
    "call": f"submit_result({JSON})",
    "call with a keyword": f"submit(answer={JSON})",
    "call with a string": f"print(json.dumps({JSON}))",
    "openai tool calls": json.dumps({"tool_calls": [{"function": {"name": "submit", "arguments": JSON}}]}),
}

WRAPPERS = {
    "response": {"response": CANONICAL},
    "with a status": {"status": "ok", "data": CANONICAL, "usage": {"tokens": 3}},
    "two deep": {"result": {"data": CANONICAL}},
    "three deep": {"a": {"b": {"c": CANONICAL}}},
    "list of one": [CANONICAL],
    "list with something else": [{"note": "x"}, CANONICAL],
    "list of two equal": [CANONICAL, CANONICAL],
    "list in a wrapper": {"results": [CANONICAL]},
    "a text": JSON,
    "a text with lines": PRETTY,
    "a text with a fence": f"Done.\n```json\n{PRETTY}\n```",
    "a text in a wrapper": {"analysis": f"The pods were killed.\n```json\n{PRETTY}\n```\n", "ok": True},
    "a text in a text": json.dumps(JSON),
    "chat message": {"role": "assistant", "content": JSON},
    "content parts": {"content": [{"type": "text", "text": JSON}]},
    "beside a summary": {"analysis_summary": "Memory.", "response": CANONICAL},
}

LOOSE = {
    "trailing commas": PRETTY.replace("\n  }", ",\n  }").replace("]", ",]").replace("[,", "["),
    "comma at the end": JSON[:-1] + ",}",
    "line comments": PRETTY.replace(",\n", ', // why {not} "now"\n'),
    "hash comments": PRETTY.replace(",\n", ", # it's {so\n"),
    "block comments": PRETTY.replace("{\n", '{ /* a } " b */\n'),
    "comment after the last member": PRETTY[:-2] + " // end\n}",
    "python": repr(CANONICAL),
    "python, wrapped": pprint.pformat(CANONICAL, sort_dicts=False, width=400),
    "python constants in JSON": JSON.replace("false", "False").replace("null", "None"),
    "bare keys": PRETTY.replace('"root_cause_analysis"', "root_cause_analysis").replace('"name"', "name"),
    "curly quotes": JSON.replace('\\"hard\\"', "hard").replace('"', "”"),
    "tabs and form feeds": PRETTY.replace("\n", "\n\t\f"),
    "no-break spaces": PRETTY.replace("  ", "\u00a0\u2003"),
    "zero width": PRETTY.replace('"', '\u200b"', 1).replace(": {", ":\ufeff {").replace(",\n", "\u2060,\n"),
    "full width marks": PRETTY.replace(",\n", "\uff0c\n").replace('": ', '"\uff1a '),
    "escaped underscores": JSON.replace("root_cause_analysis", r"root\_cause\_analysis").replace(
        "workflow_id", r"workflow\_id"
    ),
    "escaped slash": JSON.replace("apps/v1", r"apps\/v1"),
    "escaped letters": JSON.replace("shop", r"\u0073hop"),
    "escaped apostrophe": JSON.replace("The container", r"\x54he container"),
    "number notation": JSON.replace("0.84", ".84"),
}


def paired(text: str) -> str:
    """The text with typographic quotes in pairs."""
    parts = text.split('"')
    return "".join(part + ("“" if n % 2 == 0 else "”") for n, part in enumerate(parts[:-1])) + parts[-1]


LOOSE["paired curly quotes"] = paired(JSON.replace('\\"hard\\"', "hard"))


@pytest.mark.parametrize("text", FENCES.values(), ids=FENCES)
def test_any_fence_or_none(text):
    assert content(read(text)) == EXPECTED


@pytest.mark.parametrize("text", SURROUNDINGS.values(), ids=SURROUNDINGS)
def test_other_text_around_the_answer(text):
    assert content(read(text)) == EXPECTED


@pytest.mark.parametrize("text", TAGS.values(), ids=TAGS)
def test_tags_thoughts_and_calls(text):
    assert content(read(text)) == EXPECTED


@pytest.mark.parametrize("value", WRAPPERS.values(), ids=WRAPPERS)
def test_wrapped(value):
    assert content(read(json.dumps(value))) == EXPECTED


@pytest.mark.parametrize("text", LOOSE.values(), ids=LOOSE)
def test_loose_spelling(text):
    answer = content(read(text))
    assert replace(answer, contributing_factors=EXPECTED.contributing_factors) == EXPECTED
    assert len(EXPECTED.contributing_factors) == len(answer.contributing_factors)


CORRECTIONS = {
    "fences": f"First thought:\n```json\n{DRAFT}\n```\nWait, that's wrong. Corrected answer:\n```json\n{JSON}\n```",
    "a heading": f"{DRAFT}\n## Corrected Answer\n\n```json\n{JSON}\n```",
    "two drafts": f"{DRAFT}\n{DRAFT.replace('0.4', '0.5')}\nThe corrected answer:\n{JSON}",
    "the same again": f"{DRAFT}\n**Corrected answer:**\n{JSON}\n{JSON}",
    "a broken one": f"```json\n{DRAFT[:-40]}\n```\nSorry, once more:\n```json\n{JSON}\n```",
}


@pytest.mark.parametrize("text", CORRECTIONS.values(), ids=CORRECTIONS)
def test_an_answer_that_only_changes_the_workflow_of_a_draft_counts_for_a_human(text):
    answer = read(text)
    assert answer.asks_for_human
    assert len(answer.warnings) == len(EXPECTED.warnings) + 1
    assert replace(content(answer), asks_for_human=False, warnings=EXPECTED.warnings) == EXPECTED


NOT_ANSWERS = {
    "the form first": json.dumps(
        answer_with(root_cause_analysis={"summary": "...", "severity": "critical | high | medium | low"})
    )
    + f"\n{JSON}",
    "the schema first": json.dumps(
        {
            "type": "object",
            "properties": {
                "root_cause_analysis": {"type": "object"},
                "selected_workflow": {"type": "object"},
            },
        }
    )
    + f"\n{JSON}",
    "advice about a workflow": f"Do not use this workflow twice.\n{JSON}\nDo not use that workflow again.",
}


@pytest.mark.parametrize("text", NOT_ANSWERS.values(), ids=NOT_ANSWERS)
def test_what_is_no_complete_answer_does_not_compete_with_one(text):
    assert content(read(text)) == EXPECTED


RCA = json.dumps(NULL_CHOICE["root_cause_analysis"])
CHOICE = json.dumps(CANONICAL["selected_workflow"])
SECTIONS = {
    "hashes": f"# root_cause_analysis\n{RCA}\n\n# selected_workflow\n{CHOICE}\n",
    "titles": f"## Root Cause Analysis\n\n{RCA}\n\n## Selected Workflow\n\n{CHOICE}",
    "numbers": f"1. Root cause analysis:\n{RCA}\n2. Selected workflow:\n{CHOICE}",
    "bold": f"**root_cause_analysis**:\n{RCA}\n**selected_workflow**:\n{CHOICE}",
    "bold on the line": f"**Root cause analysis:** {RCA}\n\n**Selected workflow:** {CHOICE}",
    "code": f"`root_cause_analysis`: {RCA}\n`selected_workflow`: {CHOICE}",
    "fences": f"### root_cause_analysis\n```json\n{RCA}\n```\n### selected_workflow\n~~~\n{CHOICE}\n~~~",
    "python": f"# root_cause_analysis\n{json.loads(RCA)}\n# selected_workflow\n{json.loads(CHOICE)}",
    "tags": f"<root_cause_analysis>{RCA}</root_cause_analysis>\n<selected_workflow>{CHOICE}</selected_workflow>",
    "parameters": f'<parameter name="root_cause_analysis">{RCA}</parameter>\n'
    f'<parameter name="selected_workflow">{CHOICE}</parameter>',
    "prose between": f"# root_cause_analysis\nSee below.\n{RCA}\n# selected_workflow\nThe best one:\n{CHOICE}\nBye.",
    "two objects": f'{{"root_cause_analysis": {RCA}}}\n{{"selected_workflow": {CHOICE}}}',
}


@pytest.mark.parametrize("text", SECTIONS.values(), ids=SECTIONS)
def test_an_answer_in_sections(text):
    answer = read(text)
    assert EXPECTED.selected_workflow == answer.selected_workflow
    assert (EXPECTED.summary, EXPECTED.severity) == (answer.summary, answer.severity)
    assert EXPECTED.affected_resource == answer.affected_resource


@pytest.mark.parametrize(
    "choice",
    ["# selected_workflow\nnull\n# confidence\n0.9", "## Selected Workflow: None\n## Confidence: 0.9\n"],
)
def test_sections_may_choose_nothing(choice):
    answer = read(f"# root_cause_analysis\n{RCA}\n{choice}\n# investigation_outcome\nnot actionable\n")
    assert (answer.selected_workflow, answer.workflow_stated) == (None, True)
    assert (answer.confidence, answer.outcome) == (0.9, "not_actionable")


def test_prose_is_what_stands_around_the_answer():
    text = f"<think>hm {PART}</think>The pods were killed.\n\n```json\n{PRETTY}\n```\n\nDone.\n"
    assert read(text).prose == "The pods were killed.\nDone."


@pytest.mark.parametrize(
    ("text", "prose"),
    [
        (JSON, ""),
        (f"Sure.\n<json>{JSON}</json>\nDone.", "Sure.\nDone."),
        (f"```python\nresult = {JSON}\n```", ""),
        (f"submit_result({JSON})", ""),
        (f"Text one.\n{JSON}", "Text one."),
        (f"# root_cause_analysis\n{RCA}\nMore.\n# selected_workflow\n{CHOICE}",
         "# root_cause_analysis\nMore.\n# selected_workflow"),
    ],
)  # fmt: skip
def test_prose_holds_no_wrapping(text, prose):
    assert prose == read(text).prose


def test_long_prose_is_cut():
    assert read("a" * 30_000 + "\n" + JSON).prose == "a" * 20_000 + "…"
