"""The values of a study -> report.md beside the paper's rows, and results.json; its plan as text."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from roberta_plugin.data.count_baselines import LOSSES
from roberta_plugin.experiments.settings import FinetuneSettings
from roberta_plugin.extensions.studies.plan import VariantPlan
from roberta_plugin.extensions.studies.study_file import PAPER, PERPLEXITY, Probe, Study
from roberta_plugin.files import write_text
from roberta_plugin.json_files import write_json
from roberta_plugin.reports import markdown_table

Found = Mapping[str, Mapping[str, Any]]  # variant -> seed -> content of value.json
Plans = Sequence[VariantPlan]
_PLAN = {"updates": ",.0f", "tokens_per_update": ",.0f", **dict.fromkeys(("tokens", "epochs", "lr", "flops"), ".3g")}
_PAIRS = ("pair", "difference of means", "95 % interval", "p (Games-Howell)")
_HEAD = """Equal {}, seeds {}. Each entry is the median (smallest to largest) of n seeds of pretraining. The paper's
numbers are for its own models and data. Pairs are tested by Games and Howell 1976, perplexity in bits per token."""


def write_report(study: Study, plans: Plans, values: Any, failures: dict[str, str], root: Path) -> dict[str, Any]:
    """Write results.json and report.md into `root`; `values` is probe -> `Found`; return results.json's content."""
    parts = [f"# {study.title}", _HEAD.format(study.budget.equal, ", ".join(study.seeds)), plan_table(plans)]
    pairs, variants = {}, {plan.variant.name: plan.facts() for plan in plans}
    for probe in study.probes:
        found = {name: values.get(probe.name, {}).get(name, {}) for name in variants}
        numbers = {name: [float(each["value"]) for each in seeds.values()] for name, seeds in found.items()}
        scale: Any = np.log2 if probe.kind == PERPLEXITY else np.asarray  # perplexity is exponential in bits
        last = sorted(numbers, key=lambda name: name == study.reference)
        pairs[probe.name] = games_howell({name: scale(numbers[name]) for name in last if numbers[name]})
        rows = [
            [f"{one['first']} - {one['second']}", f"{one['difference']:+.3g}"]
            + ([f"{one['low']:.3g} to {one['high']:.3g}", f"{one['p']:.2g}"] if "p" in one else ["-", "-"])
            for one in pairs[probe.name]
        ]
        parts += [f"## {probe.name}", value_table(probe, plans, found, numbers)]
        parts += [markdown_table(_PAIRS, rows)] if rows else []
    parts += [f"- failed: {name}: {reason}" for name, reason in failures.items()]
    write_text(root / "report.md", "\n\n".join(parts) + "\n")
    results = {"title": study.title, "seeds": study.seeds, "variants": variants, "values": values, "pairs": pairs}
    write_json(root / "results.json", results := {**results, "failures": failures})
    return results


def value_table(probe: Probe, plans: Plans, found: Found, numbers: Mapping[str, list[float]]) -> str:
    """The values of the variants beside the paper's, above the baselines."""
    first: dict[str, Any] = next((one for seeds in found.values() for one in seeds.values()), {})
    column = probe.settings.task if isinstance(probe.settings, FinetuneSettings) else PERPLEXITY
    papers = {plan.variant.name: PAPER.get(plan.variant.paper, {}).get(column, "") for plan in plans}
    rows, counts = [[name, show(each), papers[name]] for name, each in numbers.items()], first.get("baselines", {})
    rows += [[title, f"{2 ** counts[loss]:,.1f}", ""] for loss, title in LOSSES.items() if loss in counts]
    return markdown_table(["variant", first.get("metric", column), "paper"], rows)


def show(values: Sequence[float]) -> str:
    """Format values as in `81.2 (80.9 to 81.6), n = 3`."""
    if not values:
        return "-"
    digits = 1 if min(values) >= 10 else 3
    median, low, high = (f"{value:,.{digits}f}" for value in (statistics.median(values), min(values), max(values)))
    return f"{median} ({low} to {high}), n = {len(values)}"


def games_howell(samples: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
    """The difference of means of every pair, with 95 % interval and p (Games and Howell 1976) if values vary."""
    from scipy.stats import studentized_range

    count, pairs = sum(len(sample) > 1 for sample in samples.values()), list[dict[str, Any]]()
    for (first, a), (second, b) in combinations(samples.items(), 2):
        pairs.append({"first": first, "second": second, "difference": float(np.mean(a) - np.mean(b))})
        if min(len(a), len(b)) > 1 and (np.ptp(a) or np.ptp(b)):
            var_a, var_b = (np.var(np.subtract(each, each[0]), ddof=1) / len(each) for each in (a, b))
            freedom = (var_a + var_b) ** 2 / (var_a**2 / (len(a) - 1) + var_b**2 / (len(b) - 1))  # Welch's
            difference, error = pairs[-1]["difference"], ((var_a + var_b) / 2) ** 0.5
            half = error * float(studentized_range.ppf(0.95, count, freedom))
            pairs[-1] |= {"low": difference - half, "high": difference + half}
            pairs[-1]["p"] = float(studentized_range.sf(abs(difference) / error, count, freedom))
    return pairs


def plan_table(plans: Plans) -> str:
    """Updates, tokens and FLOPs of one pretraining of each variant; ? for epochs that are not known."""
    facts = [plan.facts() for plan in plans]
    cells = [["?" if each[key] is None else format(each[key], _PLAN[key]) for key in _PLAN] for each in facts]
    rows = [[plan.variant.name, *row] for plan, row in zip(plans, cells, strict=True)]
    return markdown_table(["variant", *(key.replace("_per_", "/").replace("flops", "FLOPs") for key in _PLAN)], rows)


def describe_plan(study: Study, plans: Plans) -> str:
    """The text of --dry-run: the plan of a study."""
    num_runs, probes = len(plans) * len(study.seeds), [f"probe {probe.name}: {probe.kind}" for probe in study.probes]
    updates, flops = (sum(plan.totals[unit] for plan in plans) * len(study.seeds) for unit in ("updates", "flops"))
    if not all(plan.size.tokens_in_epoch for plan in plans):
        probes.append("The data is not here: tokens are counted for full blocks.")
    head = f"{study.title}: {len(plans)} variants x {len(study.seeds)} seeds, equal {study.budget.equal}\n"
    probes.append(f"{num_runs} pretrainings of {updates:,.0f} updates and {flops:.3g} FLOPs in all")
    return "\n".join([head, plan_table(plans) + "\n", *probes])
