"""The report of a run as one HTML file: a heat map of models and scenarios, and transcripts. Does no I/O.

The page has no script and loads nothing; its content security policy forbids both. All model output is escaped.
"""

from collections.abc import Callable, Sequence
from html import escape

import msgspec

from treadle.core.events import Noted, RunEnded
from treadle.core.journal_entries import Entry
from treadle.core.json import canonical_json
from treadle.evals.graders import GraderEvidence
from treadle.evals.results.result_folder import EvalRunInfo
from treadle.evals.results.sample_rows import SampleRow, by
from treadle.evals.results.terminal_table import summarise
from treadle.evals.transcript import end_of

TEXT_CHARS_MAX = 4_000
TRANSCRIPTS_MAX = 400
_SHOWN = ("user", "assistant", "reasoning", "tool_call", "tool_result", "status", "error")

_STYLE = """
:root{color-scheme:light dark;--line:#8884;--pass:#1a7f37;--fail:#cf222e;--broken:#9a6700}
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:76rem;padding:0 1rem}
table{border-collapse:collapse;margin:1rem 0}th,td{padding:.3rem .6rem;border:1px solid var(--line);text-align:left}
th{font-weight:600}td.n{text-align:right;font-variant-numeric:tabular-nums}
td.cell{text-align:center;font-variant-numeric:tabular-nums}td.cell a{color:inherit;text-decoration:none;display:block}
details{border:1px solid var(--line);border-radius:6px;margin:.5rem 0;padding:.4rem .8rem}
summary{cursor:pointer}[id]{scroll-margin-top:4rem}.pass{color:var(--pass)}.fail{color:var(--fail)}.broken{color:var(--broken)}
pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.2rem 0 .6rem;padding:.4rem .6rem;background:#8881;
border-radius:4px}
.who{font-weight:600;font-size:.85rem;opacity:.75}
"""

Find = Callable[[str], GraderEvidence | None]
"""Gives the transcript of a sample."""


def write_page(info: EvalRunInfo, rows: Sequence[SampleRow], find: Find) -> str:
    """Write the report; `find` is asked for the transcripts of what did not pass, and of one sample of what did."""
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(info.name)}</title><style>{_STYLE}</style></head><body>"
    )
    if info.mode != "offline":  # live samples are kept in the order in which they ended
        rows = sorted(rows, key=lambda row: (row.scenario, row.model, row.strategy, row.trial))
    parts = [
        head,
        f"<h1>{escape(info.name)}</h1>",
        _facts(info, rows),
        _models(rows),
        _heat_map(rows),
        "<h2>Samples</h2>",
        *(_sample(row, find) for row in _chosen(rows)),
        "</body></html>\n",
    ]
    return "\n".join(parts)


def _facts(info: EvalRunInfo, rows: Sequence[SampleRow]) -> str:
    prints = " · ".join(f"{name} {value}" for name, value in sorted(info.fingerprints.items()))
    endpoints = " · ".join(f"{name} at {url}" for name, url in sorted(info.endpoints.items()))
    lines = [
        f"{len(rows)} samples of {len({row.scenario for row in rows})} scenarios, {info.mode}",
        " · ".join(part for part in (f"graders of version {info.grader_version}", prints) if part),
        endpoints,
        " · ".join(f"{name} {value}" for name, value in sorted(info.sampling.items())),
    ]
    return "".join(f"<p>{escape(line)}</p>" for line in lines if line)


def _models(rows: Sequence[SampleRow]) -> str:
    head = ("model", "scenarios", "judged", "passed", "rate", "95% Wilson", "pass^k", "broken", "$", "p50 s", "p95 s")
    body = [
        (
            each.arm,
            str(each.scenarios),
            str(each.judged),
            str(each.passed),
            "–" if each.rate is None else f"{each.rate:.3f}",
            "–" if each.rate is None else f"{each.wilson[0]:.3f} to {each.wilson[1]:.3f}",
            "–" if each.pass_hat is None else f"{each.pass_hat:.3f} (k={each.pass_k})",
            str(each.broken),
            "–" if each.usd_total is None else f"{each.usd_total:.4f}",
            f"{each.seconds_p50:.1f}" if each.judged else "–",
            f"{each.seconds_p95:.1f}" if each.judged else "–",
        )
        for each in summarise(rows)
    ]
    return _table(head, [[f"<td>{escape(cell)}</td>" for cell in line] for line in body])


def _heat_map(rows: Sequence[SampleRow]) -> str:
    """Draw scenarios by what was compared: models where there are several, else upstream protocols."""
    arms = list(by(rows, lambda row: row.arm))
    is_offline = all(row.strategy == "offline" for row in rows)
    column: Callable[[SampleRow], str] = (lambda row: row.protocol) if is_offline else (lambda row: row.arm)
    columns = list(by(rows, column)) if is_offline else arms
    lines: list[list[str]] = []
    for scenario, group in by(rows, lambda row: row.scenario).items():
        cells = by(group, column)
        title = escape(group[0].title)
        lines.append(
            [f'<td title="{title}">{escape(scenario)}</td>', *(_cell(cells.get(name, [])) for name in columns)]
        )
    return "<h2>Scenarios</h2>" + _table(("scenario", *columns), lines)


def _cell(rows: Sequence[SampleRow]) -> str:
    judged = [row for row in rows if row.outcome != "broken"]
    if not rows:
        return "<td></td>"
    worst = next((row for row in rows if row.outcome != "pass"), rows[0])
    link = f"#{_anchor(worst)}"
    if not judged:
        return f'<td class="cell broken"><a href="{link}">broken</a></td>'
    rate = sum(row.outcome == "pass" for row in judged) / len(judged)
    shade = f"background:hsl({120 * rate:.0f} 60% 50% / .35)"
    passed = sum(row.outcome == "pass" for row in judged)
    return f'<td class="cell" style="{shade}"><a href="{link}">{passed}/{len(judged)}</a></td>'


def _chosen(rows: Sequence[SampleRow]) -> list[SampleRow]:
    """Return every sample that did not pass, and the first of each cell that did."""
    chosen: list[SampleRow] = []
    for cell in by(rows, lambda row: f"{row.scenario} {row.arm}").values():
        bad = [row for row in cell if row.outcome != "pass"]
        chosen += bad or cell[:1]
    return chosen[:TRANSCRIPTS_MAX]


def _sample(row: SampleRow, find: Find) -> str:
    mark = f'<span class="{row.outcome}">{row.outcome}</span>'
    where = " · ".join(part for part in (row.arm, row.protocol, f"trial {row.trial}") if part)
    parts = [
        f"<details><summary>{mark} {escape(row.scenario)} · {escape(where)}</summary>",
        # A link to something inside opens what it is in; a link to the whole would not.
        f'<p id="{_anchor(row)}">{escape(row.title)}</p>',
        f'<p class="{row.outcome}">{escape(row.reason)}</p>' if row.reason else "",
        _verdicts(row),
        "".join(
            f"<p>attempt {number}: {escape(each.ended)} {escape(each.error)}</p>"
            for number, each in enumerate(row.attempts, 1)
            if each.error
        ),
    ]
    evidence = find(row.key)
    if evidence is not None:
        parts += [_difference(evidence), _transcript(evidence)]
    return "".join([*parts, "</details>"])


def _verdicts(row: SampleRow) -> str:
    lines = [
        [
            f"<td>{escape(each.grader)}</td>",
            f'<td class="{"pass" if each.passed else "fail"}">{"pass" if each.passed else "fail"}</td>',
            f"<td>{escape(each.reason)}</td>",
        ]
        for each in row.verdicts
    ]
    return _table(("grader", "verdict", "why"), lines) if lines else ""


def _difference(evidence: GraderEvidence) -> str:
    """Show the world before and after, where it changed."""
    before, after = canonical_json(evidence.before).decode(), canonical_json(evidence.after).decode()
    if before == after:
        return ""
    return f'<div class="who">world before</div>{_pre(before)}<div class="who">world after</div>{_pre(after)}'


def _transcript(evidence: GraderEvidence) -> str:
    parts: list[str] = []
    for number, run in enumerate(evidence.transcript.runs, 1):
        parts.append(f'<div class="who">run {number}</div>')
        parts += [_entry(entry) for entry in run.entries if entry.kind in _SHOWN]
        parts += [
            f'<div class="who">note {escape(event.note.code)}</div>{_pre(event.note.message)}'
            for event in run.events
            if isinstance(event, Noted)
        ]
    return "".join(parts)


def _entry(entry: Entry) -> str:
    end: RunEnded | None = end_of(entry)
    if end is not None:
        text = f"{end.status}{f', limit {end.limit}' if end.limit else ''}"
        text += f": {end.error.code}, {end.error.message}" if end.error is not None else ""
        return f'<div class="who">end</div>{_pre(text)}'
    if entry.kind == "status":
        return ""
    data = b"" if entry.data is None else bytes(entry.data)
    text = entry.content or (msgspec.json.format(data, indent=1).decode() if data else "")
    return f'<div class="who">{escape(entry.kind)}</div>{_pre(text)}' if text else ""


def _pre(text: str) -> str:
    shown = text if len(text) <= TEXT_CHARS_MAX else f"{text[:TEXT_CHARS_MAX]} … {len(text)} characters in all"
    return f"<pre>{escape(shown)}</pre>"


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(line)}</tr>" for line in lines)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"


def _anchor(row: SampleRow) -> str:
    return "s-" + "".join(char if char.isalnum() else "-" for char in row.key)
