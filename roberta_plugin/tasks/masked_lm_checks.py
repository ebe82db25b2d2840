"""What the pretraining task refuses before any work is done: options, data folders, criterions and metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fairseq.criterions import CRITERION_REGISTRY
from omegaconf import MISSING

from roberta_plugin.data.mixture import parse_turns
from roberta_plugin.data.mmap_tokens import MmapTokens
from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.registry import MASKINGS
from roberta_plugin.tasks.input_formats import find_input_format, format_class, name_of_format
from roberta_plugin.tasks.joined_options import refuse_unknown
from roberta_plugin.tasks.masked_lm_options import growth_of, make_recipe

COMBINED_VALIDATION = "valid"  # the split that fairseq loads with combine=True for --combine-valid-subsets


def check_config(cfg: Any) -> None:
    """Refuse values that do not go together, by name."""
    if not cfg.data or cfg.data == MISSING:
        raise ValueError("The data folder is missing: give the path of a data-bin folder as the first argument.")
    parse_turns(cfg.data)
    format_class(cfg).check(name_of_format(cfg), cfg)
    growth_of(cfg)
    if getattr(cfg, "shorten_method", "none") != "none":
        raise ValueError(
            f"--shorten-method {cfg.shorten_method} would leave text out: leave the option out, and lines longer than "
            "--tokens-per-sample are split into blocks."
        )
    for option in ("include_target_tokens", "skip_masking"):
        if getattr(cfg, option, False):
            raise ValueError(
                f"--{option.replace('_', '-')} belongs to data2vec, which this plugin does not have: leave it out, or "
                "use fairseq's --task masked_lm."
            )
    if (masking := getattr(cfg, "masking", "uniform")) not in MASKINGS:
        refuse_unknown(MASKINGS, masking, cfg, option="--masking")
    make_recipe(cfg).check()


def check_folders(folders: list[Path]) -> None:
    """Refuse a data folder that is none."""
    for folder in folders:
        if folder.is_file():
            raise FileNotFoundError(
                f"{folder} is a file, and the data are a folder: make one of a text by `roberta binarize --train "
                f"{folder} --tokenizer TOKENIZER --output-dir FOLDER`."
            )
        if not (folder / "dict.txt").is_file():
            fault = "has no dict.txt" if folder.is_dir() else "does not exist"
            raise FileNotFoundError(
                f"The data folder {folder} {fault}: give one that `roberta binarize` or fairseq-preprocess has written."
            )


def check_same_vocabulary(folders: list[Path]) -> None:
    """Refuse data folders whose dict.txt differ: the same id would mean different symbols."""
    first = (folders[0] / "dict.txt").read_bytes()
    for folder in folders[1:]:
        path = folder / "dict.txt"
        if path.read_bytes() != first:
            raise ValueError(
                f"{path} differs from {folders[0] / 'dict.txt'}: data folders that are trained on together must be "
                "binarized with one vocabulary."
            )


def check_positions(
    tokens_per_sample: int, *, max_positions: int | None, max_tokens: int | None, limit: str = "--max-tokens"
) -> None:
    """Refuse blocks that fairseq would silently drop: longer than the model's positions or than a whole batch.

    `limit` names the option that `max_tokens` comes from.
    """
    if max_tokens is not None and tokens_per_sample > max_tokens:
        raise ValueError(
            f"{limit} ({max_tokens}) is smaller than --tokens-per-sample ({tokens_per_sample}): a batch could "
            "not hold one block. Raise the first or lower the second."
        )
    if max_positions is not None and tokens_per_sample > max_positions:
        raise ValueError(
            f"--tokens-per-sample ({tokens_per_sample}) exceeds the model's {max_positions} positions: lower it, or "
            "train a model with a larger --max-positions."
        )


def check_metric(metric: str, cfg: Any) -> None:
    """Refuse to choose checkpoints by what no validation logs; fairseq would fail after an epoch."""
    logged = ["loss", "ppl", "accuracy", *find_input_format(cfg).metrics]
    if metric not in logged:
        raise ValueError(
            f"--best-checkpoint-metric {metric} is not logged by validations: choose by {', '.join(logged)}."
        )


def check_criterion(name: str | None, cfg: Any) -> None:
    """Refuse a criterion that has no loss for these batches: one of fairseq's other than masked_lm."""
    criterion = CRITERION_REGISTRY.get(name)
    if name == "cross_entropy":
        raise ValueError(
            "--criterion cross_entropy (fairseq's choice where --criterion is missing) does not go with --task "
            "roberta_masked_lm: give --criterion roberta_masked_lm."
        )
    if name != "masked_lm" and getattr(criterion, "__module__", "").startswith("fairseq."):
        raise ValueError(f"--task roberta_masked_lm goes with --criterion roberta_masked_lm, not with {name}.")
    find_input_format(cfg).check_criterion(name)


def split_and_corpus(split: str) -> tuple[str, str]:
    """`valid@books` -> ("valid", "books"): the split of the data folder called books; `valid` -> ("valid", "")."""
    name, _, corpus = split.partition("@")
    return name, corpus


def check_splits(folders: Sequence[Path], *, training: str, validation: Sequence[str]) -> None:
    """Refuse data without a training split in each folder, or without validation data in all of them."""
    for folder in folders:
        if not (folder / f"{training}.idx").is_file():
            raise FileNotFoundError(
                f"{folder / training}.idx does not exist: every data folder needs a training split. Make it with "
                "`roberta binarize`, or leave the folder out."
            )
    for split in (training, *validation):
        name, corpus = split_and_corpus(split)
        chosen = [folder for folder in folders if not corpus or folder.name == corpus]
        if not chosen:
            raise ValueError(
                f"--valid-subset {split} names no data folder: it must be called {corpus}, and the folders are "
                f"{', '.join(map(str, folders))}."
            )
        having = [folder for folder in chosen if (folder / f"{name}.idx").is_file()]
        if not having:
            raise FileNotFoundError(
                f"No data folder has the validation split {split!r} ({name}.idx is missing in "
                f"{', '.join(map(str, chosen))}): make it with `roberta binarize`, name another with --valid-subset, "
                "or add --disable-validation."
            )
        sizes = [MmapTokens(folder / name).num_tokens for folder in having]
        check_not_empty(split, [str(folder) for folder in having], sizes, is_training=split == training)


def check_not_empty(split: str, folders: list[str], sizes: list[int], *, is_training: bool) -> None:
    """Refuse training on a folder whose split is empty, and validation on folders whose splits are all empty."""
    empty = [folder for folder, size in zip(folders, sizes, strict=True) if not size]
    if not empty or (len(empty) < len(folders) and not is_training):
        return
    remedies = (
        "or take the folder out of the data"
        if is_training
        else "name another with --valid-subset, or add --disable-validation"
    )
    raise ValueError(
        f"The split {split!r} of {', '.join(empty)} is empty ({split}.bin holds no text): binarize it again from "
        f"a text that is not empty, {remedies}."
    )


def check_validation(splits: Sequence[str], *, is_combined: bool) -> None:
    """Refuse --combine-valid-subsets beside other splits than the one that it makes."""
    if is_combined and list(splits) not in ([], [COMBINED_VALIDATION]):
        raise ValueError(
            "--combine-valid-subsets makes one split, valid, of all: leave it out, or leave out --valid-subset "
            f"{','.join(splits)}."
        )


def check_tokenizer(
    tokenizer: Tokenizer, vocabulary: Vocabulary, *, made_with: Mapping[str, Any] | None, data: str
) -> None:
    """Refuse a tokenizer that the data were not made with, as far as its files or the symbols of dict.txt tell.

    `made_with` describes the one that the manifest of the data names; None without a manifest.
    """
    recorded, files = (each.get("sha256", {}) for each in (made_with or {}, tokenizer.description()))
    lacking = np.flatnonzero(~vocabulary.never_masked() & (vocabulary.model_to_tokenizer(tokenizer) < 0))
    if any(files.get(name, digest) != digest for name, digest in recorded.items()) or (
        len(lacking) > len(vocabulary) / 2
    ):
        example = f", which lacks the symbol {vocabulary.symbols[lacking[0]]!r}" if len(lacking) else ""
        raise ValueError(
            f"--mask-whole-words: {data} was made with another tokenizer than this one{example}. Give that of the data "
            "by --tokenizer-folder."
        )
