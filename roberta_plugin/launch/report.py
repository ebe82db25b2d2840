"""A run for people: report.md and report.png, the ends of its attempts, its logs.

Rank 0 writes the report at the end of the training, and `roberta jobs report` at any time. The numbers come from
fairseq's logs (--log-format json) on the first node of each job of the run. All attempts of a job write one log for
each node, RUN-DIR/logs/JOB_NODE_log.out. NODE counts from 0, and each line begins with the number of its rank. The log
of the first node also has the lines of the batch script.
"""

from __future__ import annotations

import datetime
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from roberta_plugin.data.count_baselines import LOSSES, comparison
from roberta_plugin.files import write_text
from roberta_plugin.launch.log import Curve, Record, curves, parse_line
from roberta_plugin.launch.restart import read_attempts
from roberta_plugin.launch.run_folder import ITSELF, LOG, known_jobs, read_status
from roberta_plugin.reports import Line, Panel, markdown_table, plot
from roberta_plugin.runs import read_record

REPORT, PLOT = "report.md", "report.png"
TRAINING = "train_inner"
_HOST = re.compile(r"\brank \d+ on ([\w.-]+)")


def write_report(output_dir: Path) -> Path:
    """Write report.md and, where the log has numbers, report.png; returns the path of report.md."""
    shown = curves_of(_records(output_dir))
    if shown:
        draw(output_dir / PLOT, shown)
    write_text(output_dir / REPORT, _text(output_dir, shown))
    return output_dir / REPORT


def curves_of(records: Iterable[Record]) -> dict[tuple[str, str], Curve]:
    """The curves in the log by kind (train_inner, or a validation split) and value (loss, its baselines, wps, mfu)."""
    names = {"loss", "ppl", "wps", "mfu", *LOSSES}
    shown = {key: curve for key, curve in curves(records).items() if key[0] != "train" and key[1] in names}
    return {key: curve for key, curve in shown.items() if key[0] == TRAINING or key[1] not in ("wps", "mfu")}


def _records(output_dir: Path) -> list[Record]:
    paths = sorted((output_dir / "logs").glob("*_0_log.out"), key=lambda path: path.stat().st_mtime)
    records = []
    for path in paths:
        with open(path, encoding="utf-8", errors="replace") as lines:
            records += [record for line in lines if (record := parse_line(line))]
    return records


def _row_of_curve(kind: str, name: str, curve: Curve) -> list[tuple[str, str]]:
    """The row of a curve in the table of the report; none for curves that only the plot has.

    Example: "valid", "perplexity" -> ("valid perplexity, last", "4.1250, best 4.0625 at update 9,000")
    """
    if kind == TRAINING and name in ("wps", "mfu"):
        unit = "tokens/s, median" if name == "wps" else "MFU in percent, median"
        # The median leaves out the slow first updates, and pauses.
        return [(unit, f"{sorted(curve.values)[len(curve.values) // 2]:,.5g}")]
    if kind == TRAINING and name == "loss":
        return [("training loss, last", f"{curve.values[-1]:.4f} at update {curve.updates[-1]:,}")]
    if kind != TRAINING and name not in LOSSES:
        best = min(range(len(curve.values)), key=lambda place: curve.values[place])
        text = f"{curve.values[-1]:.4f}, best {curve.values[best]:.4f} at update {curve.updates[best]:,}"
        return [(f"{kind} {name}, last", text)]
    return []


def _text(output_dir: Path, curves: Mapping[tuple[str, str], Curve]) -> str:
    record, status, attempts = read_record(output_dir), read_status(output_dir), attempt_lines(output_dir)
    rows = [("state", "unknown" if status is None else status.phase)]
    if status is not None:
        rows.append(("updates", f"{status.update:,}" + (f" of {status.max_update:,}" if status.max_update else "")))
    for (kind, name), curve in curves.items():
        rows += _row_of_curve(kind, name, curve)
    if record is not None:
        rows += [("GPUs", f"{record.num_gpus:,}"), ("snapshot of the code", record.snapshot)]
    restarts = sum(bool(ended.get("restarts")) for ended in read_attempts(output_dir))
    rows.append(("restarts", str(restarts)))
    lines = [f"# {output_dir.name}", "", markdown_table(["", ""], rows)]
    if curves:
        lines += ["", f"![Loss and speed against updates]({PLOT})"]
    else:
        lines += ["", "The log has no numbers: they need `log_format: json`."]
    lines += [line for sentence in comparisons(curves) for line in ("", f"{sentence}.")]
    if attempts:
        lines += ["", "## Attempts", "", "```", *attempts, "```"]
    if record is not None and record.changes:
        lines += ["", "## Settings that were changed on the way", "", *(f"- {change}" for change in record.changes)]
    if record is not None:
        lines += ["", "## Options of fairseq-train", "", "```", shlex.join(record.arguments), "```"]
    return "\n".join(lines) + "\n"


def comparisons(curves: Mapping[tuple[str, str], Curve]) -> list[str]:
    """For each validation split with baselines, a sentence that compares its last loss with them."""
    return [
        comparison(
            curves[kind, "loss"].values[-1],
            {name: curves[kind, name].values[-1] for name in LOSSES if (kind, name) in curves},
            what=f"On {kind}, the model",
        )
        for kind, name in curves
        if name == "unigram_loss" and (kind, "loss") in curves
    ]


def draw(path: Path, curves: Mapping[tuple[str, str], Curve], *, loss: str = "loss in the log") -> None:
    """Losses above, with their baselines as horizontal lines; tokens a second below, against updates; as a PNG.

    `loss` says what the loss is, with its unit if it is known.
    """
    losses: list[Line] = []
    speeds: list[Line] = []
    levels: dict[str, float] = {}
    for (kind, name), curve in curves.items():
        if name == "loss":
            style = {"label": "training"} if kind == TRAINING else {"label": kind, "marker": "o", "markersize": 3}
            losses.append(Line(curve.updates, curve.values, style))
        elif name in LOSSES:
            levels |= count_levels({name: curve.values[-1]}, split=kind)
        elif name == "wps":
            speeds.append(Line(curve.updates, curve.values, {"linewidth": 0.8}))
    panels = [Panel(y_label=loss, lines=losses, levels=levels, height=2)]
    panels += [Panel(y_label="tokens/s", lines=speeds)] if speeds else []
    plot(path, panels, x_label="updates", width=7.5, height=6.0)


def count_levels(losses: Mapping[str, float], *, split: str) -> dict[str, float]:
    """Losses of counts of the training text on a split, as levels of a plot; the names of `losses` are in LOSSES."""
    return {f"{LOSSES[name]} ({split})": loss for name, loss in losses.items()}


def launched_job(folder: Path) -> str:
    """The last job of a launched run.

    Raises:
        FileNotFoundError: for another folder.
        ValueError: for the folder of a sweep, or of a run of torchrun.
    """
    jobs = known_jobs(folder)
    if jobs.keys() - {ITSELF}:
        raise ValueError(
            f"{folder} is the folder of a sweep: the logs of its runs are SETTING/seed-N/{LOG} there, and the command "
            f"that has submitted it, given again, writes {REPORT}."
        )
    if jobs and not jobs[ITSELF]:
        raise ValueError(
            f"The run in {folder} was started by torchrun, or alone, and not by SLURM: there are its output and its "
            f"restarts. `roberta jobs {shlex.quote(str(folder))}` shows its state."
        )
    if not jobs:
        raise FileNotFoundError(f"{folder} is not the folder of a launched run: `roberta jobs` lists them.")
    return jobs[ITSELF]


def log_path(folder: Path, *, node: int | None = None) -> Path:
    """The log of a run, or of a node of a launched run. None: the node whose rank failed first, else the first node."""
    if (folder / LOG).is_file():
        return folder / LOG
    job_id = launched_job(folder)
    records = [record for record in read_attempts(folder) if record["job_id"] == job_id]
    name = f"logs/{job_id}_0_log.out" if not records else records[-1].get("log", f"logs/{job_id}_0_log.out")
    path = folder / (name if node is None else f"logs/{job_id}_{node}_log.out")
    if not path.is_file():
        others = sorted(path.parent.glob(f"{job_id}_*_log.out"))
        reason = f"there are {len(others)} logs of job {job_id}" if others else f"job {job_id} has written no log yet"
        raise FileNotFoundError(f"{path} does not exist: {reason}.")
    return path


def attempt_lines(output_dir: Path) -> list[str]:
    """The end and the consequence of each attempt of all jobs of the run, and the number of failures per node.

    Example:
        2026-11-22 03:10  job 7, attempt 0, update 5,210: failed in training (exit code 1; rank 3 on gpu2: ...)
                          the job restarts from its last checkpoint; excluded: gpu2; log: logs/7_1_log.out
        first to fail: gpu2 (2 times), gpu5
    """
    lines, hosts = [], Counter[str]()
    for record in read_attempts(output_dir):
        moment = datetime.datetime.fromtimestamp(float(record.get("time", 0))).strftime("%Y-%m-%d %H:%M")
        reason = f" ({record['reason']})" if record.get("reason") else ""
        excluded = f"; excluded: {', '.join(record['excluded'])}" if record.get("excluded") else ""
        lines += [
            f"{moment}  job {record['job_id']}, attempt {record.get('attempt', '?')}, "
            f"update {record.get('update', 0):,}: {record['kind']}{reason}",
            f"{'':{len(moment)}}  {record.get('then', '')}{excluded}; log: {record.get('log', 'logs')}",
        ]
        named = _HOST.findall(record.get("reason", "").rpartition("Lost rank: ")[2])  # not the one that misses it
        hosts.update(record.get("nodes") or named[:1])
    if hosts:
        counts = (f"{host} ({count} times)" if count > 1 else host for host, count in hosts.most_common())
        lines.append(f"first to fail: {', '.join(counts)}")
    return lines
