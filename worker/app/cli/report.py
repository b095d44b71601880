"""A result on a terminal of 80 columns: who decides, what happened, why, what to do, what it cost.

All text comes from outside: it is printed as text, never as markup, and cannot control the terminal.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from schemas.analysis import AnalysisResult, CorroborationSource, ReportedSignal
from schemas.workflow import SelectedWorkflow
from worker.app import verdict_line
from worker.app.telling import telling
from worker.domain.untrusted.evidence import make_visible, one_line

STYLES = {"good": "green", "warn": "yellow", "calm": "cyan", "bad": "red"}
"""Of verdicts, by their tone."""
MAX_WIDTH = 100
SHOWN_EVIDENCE = 8
LINE_CHARS = 400
TIME = "%Y-%m-%d %H:%M:%S UTC"
FACTOR_CHARS = 200
ID_CHARS = 12


def print_result(result: AnalysisResult, console: Console | None = None) -> None:
    """Print what a human needs to decide, the verdict first."""
    console = console or Console(highlight=False)
    width, style = min(console.width, MAX_WIDTH), STYLES[verdict_line.tone_of(result)]
    console.print(_panel("Verdict", _verdict(result), style), width=width)
    if result.signal:
        console.print(_panel("Incident", _incident(result.signal, result), "blue"), width=width)
    console.print(_panel("Root cause", _root_cause(result), "magenta"), width=width)
    if result.evidence:
        console.print(_panel("Evidence", _evidence(result), "blue"), width=width)
    if remediation := _remediation(result):
        console.print(_panel("Remediation", Group(*remediation), style), width=width)
    if result.warnings:
        console.print(_panel("Warnings", Group(*_bullets(result.warnings)), "yellow"), width=width)
    console.print(_text(cost_line(result), style="dim"), width=width)


def cost_line(result: AnalysisResult) -> str:
    """Calls, tokens, money and time in one line; the model, if one was called, in another."""
    usage = result.usage
    money = f", ${usage.cost_usd:.4f}" if usage.cost_usd is not None else ""
    model = f"\nmodel: {one_line(result.model, 80)}" if result.model else ""
    cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    return (
        f"{usage.llm_calls} model calls, {usage.tool_calls} tool calls, {usage.input_tokens:,} tokens in{cached}, "
        f"{usage.output_tokens:,} out{money}, {usage.wall_seconds:.1f} s{model}"
    )


def _text(text: str, style: str = "") -> Text:
    return Text(make_visible(text), style=style)


def _panel(title: str, body: Group | Table | Text, style: str) -> Panel:
    return Panel(body, title=_text(title, style=f"bold {style}"), title_align="left", border_style=style)


def _rows(*rows: tuple[str, str]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        if value:
            table.add_row(name, _text(value))
    return table


def _incident(signal: ReportedSignal, result: AnalysisResult) -> Table:
    return _rows(
        ("signal", f"{one_line(signal.signal_type, 80)} ({signal.severity})"),
        ("resource", verdict_line.reported(result)),
        ("environment", result.environment),
        ("received", f"{signal.received_time:{TIME}}"),
        ("analysed", f"{result.completed_at:{TIME}}"),
        ("error", one_line(signal.error_message, LINE_CHARS)),
    )


def _evidence(result: AnalysisResult) -> Table:
    """The lines that matter; then what the causal chain cites, or what confirms the answer, or was read first."""
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(style="cyan", no_wrap=True, min_width=3)
    table.add_column(overflow="fold", ratio=1)
    found = telling(result)
    for line in found:
        text = one_line(f"{line.form}: {line.text}", LINE_CHARS)
        table.add_row(_text(one_line(line.evidence, ID_CHARS)), _text(text))
    claims = result.root_cause_analysis.causal_claims if result.root_cause_analysis else ()
    cited = {id_ for claim in claims for id_ in claim.evidence}
    cited = cited or set(result.corroboration.evidence if result.corroboration else ())
    shown = sorted(result.evidence, key=lambda item: item.id not in cited)[: SHOWN_EVIDENCE - len(found)]
    for item in shown:
        source = item.source.removeprefix("enrichment:")
        told = item.summary.lower().startswith(source.lower())
        read = one_line(item.summary if told else f"{source} {item.summary}", LINE_CHARS)
        row = Text(read, style="dim", no_wrap=True, overflow="ellipsis")
        table.add_row(_text(one_line(item.id, ID_CHARS)), row)
    if more := len(result.evidence) - len(shown):
        table.add_row("…", _text(f"and {more} more; --json shows them", style="dim"))
    return table


def _root_cause(result: AnalysisResult) -> Group:
    rca, seen = result.root_cause_analysis, _bullets(cause.summary for cause in result.diagnosis)
    by_rules = [_text("What rules find in the state of the cluster:"), *seen] if seen else []
    if rca is None:
        return Group(_text(verdict_line.no_cause_line(result), style="yellow"), *by_rules)
    factors = _new_factors(rca.summary, rca.contributing_factors)
    details = _rows(
        ("affected", verdict_line.where(result.affected_resource)),
        ("assessed as", f"{rca.signal_type or 'not classified'}, {rca.severity}"),
        ("factors", "\n".join(f"• {one_line(f, FACTOR_CHARS)}" for f in factors)),
    )
    return Group(_text(rca.summary.strip()), _text(""), details, *by_rules)


def _new_factors(summary: str, factors: Iterable[str]) -> list[str]:
    """Factors that repeat neither the summary nor an earlier factor."""
    said, new = [_compared(summary)], []
    for factor in factors:
        words = _compared(factor)
        if words and not any(words in earlier for earlier in said):
            said.append(words)
            new.append(factor)
    return new


def _compared(text: str) -> str:
    return " ".join(text.lower().split()).strip(" .;")


def _verdict(result: AnalysisResult) -> Group:
    """The decision, why a human is needed, and whether the cluster confirms the answer."""
    parts = [_text(verdict_line.decision_line(result), style=f"bold {STYLES[verdict_line.tone_of(result)]}")]
    if result.needs_human_review:
        parts.append(_text(one_line(result.human_review_detail, LINE_CHARS)))
    parts += _bullets(verdict_line.approval_reasons(result))
    if result.approval.would_require is False and result.selected_workflow is not None:
        parts.append(_text("Outside observe mode it may run without approval", style="dim"))
    if (found := result.corroboration) is not None:
        style = "dim" if found.by is CorroborationSource.NONE else "green"
        parts += [_text(""), _text(verdict_line.confirmation_line(result), style=style)]
    return Group(*parts)


def _remediation(result: AnalysisResult) -> list[Text | Table]:
    parts = _workflow(result.selected_workflow) if result.selected_workflow is not None else []
    if result.alternative_workflows:
        names = ", ".join(a.workflow_id for a in result.alternative_workflows)
        parts += [_text(""), _text(f"Also considered: {names}", style="dim")]
    return parts


def _bullets(lines: Iterable[str]) -> list[Text]:
    return [_text(f"• {one_line(line, LINE_CHARS)}") for line in lines]


def _workflow(workflow: SelectedWorkflow) -> list[Text | Table]:
    version = f" {workflow.version}" if workflow.version else ""
    parameters = "\n".join(f"{name} = {one_line(str(v), 200)}" for name, v in workflow.parameters.items())
    return [
        _text(f"{workflow.workflow_id}{version}", style="bold"),
        _rows(
            ("action", workflow.action_type),
            ("confidence", f"{workflow.confidence:.2f}"),
            ("risk", workflow.declared_risk or "not declared in the catalog"),
            ("parameters", parameters),
            ("why", one_line(workflow.rationale, LINE_CHARS)),
        ),
    ]
