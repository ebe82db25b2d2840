"""`roberta inspect`: show and check the contents of a data-bin or of a prepared folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.cli.command import command
from roberta_plugin.data.binarize.pipeline import ONE_DOCUMENT
from roberta_plugin.data.corpus_statistics import count_split, find_faults
from roberta_plugin.data.count_baselines import baselines_of
from roberta_plugin.data.dynamic_masking import Masker, MaskingRecipe
from roberta_plugin.data.manifest import read_manifest
from roberta_plugin.data.mmap_tokens import MmapTokens
from roberta_plugin.data.neighbor_baseline import see_neighbors
from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.tokenizers.figures import Figures, measure
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.finetuning.prepared import NAME as PREPARED
from roberta_plugin.settings import REQUIRED, Checked, setting

_MOST_ITEMS = 2000  # lines of a split, on which the tokenizer is measured


@dataclass(frozen=True, kw_only=True)
class InspectSettings(Checked):
    """Settings of `roberta inspect`, whose options they are."""

    folder: Path = setting(REQUIRED, "the data-bin", flag="folder")
    split: tuple[str, ...] = setting((), "splits to inspect", nargs="+", metavar="NAME", default_text="all")


@command(InspectSettings)
def inspect(settings: InspectSettings) -> int:
    """Counts documents and tokens, shows what counts of train predict of the other splits, and checks
    sizes, offsets, ids and hashes. Exit code 1 if the files are damaged. Reads folders of `roberta binarize` and
    fairseq-preprocess; for folders of `roberta prepare`, it shows examples and labels.
    """
    if (settings.folder / PREPARED).is_file():
        return inspect_prepared(settings)
    folder, manifest = settings.folder, read_manifest(settings.folder)
    vocabulary = Vocabulary.load(folder / "dict.txt")
    print(f"{folder}: vocabulary of {len(vocabulary):,} symbols, <mask> included; manifest: {made_by(manifest)}")
    is_sound = show_faults(tokenizer_faults(folder, manifest))
    sound_splits: list[str] = []
    for split in sorted(settings.split or splits_in(folder, manifest), key=lambda name: name != "train"):
        faults = find_faults(folder, split, vocabulary, manifest)
        print(f"\n{split}: {'NOT SOUND' if faults else 'sound'}")
        if not show_faults(faults, indent="  "):
            is_sound = False
            continue
        if manifest is not None and split not in manifest["splits"]:
            print("  not in manifest.json, so its hashes cannot be checked")
        counts = count_split(MmapTokens(folder / split), vocabulary)
        print(
            f"  {counts.num_documents:,} document{'s' * (counts.num_documents != 1)}, "
            f"{counts.num_items:,} lines ({counts.num_blank:,} blank), "
            f"{counts.num_tokens:,} tokens; {counts.num_unknown:,} unknown ({counts.unknown_rate:.4%}); "
            f"{counts.num_symbols_used:,} of {len(vocabulary):,} symbols occur"
        )
        if counts.num_documents == 1 and counts.num_items > 1:
            print(f"  note: {ONE_DOCUMENT}")
        if figures := _figures(folder, split, vocabulary):
            print(f"  {figures.describe()}")
        if "train" in sound_splits:
            baselines = baselines_of([folder / "train"], {split: [folder / split]})[split]
            print(f"  {baselines.describe(_paper_neighbors(folder / split)) if baselines else 'nothing to predict'}")
        sound_splits.append(split)
    return int(not is_sound)


def _paper_neighbors(prefix: Path) -> NDArray[np.float64]:
    """How often a model sees neighbors if 15 % of the tokens are masked in blocks of 512, as in the paper."""
    masker = Masker.for_vocabulary(Vocabulary.load(prefix.parent / "dict.txt"), MaskingRecipe())
    return see_neighbors(masker, MmapTokens(prefix), block_length=512)


def _figures(folder: Path, split: str, vocabulary: Vocabulary) -> Figures | None:
    """How well the folder's tokenizer suits the text of a split; None for a folder without a tokenizer."""
    try:
        tokenizer = load_tokenizer(folder)
    except (ValueError, OSError):  # named above, or fairseq's folder
        return None
    tokens, back = MmapTokens(folder / split), vocabulary.model_to_tokenizer(tokenizer)
    items = np.unique(np.linspace(0, max(0, len(tokens) - 1), _MOST_ITEMS).astype(np.int64)) if len(tokens) else ()
    ids = (back[tokens[int(item)]] for item in items)
    return measure(tokenizer, (tokenizer.decode(line[line >= 0].tolist()) for line in ids))


def inspect_prepared(settings: InspectSettings) -> int:
    """Show and check the splits of a prepared folder."""
    from roberta_plugin.finetuning.preparation import describe, find_faults, settings_faults
    from roberta_plugin.finetuning.prepared import Prepared

    prepared = Prepared.open(settings.folder)
    print(f"{settings.folder}: prepared for {prepared.task}; vocabulary of {len(prepared.vocabulary):,} symbols")
    for name, value in prepared.settings.items():
        if value not in (None, []):
            shown = ", ".join(map(str, value)) if isinstance(value, list) else value
            print(f"  {name.replace('_', ' ')}: {shown}")
    is_sound = is_known = show_faults(settings_faults(prepared))
    for name in settings.split or prepared.splits:
        split = prepared.split(name)
        faults = find_faults(prepared, split)
        print(f"\n{name}: {'NOT SOUND' if faults else 'sound'}")
        is_sound = show_faults(faults, indent="  ") and is_sound
        for line in describe(prepared, split) if is_known and not faults else ():
            print(f"  {line}")
    return int(not is_sound)


def show_faults(faults: list[str], *, indent: str = "") -> bool:
    """Print the faults. Return True if there are none."""
    for fault in faults:
        print(f"{indent}fault: {fault}")
    return not faults


def splits_in(folder: Path, manifest: dict[str, Any] | None) -> list[str]:
    """Names of the splits that have a file in the folder or are listed in its manifest."""
    names = {path.stem for suffix in ("idx", "bin") for path in folder.glob(f"*.{suffix}")}
    if manifest is not None:
        names |= set(manifest["splits"])
    if not names:
        raise FileNotFoundError(f"No .idx file in {folder}: name the folder that `roberta binarize` wrote to.")
    return sorted(names)


def tokenizer_faults(folder: Path, manifest: dict[str, Any] | None) -> list[str]:
    """Faults of the tokenizer's files in the folder, compared with the manifest."""
    if manifest is None:
        return []
    try:
        description = load_tokenizer(folder).description()
    except (ValueError, OSError) as error:
        return [str(error)]
    if description != manifest["tokenizer"]:
        names = " or ".join(manifest["tokenizer"].get("sha256", {}))
        return [
            f"{folder}: {names} was replaced after the data were made: it is not what {folder / 'manifest.json'} says."
        ]
    return []


def made_by(manifest: dict[str, Any] | None) -> str:
    """Which program made the folder."""
    if manifest is None:
        return "none, so no hashes to check"
    version = manifest.get("made_by", {}).get("roberta_plugin", "of unknown version")
    return f"roberta_plugin {version}, {manifest['tokenizer']['kind']}"
