"""Reports of `bench_gpu` -> the results file of that GPU, and its row in the README's table and in that of all results."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

OURS, FAIRSEQ, HUGGING_FACE = "ours, packed rows", "fairseq", "Hugging Face"
README_ROW = "| faster pretraining steps on a GPU "
UNMEASURED = {
    "Each result compares programs in one run, on CPUs; GPUs were not measured.": "Each result compares programs in one run.",
    "On CPUs, both sides in one run; GPUs were not measured.": "Both sides in one run.",
}
UNMEASURED_RESULTS = {"measured in one run, on CPUs; no GPU was measured.": "measured in one run."}
_TABLE = re.compile(r"^## (base, \d+ x \d+ tokens, bf16, dropout .*)$\n+((?:\|.*\n)+)", re.MULTILINE)
_GPU = re.compile(r"^# GPU report\n+(.*?);", re.MULTILINE)


def publish(reports: Sequence[Path], repository: Path) -> Path:
    """Write the results file and both rows; the file.

    Raises:
        ValueError: for a rehearsal, for reports of several GPUs, without a table of base with all sides, or for a page
            that has no place for the row; nothing is written then.
    """
    text = "\n".join(path.read_text().strip() + "\n" for path in reports)
    gpus = set(_GPU.findall(text))
    if len(gpus) != 1 or "rehearsal" in text:
        found = ", ".join(sorted(gpus)) or "none"
        raise ValueError(f"Give reports of `bench_gpu` on one GPU, and no rehearsal: these are of {found}.")
    (gpu,) = gpus
    title, best = fastest(text)
    name = re.sub(r"[^a-z0-9]+", "", gpu.lower().removeprefix("nvidia").split("gb")[0])
    path = repository / "tests" / "benchmarks" / "results" / f"gpu_{name}_{datetime.now(UTC):%Y%m}.md"
    result = f"{best[FAIRSEQ]:.2f} times fairseq's speed, {best[HUGGING_FACE]:.2f} times Hugging Face's best"
    summary = f"{title}: {result}; the share of the GPU's peak (MFU) is {best['mfu']:.1f} %."
    row = f"{README_ROW}(base, {gpu}, bf16) | {result} | [GPU]({{}}) |"
    readme, results = repository / "README.md", path.with_name("README.md")
    in_readme = row.format(path.relative_to(repository))
    pages = {
        path: f"# Training steps on a GPU\n\n{summary}\n\n" + text.replace("# GPU report", f"## {gpu}"),
        readme: _with_row(readme, in_readme, after="| faster pretraining steps (", words=UNMEASURED),
        results: _with_row(
            results, row.format(path.name), after="| ... base, AMD EPYC without AMX", words=UNMEASURED_RESULTS
        ),
    }
    for page, content in pages.items():
        page.write_text(content)
    return path


def fastest(text: str) -> tuple[str, dict[str, float]]:
    """The first table of base, and how many times as fast our fastest step is as each of the others' fastest."""
    for title, table in _TABLE.findall(text):
        rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in table.splitlines()[2:]]
        speeds: dict[str, float] = {}
        shares: dict[str, float] = {}
        for name, speed, *others in rows:
            if (
                len(others) < 2 or not re.fullmatch(r"[\d,]+", speed) or "blocks" in name or "fp8" in name
            ):  # others compute in bf16
                continue
            side = next((side for side in (FAIRSEQ, HUGGING_FACE, "ours") if name.startswith(side)), "")
            if not side:
                continue
            number = float(speed.replace(",", ""))
            if number > speeds.get(side, 0.0):
                speeds[side], shares[side] = number, float(others[1]) if others[1] != "-" else 0.0
        if speeds.keys() == {FAIRSEQ, HUGGING_FACE, "ours"}:
            ratios = {side: speeds["ours"] / speeds[side] for side in (FAIRSEQ, HUGGING_FACE)}
            return title, {**ratios, "mfu": shares["ours"]}
    raise ValueError(
        "The reports have no table of base with steps of ours, fairseq and Hugging Face: run `bench_gpu --only steps`."
    )


def _with_row(path: Path, row: str, *, after: str, words: dict[str, str]) -> str:
    """A page with a row in its table, in the place of an earlier one, that no longer says that it was not measured."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith(row.split(" | ")[0])]
    place = next((number for number, line in enumerate(lines) if line.startswith(after)), None)
    if place is None:
        raise ValueError(f"{path} has no row that begins with {after!r}, after which the new one belongs: add one.")
    text = "\n".join([*lines[: place + 1], row, *lines[place + 1 :]]) + "\n"
    for before, now in words.items():
        text = text.replace(before, now)
    return text
