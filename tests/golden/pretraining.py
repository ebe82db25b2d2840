"""The losses of 50 updates, bit for bit: input formats x arithmetic, and the other options of pretraining."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.golden.entries import of_series, of_state, of_tree
from tests.golden.finetuning import HEADS
from tests.golden.steps import SIZES, Work, load_checkpoint, log_of
from tests.tiny_corpus import write_data_bin

UPDATES = 50
FORMATS = ("full-sentences", "doc-sentences", "segment-pair", "sentence-pair")
HOW: dict[str, tuple[str, ...]] = {
    "fp32": (),
    "bf16": ("--bf16",),
    "shared layers": ("--share-layers", "all"),
    "two ranks": (),
}
MODEL = (
    *("--arch", "fast_roberta_tiny", *SIZES, "--max-positions", "70", "--tokens-per-sample", "64", "--batch-size", "4"),
)
OPTIMIZER = (
    *("--optimizer", "roberta_adamw", "--adam-betas", "(0.9, 0.98)", "--adam-eps", "1e-6", "--weight-decay", "0.01"),
)
OPTIMIZER += ("--lr-scheduler", "polynomial_decay", "--lr", "3e-3", "--warmup-updates", "5")
NSP = ("--next-sentence-prediction",)
OTHERS: dict[str, tuple[str, ...]] = {
    "blocks of any text": (),
    "static masks, four epochs": ("--num-static-masks", "2", "--batch-size", "8"),
    "masks: shares and frequencies": (
        *("--mask-prob", "0.3", "--leave-unmasked-prob", "0.2", "--random-token-prob", "0.3"),
        "--freq-weighted-replacement",
    ),
    "packed": ("--input-format", "full-sentences", "--pack-sequences"),
    "sentences": ("--sample-break-mode", "eos"),
    "mixture by weight": ("DATA", "{a}@3,{b}@1"),
    "mixture by size": ("DATA", "{a},{b}", "--corpus-alpha", "0.3"),
    "a folder an epoch": ("DATA", "{a}:{b}"),
    "segment pairs, next sentence": ("--input-format", "segment-pair", "--short-seq-prob", "0.1", *NSP),
    "sentence pairs, next sentence, two ranks": ("--input-format", "sentence-pair", *NSP),
    "update-freq 3, two workers": ("--update-freq", "3", "--num-workers", "2"),
    "update-sequences 7, two ranks": ("--update-sequences", "7"),
    "eager attention, norms before": ("--attention-backend", "eager", "--encoder-normalize-before"),
    "clipped, bf16, update-freq 2": ("--bf16", "--clip-norm", "0.5", "--update-freq", "2"),
    "layers recomputed, shared in groups": ("--share-layers", "groups:1", "--share-parts", "ffn", "--checkpoint-activations"),
    "resumed": (),
}  # fmt: skip
SUBJECTS: dict[str, tuple[str, ...]] = {
    **{f"{form}, {how}": ("--input-format", form, *more) for form in FORMATS for how, more in HOW.items()},
    **OTHERS,
}


def record(name: str, folder: Path) -> dict[str, Any]:
    """The entries of a subject: losses and norms of all updates, and the state at the end."""
    a, b = write_data_bin(folder / "a"), write_data_bin(folder / "b", num_documents=25, seed=1)
    options = list(SUBJECTS[name])
    data = str(a)
    if options[:1] == ["DATA"]:
        data = options[1].format(a=a, b=b)
        del options[:2]
    work, ranks = Work(folder), 2 if "two ranks" in name else 1
    words = [data, "--task", "roberta_masked_lm", "--criterion", "roberta_masked_lm", "--seed", "3", *MODEL, *OPTIMIZER]
    words += ["--total-num-update", str(UPDATES), "--no-epoch-checkpoints", "--log-format", "json"]
    words += ["--save-dir", str(folder / "checkpoints"), "--log-file", str(folder / "log.txt"), *options]
    found: dict[str, Any] = {"losses": [], "norms": []}
    for stop in (UPDATES // 2, UPDATES) if name == "resumed" else (UPDATES,):
        for key, values in work.train(*words, "--max-update", stop, ranks=ranks).items():
            found[key] += values
    assert len(found["losses"]) == UPDATES
    found = {"losses": of_series(found["losses"]), "norms": of_tree(found["norms"])}
    state = load_checkpoint(folder / "checkpoints" / "checkpoint_last.pt")
    validation = log_of(folder / "log.txt", "valid_loss")[-1]
    timing = ("valid_wps", "epoch", "valid_num_updates")
    return {
        **found,
        "model": of_state(state["model"], listed=HEADS),
        "optimizer": of_tree(state["last_optimizer_state"]),
        "position": of_tree(state["extra_state"]["train_iterator"]),
        "validation": [f"{key}={value}" for key, value in validation.items() if key not in timing],
    }
