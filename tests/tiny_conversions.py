"""Small checkpoints with every kind of head, and sentences with padding and odd lengths."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch

from roberta_plugin import register
from roberta_plugin.checkpoint_files import load_state
from roberta_plugin.conversion.convert import (
    ConversionResult,
    ExportSettings,
    ImportSettings,
    export_model,
    import_model,
)
from roberta_plugin.conversion.pretrained import build, read_any
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.finetuning import identity
from roberta_plugin.models.checkpoints import model_options
from tests.tiny_benchmarks import write_tokenizer
from tests.tiny_checkpoints import state_of
from tests.tiny_tokenizers import train_tokenizer

HEAD = "sentence_classification_head"
TASKS = {  # kind -> fairseq task, classes, what the checkpoint remembers of its data
    "masked_lm": ("roberta_masked_lm", 0, {}),
    "classification": ("roberta_sentence_prediction", 3, {"labels": ["no", "perhaps", "yes"]}),
    "regression": ("roberta_sentence_prediction", 1, {"labels": []}),
    "multi_label": ("roberta_sentence_prediction", 3, {"labels": ["a", "b", "c"]}),
    "multiple_choice": ("race", 1, {}),
    "question_answering": ("squad2", 0, {}),
    "tagging": ("roberta_tagging", 0, {"labels": ["O", "B-FINE", "I-FINE", "B-POOR", "I-POOR"]}),
}
SENTENCES = ["good", "so it is good, or bad", "", "a bad good \u00e9t\u00e9 \u6771\u4eac", "bad bad bad bad bad", "x"]
TEXT = "The quick brown fox jumps over the lazy dog, and the dog does not mind it at all. Good or bad, so it is."


def write_checkpoint(folder: Path, kind: str = "masked_lm", *, sentencepiece: bool = False, **changes) -> Path:
    """model.pt, dict.txt and the tokenizer's files of a model with a head of this kind."""
    folder.mkdir(parents=True, exist_ok=True)
    if sentencepiece:
        (folder / "text.txt").write_text("\n".join(f"{TEXT} {number}" for number in range(300)))
        train_tokenizer("sentencepiece", [folder / "text.txt"], vocab_size=60, folder=folder)
    else:
        write_tokenizer(folder)
    name, num_classes, settings = TASKS[kind]
    own = {"question_answering": "span_head", "tagging": "token_head"}
    task = {"_name": name, "classification_head_name": own.get(kind, HEAD)}
    heads = {HEAD: num_classes} if num_classes else {}
    state = state_of(folder, task=task, heads=heads, **changes)
    if kind == "question_answering":
        state["model"] |= _span_head(24)
    if kind == "tagging":
        generator = torch.Generator().manual_seed(4)
        state["model"]["token_heads.token_head.out_proj.weight"] = torch.randn(5, 24, generator=generator)
        state["model"]["token_heads.token_head.out_proj.bias"] = torch.randn(5, generator=generator)
    if settings:
        state["task_state"] = {identity.KEY: {"task": "made up", "settings": {"kind": kind, **settings}}}
    torch.save(state, folder / "model.pt")
    return folder


def opened(path: Path) -> torch.nn.Module:
    """The model in a file or folder of any known format."""
    register()
    return build(read_any(path))


def exported(checkpoint: Path, folder: Path, to: str = "huggingface", **options: Any) -> ConversionResult:
    """An export in a folder of its own."""
    return export_model(ExportSettings(checkpoint=checkpoint, to=to, output_dir=folder, **options))


def imported(source: Path, folder: Path, **options: Any) -> ConversionResult:
    """An import in a folder of its own."""
    return import_model(ImportSettings(source=source, output_dir=folder, **options))


def new_masked_lm(tmp_path_factory):
    """A fixture of a module: a checkpoint with the masked-LM head."""
    return write_checkpoint(tmp_path_factory.mktemp("ours"))


def new_classifier(tmp_path_factory):
    """A fixture of a module: a checkpoint with three classes."""
    return write_checkpoint(tmp_path_factory.mktemp("ours"), "classification")


def new_export(ours, tmp_path):
    """A fixture: the model of the fixture `ours` for Hugging Face."""
    return exported(ours, tmp_path / "theirs").folder


def new_shards(ours, tmp_path_factory):
    """A fixture of a module: the model of the fixture `ours` for Hugging Face, in several files of weights."""
    return write_shards(ours, tmp_path_factory.mktemp("theirs") / "exported")


def comes_back(ours: Path, folder: Path, tmp_path: Path, *, has_lm_head: bool = True) -> tuple[str, ...]:
    """Assert that an import of an export has the parameters, bit for bit, and the options; the notes of the import."""
    back = imported(folder, tmp_path / "back")
    before, after = (load_state(each / "model.pt") for each in (ours, back.folder))
    assert before["model"].keys() == after["model"].keys()
    known = [name for name in before["model"] if has_lm_head or not name.startswith("encoder.lm_head.")]
    assert known and all(torch.equal(before["model"][name], after["model"][name]) for name in known)
    options = model_options(before)
    options.pop("share-layers", None)  # which other formats do not know
    assert options == model_options(after)
    return back.notes


def changed(folder: Path, name: str, tmp_path: Path, change: Any) -> Path:
    """A copy of a folder with a change of the content of one of its JSON files: new fields, or a function of it."""
    copy = tmp_path / "changed"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    path = copy / name
    content = json.loads(path.read_text()) if path.exists() else {}
    change(content) if callable(change) else content.update(change)
    path.write_text(json.dumps(content))
    return copy


def _span_head(dim: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    shapes = {"span.weight": (2, dim), "span.bias": (2,)}
    shapes |= {"answerable.dense.weight": (dim, dim), "answerable.dense.bias": (dim,)}
    shapes |= {"answerable.out_proj.weight": (1, dim), "answerable.out_proj.bias": (1,)}
    return {f"span_heads.span_head.{name}": torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def batch(folder: Path, *, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Random ids (B, T) of a folder's vocabulary, padded, and which of them are tokens."""
    generator = torch.Generator().manual_seed(seed)
    lengths = (17, 9, 2, 31, 40, 3)
    ids = torch.randint(4, len(Vocabulary.load(folder / "dict.txt")), (len(lengths), max(lengths)), generator=generator)
    ids[:, 0] = 0
    for row, length in enumerate(lengths):
        ids[row, length - 1] = 2
        ids[row, length:] = 1
    return ids, ids.ne(1)


def write_shards(ours: Path, folder: Path) -> Path:
    """An export to Hugging Face with its weights in several files."""
    exported(ours, folder, max_shard_bytes=20_000)
    assert len(list(folder.glob("model-*-of-*.safetensors"))) > 1
    return folder
