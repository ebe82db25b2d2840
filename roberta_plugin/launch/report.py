"""report.md and report.png of a run: what came out, its curves, how its attempts ended.

Rank 0 writes them when the training is finished, `roberta jobs report` whenever it is asked. The numbers are those of
fairseq's log (--log-format json) on the first node, of all jobs of the run.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roberta_plugin.files import atomic_write
from roberta_plugin.launch.restart.attempts import read_attempts
from roberta_plugin.launch.run_logs import attempt_lines
from roberta_plugin.launch.status import Launch, Status, read_launch, read_status
from roberta_plugin.training.log import Curve, Record, parse_line

REPORT, PLOT = "report.md", "report.png"
TRAINING = "train_inner"


def write_report(output_dir: Path) -> Path:
    """Write report.md and, where the log has numbers, report.png; returns the path of report.md."""
    curves = curves_of(_records(output_dir))
    if curves:
        with atomic_write(output_dir / PLOT) as file:
            _draw(file, curves)
    with atomic_write(output_dir / REPORT, "w") as file:
        file.write(_text(output_dir, curves))
    return output_dir / REPORT


def curves_of(records: Sequence[Record]) -> dict[tuple[str, str], Curve]:
    """The curves in the log by kind (train_inner, or a validation split) and value (loss, wps, mfu).

    Of an update that was repeated after a restart, the last record counts.
    """
    points: dict[tuple[str, str], dict[int, float]] = {}
    for kind, values in records:
        names = ("loss", "wps", "mfu", "ppl") if kind == TRAINING else ("loss", "ppl")
        for name in names if kind != "train" and "num_updates" in values else ():
            if name in values:
                points.setdefault((kind, name), {})[int(values["num_updates"])] = values[name]
    return {key: Curve(sorted(found), [found[update] for update in sorted(found)]) for key, found in points.items()}


def _records(output_dir: Path) -> list[Record]:
    paths = sorted((output_dir / "logs").glob("*_0_log.out"), key=lambda path: path.stat().st_mtime)
    records = []
    for path in paths:
        with open(path, encoding="utf-8", errors="replace") as lines:
            records += [record for line in lines if (record := parse_line(line))]
    return records


def _text(output_dir: Path, curves: Mapping[tuple[str, str], Curve]) -> str:
    launch, status, attempts = read_launch(output_dir), read_status(output_dir), attempt_lines(output_dir)
    rows = [("state", "unknown" if status is None else status.phase)]
    if status is not None:
        rows.append(("updates", f"{status.update:,}" + (f" of {status.max_update:,}" if status.max_update else "")))
    for (kind, name), curve in curves.items():
        if kind == TRAINING and name in ("wps", "mfu"):
            unit = "tokens/s, median" if name == "wps" else "MFU in percent, median"
            rows.append((unit, f"{sorted(curve.values)[len(curve.values) // 2]:,.5g}"))
        elif kind == TRAINING and name == "loss":
            rows.append(("training loss, last", f"{curve.values[-1]:.4f} at update {curve.updates[-1]:,}"))
        elif kind != TRAINING:
            best = min(range(len(curve.values)), key=lambda place: curve.values[place])
            text = f"{curve.values[-1]:.4f}, best {curve.values[best]:.4f} at update {curve.updates[best]:,}"
            rows.append((f"{kind} {name}, last", text))
    if launch is not None:
        rows += [("GPUs", _gpus(launch, status)), ("snapshot of the code", launch.snapshot)]
    restarts = sum(bool(record.get("restarts")) for record in read_attempts(output_dir))
    rows.append(("restarts", str(restarts)))
    lines = [f"# {output_dir.name}", "", "| | |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows)]
    if curves:
        lines += ["", f"![Loss and speed against updates]({PLOT})"]
    else:
        lines += ["", "The log has no numbers: they need `log_format: json`."]
    if attempts:
        lines += ["", "## Attempts", "", "```", *attempts, "```"]
    if launch is not None and launch.changes:
        lines += ["", "## Settings that were changed on the way", "", *(f"- {change}" for change in launch.changes)]
    if launch is not None and launch.arguments:
        lines += ["", "## Options of fairseq-train", "", "```", shlex.join(launch.arguments), "```"]
    return "\n".join(lines) + "\n"


def _gpus(launch: Launch, status: Status | None) -> str:
    """How many GPUs the run had last; of a range of nodes, the launch asked for the most."""
    is_of_launch = status is not None and status.job_id == (launch.job_id or "")
    last = status.num_gpus if status is not None and is_of_launch else None
    return f"{launch.num_gpus:,}" if last in (None, launch.num_gpus) else f"{last:,}, of {launch.num_gpus:,} at most"


def _draw(file: Any, curves: Mapping[tuple[str, str], Curve]) -> None:
    """Losses above, tokens a second below, against updates."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 6.0), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    for (kind, name), curve in curves.items():
        if name == "loss":
            label = "training" if kind == TRAINING else kind
            marker = None if kind == TRAINING else "o"
            above.plot(curve.updates, curve.values, label=label, linewidth=1.0, marker=marker, markersize=3)
        elif name == "wps":
            below.plot(curve.updates, curve.values, linewidth=0.8)
    above.set_ylabel("loss in the log")
    above.legend(fontsize=8)
    below.set_ylabel("tokens/s")
    below.set_xlabel("updates")
    for axes in (above, below):
        axes.grid(alpha=0.3)
    figure.savefig(file, format="png", dpi=120)
