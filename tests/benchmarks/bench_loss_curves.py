"""Do the fast paths learn what the reference learns? 1,500 updates of each, with two seeds.

    python -m tests.benchmarks.bench_loss_curves [--write]

The reference is fairseq's own `roberta` with its masked_lm criterion and its adam; the fast side is `fast_roberta` with
the paths that it chooses here, our criterion and `roberta_adamw`. All train through `fairseq-train` on the same blocks
with the same masks (our task) of real text: the novels of the shared corpora. Initial weights and dropout differ between
the sides, as between seeds; so the difference between the sides should not exceed that between the seeds. Blocks of 32
tokens, 40 % of them predicted, and a high learning rate, because a model then learns more than frequencies in few updates.
"""

from __future__ import annotations

import json
import lzma
import statistics
import subprocess
import tempfile
from pathlib import Path

from tests.benchmarks.harness import Report, options
from tests.conftest import REPOSITORY, SHARED_DATA
from tests.tiny_corpus import command, environment

TEXT_BYTES = 4_000_000
WINDOW = 100
SIZES = ["--encoder-layers", "2", "--encoder-embed-dim", "192", "--encoder-ffn-embed-dim", "768"]
SIZES += ["--encoder-attention-heads", "6"]
FAST = ["--criterion", "roberta_masked_lm", "--arch", "fast_roberta_tiny", *SIZES, "--optimizer", "roberta_adamw"]
SIDES = {
    "reference": ["--criterion", "masked_lm", "--arch", "roberta_base", *SIZES, "--optimizer", "adam"],
    "fast": FAST,
}


def make_data(folder: Path) -> Path:
    """Text -> vocabulary of 4,000 -> data-bin, by our own commands."""
    with lzma.open(SHARED_DATA / "text" / "books.train.txt.xz") as file:
        (folder / "text.txt").write_bytes(file.read(TEXT_BYTES).rpartition(b"\n")[0] + b"\n")
    roberta, vocabulary, data = command("roberta"), str(folder / "vocabulary"), folder / "data"
    train = ["tokenizer", "train", "--input", str(folder / "text.txt"), "--vocab-size", "4000"]
    subprocess.run([*roberta, *train, "--output-dir", vocabulary], check=True, capture_output=True)
    binarize = ["binarize", "--tokenizer", vocabulary, "--train", str(folder / "text.txt"), "--output-dir", str(data)]
    subprocess.run([*roberta, *binarize], check=True, capture_output=True)
    return data


def train(data: Path, options: list[str], *, seed: int, updates: int, log: Path) -> list[float]:
    """The loss (bits a predicted token) of every update."""
    arguments = [*command("fairseq-train"), str(data), "--user-dir", str(REPOSITORY / "roberta_plugin"), "--cpu"]
    arguments += ["--task", "roberta_masked_lm", "--sample-break-mode", "none", "--tokens-per-sample", "32"]
    arguments += [*options, "--adam-betas", "(0.9, 0.98)", "--adam-eps", "1e-6", "--weight-decay", "0.01"]
    arguments += ["--batch-size", "16", "--lr", "1.5e-3", "--lr-scheduler", "polynomial_decay"]
    arguments += ["--warmup-updates", "90", "--max-update", str(updates), "--total-num-update", str(updates)]
    arguments += ["--clip-norm", "0.0", "--mask-prob", "0.4", "--dropout", "0.1", "--attention-dropout", "0.1"]
    arguments += ["--seed", str(seed), "--no-save"]
    arguments += ["--disable-validation", "--log-format", "json", "--log-interval", "1", "--log-file", str(log)]
    subprocess.run(arguments, check=True, capture_output=True, cwd=REPOSITORY, env=environment())
    records = [
        json.loads(line) for line in log.read_text().splitlines() if line.startswith('{"') and '"update"' in line
    ]
    by_update = {int(record["num_updates"]): float(record["loss"]) for record in records}
    assert len(by_update) == updates
    return [by_update[update] for update in sorted(by_update)]


def smooth(losses: list[float]) -> list[float]:
    """Means of consecutive windows."""
    return [statistics.fmean(losses[start : start + WINDOW]) for start in range(0, len(losses), WINDOW)]


def distance(one: list[float], other: list[float]) -> float:
    """Mean absolute difference of two smoothed curves."""
    return statistics.fmean(abs(a - b) for a, b in zip(one, other, strict=True))


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--updates", type=int, default=1500, help="updates of each training")
    arguments = parser.parse_args()
    report = Report("loss_curves_cpu2", "Loss curves of the fast and the reference paths", __doc__)
    curves = {}
    with tempfile.TemporaryDirectory() as name:
        data = make_data(Path(name))
        for side, own in SIDES.items():
            for seed in (1, 2):
                log = Path(name) / f"{side}{seed}.log"
                curves[side, seed] = smooth(train(data, own, seed=seed, updates=arguments.updates, log=log))
    values = zip(*curves.values(), strict=True)
    rows = [(number * WINDOW, *(f"{each:.3f}" for each in row)) for number, row in enumerate(values, start=1)]
    report.rows(("after updates", *(f"{side}, seed {seed}" for side, seed in curves)), rows)
    report.text(f"Loss in bits a predicted token, means of {WINDOW} updates.")
    between_seeds = statistics.fmean(distance(curves[side, 1], curves[side, 2]) for side in SIDES)
    between_sides = statistics.fmean(distance(curves["reference", seed], curves["fast", seed]) for seed in (1, 2))
    report.text(
        f"Mean distance of two curves: at the same seed {between_sides:.4f} between reference and fast; "
        f"{between_seeds:.4f} between the seeds of one side."
    )
    report.show(write=arguments.write)


if __name__ == "__main__":
    main()
