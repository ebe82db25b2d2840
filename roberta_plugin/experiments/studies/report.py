"""What a study has found -> results.json with every number, report.md beside the paper's rows, curves.png, bars.png."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from roberta_plugin.experiments.studies.costs import machine
from roberta_plugin.experiments.studies.paper_tables import paper_row
from roberta_plugin.experiments.studies.plan import VariantPlan
from roberta_plugin.experiments.studies.plots import draw_bars, draw_curves
from roberta_plugin.experiments.studies.record import VARIANT_AXIS, all_contents
from roberta_plugin.experiments.studies.settings import Probe, Study
from roberta_plugin.experiments.studies.statistics import Comparison, Pair, compare, conclusions
from roberta_plugin.experiments.studies.work import Work
from roberta_plugin.experiments.sweeps.run import DONE, RunFolder
from roberta_plugin.files import atomic_write
from roberta_plugin.training.log import Curve, curve

Values = Mapping[str, Mapping[str, Mapping[str, Mapping[str, Any]]]]
"""Probe -> variant -> seed -> what was found, with its "value"."""


def write_report(work: Work) -> tuple[dict[str, Any], str]:
    """Write the files into the study's folder; return the content of results.json and of report.md."""
    study, plans, root = work.study, work.plans, work.root
    curves = {run.run.name: curve(_lines(run), kind="train_inner", value="loss") for run in work.runs}
    comparisons = {
        probe.name: compare({name: list(seeds.values()) for name, seeds in numbers(work.values, probe, study).items()})
        for probe in study.probes
        if any(numbers(work.values, probe, study).values())
    }
    results: dict[str, Any] = {
        "title": study.title,
        "machine": machine(),
        "data": all_contents(study, plans),
        "seeds": list(study.seeds),
        "budget": asdict(study.budget),
        "variants": {plan.variant.name: facts_of(plan, work.runs) for plan in plans},
        "values": work.values,
        "comparisons": {name: asdict(found) for name, found in comparisons.items()},
        "curves": {name: found._asdict() for name, found in curves.items()},
        "cost": {
            "flops": work.costs.total,
            "flops_pretraining": work.costs.pretraining,
            "flops_fine_tuning": work.costs.tuning,
            "fine_tuning_hours": tuning_hours(root),
        },
        "failures": work.failures,
    }
    results = plain(results)
    tokens = {plan.variant.name: plan.size.tokens for plan in plans}  # of an update
    has_curves = any(found.updates for found in curves.values())
    text = as_markdown(study, plans, work.values, comparisons, results, has_curves=has_curves)
    with atomic_write(root / "results.json", "w") as file:
        json.dump(results, file, indent=1, allow_nan=False)
    if has_curves:
        with atomic_write(root / "curves.png") as file:
            draw_curves(file, curves_by_variant(work.runs, curves), tokens)
    if comparisons:
        with atomic_write(root / "bars.png") as file:
            draw_bars(file, {probe.name: numbers(work.values, probe, study) for probe in study.probes}, study)
    with atomic_write(root / "report.md", "w") as file:
        file.write(text)
    return results, text


def plain(value: Any) -> Any:
    """The same with null where a number is not finite, as the loss of a run that has diverged: JSON has no nan.

    Example:
        plain({"loss": [9.1, math.nan]})  ->  {"loss": [9.1, None]}
    """
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def numbers(values: Values, probe: Probe, study: Study) -> dict[str, dict[str, float]]:
    """Variant -> seed -> value of a probe, in the study's order; a variant without results has none."""
    found = values.get(probe.name, {})
    return {
        variant.name: {seed: float(one["value"]) for seed, one in found.get(variant.name, {}).items()}
        for variant in study.variants
    }


def facts_of(plan: VariantPlan, runs: Sequence[RunFolder]) -> dict[str, Any]:
    """Options, planned and measured costs of a variant's pretrainings."""
    own = [run for run in runs if run.run.settings[VARIANT_AXIS] == plan.variant.name]
    measured = [found for run in own if (found := measured_costs(run))]
    return {
        "options": {name: str(value) for name, value in plan.options.items()},
        "paper": plan.variant.paper,
        "num_updates": plan.num_updates,
        "tokens_per_update": plan.size.tokens,
        "tokens": plan.tokens,
        "epochs": plan.epochs,
        "flops": plan.flops,
        "lr": plan.parsed.lr[0],
        "pretrainings_done": sum(run.state() == DONE for run in own),
        "measured_tokens": [found["tokens"] for found in measured],
        "hours": [found["hours"] for found in measured],
    }


def measured_costs(run: RunFolder) -> dict[str, float] | None:
    """Tokens of a finished pretraining, and its hours of training steps, by its log; None before it is finished.

    The log has records every so many updates; what lies after the last one is taken to be like the rest.
    """
    result, lines = run.result(), _lines(run)
    per_update, speed = (curve(lines, kind="train_inner", value=value) for value in ("wpb", "wps"))
    if result is None or not per_update.updates:
        return None
    tokens = seconds = 0.0
    for before, update, batch, rate in zip(
        [0, *per_update.updates], per_update.updates, per_update.values, speed.values, strict=False
    ):
        tokens += batch * (update - before)
        seconds += batch * (update - before) / rate if rate > 0 else 0.0
    scale = result["num_updates"] / per_update.updates[-1]
    return {"tokens": scale * tokens, "hours": scale * seconds / 3600}


def tuning_hours(root: Path) -> float:
    """Hours of all finished fine-tunings, each in its last attempt."""
    paths = root.glob("fine-tuning/*/runs/*/seed-*/result.json")
    return sum(float(json.loads(path.read_text(encoding="utf-8")).get("seconds", 0)) for path in paths) / 3600


def as_markdown(
    study: Study,
    plans: Sequence[VariantPlan],
    values: Values,
    comparisons: Mapping[str, Comparison],
    results: Mapping[str, Any],
    *,
    has_curves: bool,
) -> str:
    """The report for people."""
    done = sum(facts["pretrainings_done"] for facts in results["variants"].values())
    planned = len(plans) * len(study.seeds)
    parts = [
        f"# {study.title}",
        f"{len(plans)} variants x {len(study.seeds)} seeds at equal {study.budget.equal}; {done} of {planned} "
        "pretrainings done. A cell: median (smallest to largest), n seeds of pretraining; for a fine-tuning task the "
        "value of a pretraining is the median of its seeds of fine-tuning. The paper's numbers are those of its own "
        "models and data.",
        result_table(study, values),
    ]
    if comparisons:
        parts.append("![values by variant](bars.png)")
        sentences = [
            line
            for probe in study.probes
            if probe.name in comparisons
            for line in _sentences(study, probe, values, comparisons[probe.name])
        ]
        parts.append("## What exceeds the seeds' noise\n\n" + "\n".join(f"- {line}" for line in sentences))
        parts.append(pair_table(study, comparisons))
    if has_curves:
        parts.append("## Loss\n\n![loss curves](curves.png)")
    parts.append(cost_section(plans, results))
    if results["failures"]:
        lines = [f"- {name}: {reason}" for name, reason in results["failures"].items()]
        parts.append("## Failed; the same command tries them again\n\n" + "\n".join(lines))
    return "\n\n".join(parts) + "\n"


def result_table(study: Study, values: Values) -> str:
    """Variants by probes, each beside the paper's number, if the variant mirrors a row that has one."""
    rows = {variant.name: paper_row(variant.paper) if variant.paper else {} for variant in study.variants}
    columns = [(probe, any(probe.column in row for row in rows.values())) for probe in study.probes]
    head = ["variant"]
    for probe, has_paper in columns:
        unit = "perplexity" if probe.better == "smaller" else getattr(probe, "metric", "")
        head += [f"{probe.name} ({unit})", *(["paper"] if has_paper else [])]
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    for variant in study.variants:
        cells = [variant.name]
        for probe, has_paper in columns:
            cells.append(show(list(numbers(values, probe, study)[variant.name].values())))
            if has_paper:
                number = rows[variant.name].get(probe.column)
                cells.append("" if number is None else f"{number:g}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def show(values: Sequence[float]) -> str:
    """As in `81.2 (80.9 to 81.6), n = 3`."""
    if not values:
        return "-"
    digits = 1 if min(values) >= 10 else 3
    median, low, high = (f"{value:.{digits}f}" for value in (statistics.median(values), min(values), max(values)))
    return f"{median} ({low} to {high}), n = {len(values)}"


def pair_table(study: Study, comparisons: Mapping[str, Comparison]) -> str:
    """Every pair of variants and the tests; and the paper's difference, for its sign."""
    head = [
        "probe",
        "pair",
        "difference of means",
        "95 % interval",
        "p (Tukey)",
        "p (permutation)",
        "paper's difference",
    ]
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    for probe in study.probes:
        for pair in comparisons[probe.name].pairs if probe.name in comparisons else ():
            paper = paper_difference(study, probe, pair.first, pair.second)
            cells = [
                probe.name,
                f"{pair.first} - {pair.second}",
                f"{pair.difference:+.3g}",
                "-" if pair.low is None or pair.high is None else f"{pair.low:.3g} to {pair.high:.3g}",
                "-" if pair.p_tukey is None else f"{pair.p_tukey:.2g}",
                "-" if pair.p_permutation is None else f"{pair.p_permutation:.2g}",
                "" if paper is None else f"{paper:+.3g}, {_agreement(paper, pair)}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def paper_difference(study: Study, probe: Probe, first: str, second: str) -> float | None:
    """The paper's number of the first variant's row minus the second's; None where it has not both."""
    papers = [study.variant(name).paper for name in (first, second)]
    if not all(papers):
        return None
    a, b = (paper_row(paper).get(probe.column) for paper in papers)
    return None if a is None or b is None else round(a - b, 6)


def _agreement(paper: float, pair: Pair) -> str:
    sign = paper * pair.difference
    found = "same sign" if sign > 0 else "other sign" if sign < 0 else "one of them is 0"
    if pair.p_tukey is None:
        return f"{found}, noise unknown"
    return found if pair.exceeds_noise else f"{found}, ours within the noise"


def cost_section(plans: Sequence[VariantPlan], results: Mapping[str, Any]) -> str:
    """FLOPs, tokens and hours of each variant's pretraining, the machine, and the data."""
    head = ["variant", "updates", "tokens/update", "tokens", "epochs", "lr", "FLOPs", "hours"]
    lines = ["## Cost of one pretraining", "", f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    for plan in plans:
        facts = results["variants"][plan.variant.name]
        tokens = statistics.median(facts["measured_tokens"]) if facts["measured_tokens"] else plan.tokens
        cells = [
            plan.variant.name,
            f"{plan.num_updates:,}",
            f"{plan.size.tokens:,.0f}",
            f"{tokens:,.0f}",
            "?" if plan.epochs is None else f"{plan.epochs:.3g}",
            f"{plan.parsed.lr[0]:g}",
            f"{plan.flops:.3g}",
            f"{statistics.median(facts['hours']):.3g}" if facts["hours"] else "-",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    cost, where = results["cost"], results["machine"]
    lines += [
        "",
        f"All together {cost['flops']:.3g} FLOPs, of which {cost['flops_fine_tuning']:.3g} for fine-tuning "
        f"({cost['fine_tuning_hours']:.3g} hours of runs). Hours of a variant: median of its seeds' wall-clock time "
        "in training steps, without validation and start-up; other work on the machine at that time, such as runs in "
        f"parallel, lengthens them. Machine of this report: {where['processor']}, {where['cores']} cores, "
        f"GPU: {where['gpu'] or 'none'}; torch {where['torch']}.",
        "",
        "Data: "
        + ", ".join(f"{path} ({held})" for path, held in results["data"].items() if path.endswith(".bin"))
        + ".",
    ]
    return "\n".join(lines)


def _sentences(study: Study, probe: Probe, values: Values, found: Comparison) -> list[str]:
    by_variant = {name: list(seeds.values()) for name, seeds in numbers(values, probe, study).items() if seeds}
    return conclusions(probe.name, by_variant, found, reference=study.reference, better=probe.better)


def curves_by_variant(runs: Sequence[RunFolder], curves: Mapping[str, Curve]) -> dict[str, list[Curve]]:
    """The curves of each variant's seeds, in the order of the runs."""
    found: dict[str, list[Curve]] = {}
    for run in runs:
        if curves[run.run.name].updates:
            found.setdefault(run.run.settings[VARIANT_AXIS], []).append(curves[run.run.name])
    return found


def _lines(run: RunFolder) -> list[str]:
    path = run.path / "log.txt"
    return path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
