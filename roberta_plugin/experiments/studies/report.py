"""The results of a study (results.json) -> report.md beside the paper's rows, curves.png, values.png."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from roberta_plugin.data.count_baselines import LOSSES
from roberta_plugin.experiments.studies.settings import Probe, Study, paper_row
from roberta_plugin.experiments.studies.statistics import Comparison, Pair, compare, conclusions
from roberta_plugin.experiments.sweeps.grid import VARIANT
from roberta_plugin.experiments.sweeps.report import markdown_table
from roberta_plugin.files import atomic_write, write_text
from roberta_plugin.json_files import plain, write_json
from roberta_plugin.launch.report import draw_baseline
from roberta_plugin.pictures import drawable, picture

Results = Mapping[str, Any]
BLUE, RED = "#1f4e8c", "#b04a3a"


def write_report(study: Study, results: Results, root: Path) -> tuple[dict[str, Any], str]:
    """Write results.json, report.md and the plots into `root`; return the content of the first two."""
    comparisons = {probe.name: compare(values) for probe in study.probes if (values := scaled(results, probe, study))}
    full = plain({**results, "comparisons": {name: asdict(one) for name, one in comparisons.items()}})
    text = as_markdown(study, full, comparisons)
    write_json(root / "results.json", full)
    if _has_curves(full):
        with atomic_write(root / "curves.png") as file:
            draw_curves(file, full)
    if comparisons:
        with atomic_write(root / "values.png") as file:
            draw_values(file, full, study)
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


def baselines_of(results: Results, probe: Probe) -> Mapping[str, float]:
    """Losses in bits per token of counts of the training text, by the names of LOSSES; empty for other probes."""
    found: Mapping[str, float] = results.get("baselines", {}).get(probe.name, {})
    return found


def standings(name: str, values: Mapping[str, Sequence[float]], losses: Mapping[str, float]) -> list[str]:
    """Sentences on variants that know no more than counts of the training text."""
    if not losses:
        return []
    unigram, bigram = (losses[each] for each in LOSSES)
    medians = {variant: statistics.median(seeds) for variant, seeds in values.items()}
    above = [variant for variant, loss in medians.items() if not loss < unigram]
    between = [variant for variant, loss in medians.items() if bigram <= loss < unigram]
    sentences = []
    if above:
        sentences.append(
            f"Warning: {name}: {', '.join(above)}: not below {unigram:.2f} bits per token, what the frequencies of "
            "tokens alone reach (unigrams). Differences from and between such models say nothing about what was "
            "compared: give the study more updates or another recipe."
        )
    if between:
        sentences.append(
            f"{name}: {', '.join(between)}: better than the frequencies of tokens ({unigram:.2f} bits per token), and "
            f"worse than a table of bigrams ({bigram:.2f})."
        )
    return sentences


def as_markdown(study: Study, results: Results, comparisons: Mapping[str, Comparison]) -> str:
    """The report for people."""
    variants, num_seeds = results["variants"], len(results["seeds"])
    done = sum(facts["pretrainings_done"] for facts in variants.values())
    parts = [
        f"# {study.title}",
        f"{len(variants)} variants x {num_seeds} seeds at equal {results['budget']['equal']}; {done} of "
        f"{len(variants) * num_seeds} pretrainings done. A cell: median (smallest to largest), n seeds of pretraining; "
        "for a fine-tuning task the value of a pretraining is the median of its seeds of fine-tuning. The paper's "
        "numbers are those of its own models and data.",
        result_table(study, results),
    ]
    if comparisons:
        parts.append("![values by variant](values.png)")
        lines = []
        for probe in study.probes:
            if probe.name in comparisons:
                values, comparison = scaled(results, probe, study), comparisons[probe.name]
                options = {"reference": study.reference, "better": probe.better, "unit": probe.unit}
                lines += standings(probe.name, values, baselines_of(results, probe))
                lines += conclusions(probe.name, values, comparison, **options)
        lines = [f"- {line}" for line in lines]
        parts.append("## What exceeds the seeds' noise\n\n" + "\n".join(lines))
        parts.append(pair_table(study, comparisons))
    if _has_curves(results):
        parts.append("## Loss\n\n![loss curves](curves.png)")
    parts.append(cost_section(results))
    if results["failures"]:
        lines = [f"- {name}: {reason}" for name, reason in results["failures"].items()]
        parts.append("## Failed; the same command tries them again\n\n" + "\n".join(lines))
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
            losses = baselines_of(results, probe)
            row += [show([2 ** losses[name]]).split(" (")[0] if losses else "", *([""] if has_paper else [])]
    return markdown_table(head, rows + counts if any(results.get("baselines", {}).values()) else rows)


def show(values: Sequence[float]) -> str:
    """As in `81.2 (80.9 to 81.6), n = 3`."""
    if not values:
        return "-"
    digits = 1 if min(values) >= 10 else 3
    median, low, high = (f"{value:,.{digits}f}" for value in (statistics.median(values), min(values), max(values)))
    return f"{median} ({low} to {high}), n = {len(values)}"


def pair_table(study: Study, comparisons: Mapping[str, Comparison]) -> str:
    """Every pair of variants and the tests; and the paper's difference, for its sign."""
    tests = ["difference of means", "95 % interval", "p (Games-Howell)", "p (permutation)", "paper's difference"]
    rows = []
    for probe in study.probes:
        for pair in comparisons[probe.name].pairs if probe.name in comparisons else ():
            paper = paper_difference(study, probe, pair)
            rows.append(
                [
                    f"{probe.name} ({probe.unit})",
                    f"{pair.first} - {pair.second}",
                    f"{pair.difference:+.3g}",
                    "-" if pair.low is None or pair.high is None else f"{pair.low:.3g} to {pair.high:.3g}",
                    "-" if pair.p_games_howell is None else f"{pair.p_games_howell:.2g}",
                    "-" if pair.p_permutation is None else f"{pair.p_permutation:.2g}",
                    "" if paper is None else f"{paper:+.3g}, {_agreement(paper, pair)}",
                ]
            )
    return markdown_table(["probe", "pair", *tests], rows)


def paper_difference(study: Study, probe: Probe, pair: Pair) -> float | None:
    """The paper's number of the first variant's row minus the second's; None where it has not both."""
    papers = {variant.name: paper_row(variant.paper).get(probe.column) for variant in study.variants}
    a, b = papers[pair.first], papers[pair.second]
    return None if a is None or b is None else round(probe.scaled(a) - probe.scaled(b), 6)


def _agreement(paper: float, pair: Pair) -> str:
    sign = paper * pair.difference
    agreement = "same sign" if sign > 0 else "other sign" if sign < 0 else "one of them is 0"
    if pair.p_games_howell is None:
        return f"{agreement}, noise unknown"
    return agreement if pair.exceeds_noise else f"{agreement}, ours within the noise"


def cost_section(results: Results) -> str:
    """FLOPs, tokens and hours of each variant's pretraining, the machine, and the data."""
    rows = [
        [
            name,
            f"{facts['num_updates']:,}",
            f"{facts['tokens_per_update']:,.0f}",
            f"{statistics.median(facts['measured_tokens'] or [facts['tokens']]):,.0f}",
            "?" if facts["epochs"] is None else f"{facts['epochs']:.3g}",
            f"{facts['lr']:g}",
            f"{facts['flops']:.3g}",
            f"{statistics.median(facts['hours']):.3g}" if facts["hours"] else "-",
        ]
        for name, facts in results["variants"].items()
    ]
    head = ["variant", "updates", "tokens/update", "tokens", "epochs", "lr", "FLOPs", "hours"]
    cost, where = results["cost"], results["machine"]
    data = ", ".join(f"{path} ({held})" for path, held in results["data"].items() if path.endswith(".bin"))
    return (
        f"## Cost of one pretraining\n\n{markdown_table(head, rows)}\n\n"
        f"All together {cost['flops']:.3g} FLOPs, of which {cost['flops_fine_tuning']:.3g} for fine-tuning "
        f"({cost['fine_tuning_hours']:.3g} hours of runs). Hours of a variant: median of its seeds' wall-clock time "
        "in training steps, without validation and start-up; other work on the machine at that time, such as runs in "
        f"parallel, lengthens them. Machine of this report: {where['processor']}, {where['cores']} cores, "
        f"GPU: {where['gpu'] or 'none'}; torch {where['torch']}.\n\nData: {data}."
    )


def _has_curves(results: Results) -> bool:
    return any(curve["updates"] for curve in results["curves"].values())


def draw_curves(file: Any, results: Results) -> None:
    """Training loss against tokens, a colour for each variant and a line for each seed, as a PNG."""
    with picture(file, width=7.0, height=4.5) as figure:
        axes = figure.add_subplot()
        for number, (name, facts) in enumerate(results["variants"].items()):
            own = [each for run, each in results["curves"].items() if run.startswith(f"{VARIANT}-{name}/")]
            for place, each in enumerate(one for one in own if one["updates"]):
                tokens = [update * facts["tokens_per_update"] for update in each["updates"]]
                losses = [math.nan if value is None else value for value in each["values"]]
                label = drawable(name) if place == 0 else None
                axes.plot(tokens, losses, color=f"C{number}", alpha=0.8, linewidth=1.0, label=label)
        for losses in results.get("baselines", {}).values():
            _draw_baselines(axes, losses)
        axes.set_xlabel("training tokens")
        axes.set_ylabel("training loss (bits per masked token)")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)


def draw_values(file: Any, results: Results, study: Study) -> None:
    """A panel for each probe: seeds as dots, their range as a line, medians as marks; a cross: the paper."""
    probes = [probe for probe in study.probes if scaled(results, probe, study)]
    width = max(3.6, 1.4 + 0.7 * len(study.variants))
    with picture(file, width=width * len(probes), height=4.2) as figure:
        for axes, probe in zip(figure.subplots(1, len(probes), squeeze=False)[0], probes, strict=True):
            _draw_probe(axes, probe, scaled(results, probe, study), study)
            _draw_baselines(axes, baselines_of(results, probe))
            by_label = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
            axes.legend(by_label.values(), by_label.keys(), fontsize=7)


def _draw_baselines(axes: Any, losses: Mapping[str, float]) -> None:
    """What counts of the training text reach on held-out text, as horizontal lines."""
    for name, loss in losses.items():
        draw_baseline(axes, name, loss, of="held-out")


def _draw_probe(axes: Any, probe: Probe, values: Mapping[str, Sequence[float]], study: Study) -> None:
    for place, variant in enumerate(study.variants):
        seeds, paper = values.get(variant.name, []), paper_row(variant.paper).get(probe.column)
        if seeds:
            axes.vlines(place, min(seeds), max(seeds), color="#8fb3d9", linewidth=4, label="smallest to largest seed")
            axes.hlines(statistics.median(seeds), place - 0.2, place + 0.2, color=BLUE, label="median")
            axes.scatter([place] * len(seeds), seeds, s=16, color=BLUE, zorder=3, label="a seed")
        if seeds and paper is not None:
            axes.scatter([place], [probe.scaled(paper)], marker="x", color=RED, zorder=3, label="the paper")
    axes.set_xlim(-0.5, len(study.variants) - 0.5)
    names = [drawable(variant.name) for variant in study.variants]
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize=8)
    axes.set_ylabel("held-out loss (bits per masked token)" if probe.better == "smaller" else "score (percent)")
    axes.set_title(f"{drawable(probe.name)} ({probe.better} is better)", fontsize=9)
    axes.grid(alpha=0.3, axis="y")
