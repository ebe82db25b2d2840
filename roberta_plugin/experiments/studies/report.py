"""What a study has found so far -> report.md beside the paper's rows, results.json, curves.png."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from roberta_plugin.data.count_baselines import LOSSES, comparison
from roberta_plugin.experiments.studies.plan import PlannedStudy, notes_on
from roberta_plugin.experiments.studies.settings import PerplexityProbe, Probe, Study, paper_row
from roberta_plugin.experiments.studies.statistics import Comparison, Pair, compare, conclusions
from roberta_plugin.experiments.sweeps.grid import VARIANT
from roberta_plugin.files import write_text
from roberta_plugin.json_files import plain, write_json
from roberta_plugin.launch.report import count_levels
from roberta_plugin.reports import Line, Panel, markdown_table, plot

Results = Mapping[str, Any]
Values = Mapping[str, Sequence[float]]  # variant -> value of each seed of pretraining


def write_report(study: Study, results: Results, root: Path) -> tuple[dict[str, Any], str]:
    """Write results.json, report.md and curves.png into `root`; return the content of the first two."""
    comparisons = {probe.name: compare(values) for probe in study.probes if (values := scaled(results, probe, study))}
    full = plain({**results, "comparisons": {name: asdict(one) for name, one in comparisons.items()}})
    text = as_markdown(study, full, comparisons)
    write_json(root / "results.json", full)
    if _has_curves(full):
        draw_curves(root / "curves.png", full)
    write_text(root / "report.md", text)
    return full, text


def numbers(results: Results, probe: Probe, study: Study) -> dict[str, list[float]]:
    """Variant -> values of its seeds, in the study's order; a variant without results has none."""
    by_variant = results["values"].get(probe.name, {})
    return {
        variant.name: [float(one["value"]) for one in by_variant.get(variant.name, {}).values()]
        for variant in study.variants
    }


def scaled(results: Results, probe: Probe, study: Study) -> dict[str, list[float]]:
    """The values as they are tested, of the variants that have any: see `PerplexityProbe.scaled`."""
    values = numbers(results, probe, study)
    return {name: [probe.scaled(value) for value in seeds] for name, seeds in values.items() if seeds}


def as_markdown(study: Study, results: Results, comparisons: Mapping[str, Comparison]) -> str:
    """The report for people."""
    variants, num_seeds = results["variants"], len(results["seeds"])
    done = sum(facts["pretrainings_done"] for facts in variants.values())
    parts = [
        f"# {study.title}",
        f"{len(variants)} variants x {num_seeds} seeds at equal {results['budget']['equal']}; {done} of "
        f"{len(variants) * num_seeds} pretrainings done. Each entry: median (smallest to largest), n seeds of "
        "pretraining; for a fine-tuning task the value of a pretraining is the median of its seeds of fine-tuning. The "
        "paper's numbers are those of its own models and data.",
        result_table(study, results),
    ]
    lines = []
    for probe in study.probes:
        if probe.name in comparisons:
            if counts := results["baselines"].get(probe.name):
                for variant, seeds in scaled(results, probe, study).items():
                    lines.append(f"{comparison(statistics.median(seeds), counts, what=f'{probe.name}: {variant}')}.")
            options = {"reference": study.reference, "better": probe.better, "unit": probe.unit}
            lines += conclusions(probe.name, comparisons[probe.name], **options)
    if lines:
        parts.append("## What exceeds the seeds' noise\n\n" + "\n".join(f"- {line}" for line in lines))
        parts.append(pair_table(study, comparisons))
    if _has_curves(results):
        parts.append("## Loss\n\n![loss curves](curves.png)")
    parts.append(f"## Each pretraining\n\n{plan_table(variants)}")
    data = ", ".join(f"{path} ({held})" for path, held in results["data"].items() if path.endswith(".bin"))
    parts.append(f"All pretrainings together: {results['flops']:.3g} FLOPs. Data: {data}.")
    if results["failures"]:
        failed = [f"- {name}: {reason}" for name, reason in results["failures"].items()]
        parts.append("## Failed; the same command tries them again\n\n" + "\n".join(failed))
    return "\n\n".join(parts) + "\n"


def result_table(study: Study, results: Results) -> str:
    """Variants by probes, each beside the paper's number, if the variant mirrors a row that has one."""
    papers = {variant.name: paper_row(variant.paper) for variant in study.variants}
    head, rows = ["variant"], [[variant.name] for variant in study.variants]
    counts = [[f"{title} of the training text"] for title in LOSSES.values()]
    for probe in study.probes:
        by_seed = [one for seeds in results["values"].get(probe.name, {}).values() for one in seeds.values()]
        metric = "perplexity" if probe.better == "smaller" else next((one["metric"] for one in by_seed), "")
        head.append(f"{probe.name} ({metric})" if metric else probe.name)
        has_paper = any(probe.column in row for row in papers.values())
        if has_paper:
            head.append("paper")
        for row, (name, values) in zip(rows, numbers(results, probe, study).items(), strict=True):
            row.append(show(values))
            if has_paper:
                row.append(f"{papers[name][probe.column]:g}" if probe.column in papers[name] else "")
        for row, name in zip(counts, LOSSES, strict=True):
            losses = results["baselines"].get(probe.name)
            shown = show([2 ** losses[name]]).split(" (")[0] if losses and name in losses else ""
            row += [shown, *([""] if has_paper else [])]
    return markdown_table(head, rows + counts if any(results["baselines"].values()) else rows)


def show(values: Sequence[float]) -> str:
    """As in `81.2 (80.9 to 81.6), n = 3`."""
    if not values:
        return "-"
    digits = 1 if min(values) >= 10 else 3
    median, low, high = (f"{value:,.{digits}f}" for value in (statistics.median(values), min(values), max(values)))
    return f"{median} ({low} to {high}), n = {len(values)}"


def pair_table(study: Study, comparisons: Mapping[str, Comparison]) -> str:
    """Every pair of variants with its test, and the paper's difference, for its sign."""
    head = ["probe", "pair", "difference of means", "95 % interval", "p (Games-Howell)", "paper's difference"]
    rows = []
    for probe in study.probes:
        for pair in comparisons[probe.name].pairs if probe.name in comparisons else ():
            paper = paper_difference(study, probe, pair)
            rows.append(
                [
                    f"{probe.name} ({probe.unit})",
                    f"{pair.first} - {pair.second}",
                    f"{pair.difference:+.3g}",
                    "-" if pair.p is None else f"{pair.low:.3g} to {pair.high:.3g}",
                    "-" if pair.p is None else f"{pair.p:.2g}",
                    "" if paper is None else f"{paper:+.3g}",
                ]
            )
    return markdown_table(head, rows)


def paper_difference(study: Study, probe: Probe, pair: Pair) -> float | None:
    """The paper's number of the first variant's row minus the second's; None where it has not both."""
    papers = {variant.name: paper_row(variant.paper).get(probe.column) for variant in study.variants}
    a, b = papers[pair.first], papers[pair.second]
    return None if a is None or b is None else round(probe.scaled(a) - probe.scaled(b), 6)


def plan_table(variants: Mapping[str, Any]) -> str:
    """Updates, tokens and FLOPs of one pretraining of each variant, as results.json holds them."""
    rows = [
        [
            name,
            f"{facts['num_updates']:,}",
            f"{facts['tokens_per_update']:,.0f}",
            f"{facts['tokens']:.3g}",
            "?" if facts["epochs"] is None else f"{facts['epochs']:.3g}",
            f"{facts['lr']:.3g}",
            f"{facts['flops']:.3g}",
        ]
        for name, facts in variants.items()
    ]
    return markdown_table(["variant", "updates", "tokens/update", "tokens", "epochs", "lr", "FLOPs"], rows)


def describe_plan(planned: PlannedStudy, num_tunings: Mapping[str, int]) -> str:
    """What a study would do; `num_tunings` are the fine-tunings of each probe whose data is here."""
    study, num_pretrainings = planned.study, len(planned.plans) * len(planned.study.seeds)
    lines = [
        f"{study.title}: {len(planned.plans)} variants x {len(study.seeds)} seeds, equal {study.budget.equal}",
        "",
        plan_table({plan.variant.name: plan.facts() for plan in planned.plans}),
        "",
    ]
    for probe in study.probes:
        if isinstance(probe, PerplexityProbe):
            lines.append(f"probe {probe.name}: held-out perplexity, {probe.split} split")
        else:
            runs = num_tunings.get(probe.name)
            counted = f"{runs:,} runs" if runs else "the number of its runs follows from its data, which is not here"
            lines.append(f"probe {probe.name}: fine-tuning on {probe.task}, {counted}")
    lines += notes_on(planned)
    if not planned.has_data:
        lines.append("The data is not here: tokens are those of full blocks.")
    updates = sum(plan.num_updates for plan in planned.plans) * len(study.seeds)
    tunings = f" and {sum(num_tunings.values()):,} fine-tunings" if num_tunings else ""
    lines.append(
        f"{num_pretrainings} pretrainings of {updates:,} updates and {planned.flops:.3g} FLOPs in all{tunings}"
    )
    return "\n".join(lines)


def _has_curves(results: Results) -> bool:
    return any(curve["updates"] for curve in results["curves"].values())


def draw_curves(path: Path, results: Results) -> None:
    """Training loss against tokens, a colour for each variant and a line for each seed; and that of counts."""
    lines = []
    for number, (name, facts) in enumerate(results["variants"].items()):
        curves = [each for run, each in results["curves"].items() if run.startswith(f"{VARIANT}-{name}/")]
        for place, each in enumerate(one for one in curves if one["updates"]):
            tokens = [update * facts["tokens_per_update"] for update in each["updates"]]
            losses = [math.nan if value is None else value for value in each["values"]]
            lines.append(
                Line(tokens, losses, {"color": f"C{number}", "alpha": 0.8, "label": name if not place else ""})
            )
    levels: dict[str, float] = {}
    for probe, counts in results["baselines"].items():
        levels |= count_levels(counts, split=probe)
    panel = Panel(y_label="training loss (bits per masked token)", lines=lines, levels=levels)
    plot(path, [panel], x_label="training tokens", width=7.0, height=4.5)
