"""A folder that `roberta export --to onnx` wrote -> a model that ONNX Runtime computes, for the hub.

The folder's roberta.json says what the graph is: its head, its sizes, and what the checkpoint was trained on. dict.txt
and the tokenizer's own files stand beside it, so that texts become the very ids of the checkpoint. It also has the
CRC-32 of each file, which opening compares, as of a checkpoint: 0.4 s for a base model of 500 MB (zlib, one busy core).

Shapes: B sequences, T positions, V vocabulary, M positions that are asked for.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from roberta_plugin.conversion.fairseq_format import write_words
from roberta_plugin.conversion.heads import MASKED_LM
from roberta_plugin.conversion.model_files import INT8_MODEL, ONNX_FACTS, ONNX_MODEL
from roberta_plugin.conversion.portable import PortableModel
from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.extras import require
from roberta_plugin.finetuning import identity
from roberta_plugin.json_files import read_json, write_json
from roberta_plugin.models.heads import SpanLogits

VERSION = 2
_KEYS = ("version", "head", "sizes", "trained_on", "files")
_INPUTS = ["input_ids", "attention_mask"]
_RANKS = {MASKED_LM: [3], "classification": [2], "token": [3], "span": [2, 2, 1]}  # of the outputs of each head
_AGAIN = "export the checkpoint again by `roberta export --to onnx`"
_POSITIONS_AT_ONCE = 512  # of the vocabulary's scores, which the graph has for every position


class OnnxFolder(NamedTuple):
    """What the hub needs of an exported folder."""

    model: OnnxModel
    tokenizer: Tokenizer
    vocabulary: Vocabulary
    trained_on: dict[str, Any]


def write_facts(model: PortableModel, folder: Path) -> None:
    """Write what `read_onnx` needs beside the graphs: dict.txt, the tokenizer's files, and last roberta.json."""
    write_words(model, folder)
    head, options = model.head, model.state["cfg"]["model"]
    facts = {
        "version": VERSION,
        "head": {"name": head.name, "kind": head.facts.head, "num_outputs": head.num_outputs},
        "sizes": {"max_positions": int(options["max_positions"]), "dim": int(options["encoder_embed_dim"])},
        "trained_on": identity.of_checkpoint(model.state),
        "files": {path.name: _checksum(path) for path in sorted(folder.iterdir()) if path.is_file()},
    }
    write_json(folder / ONNX_FACTS, facts)


def _checksum(path: Path) -> int:
    """CRC-32 of a file."""
    checksum = 0
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            checksum = zlib.crc32(block, checksum)
    return checksum


def _check_files(folder: Path, files: Any, *, unused: str) -> None:
    """Compare the files of a folder with their checksums; the graph `unused`, of another precision, may be missing."""
    if not isinstance(files, dict) or any(Path(name).name != name for name in files):
        raise ValueError(f"{folder / ONNX_FACTS} is damaged (files is {files!r:.60}): {_AGAIN}.")
    for name, checksum in files.items():
        if name.startswith(unused):
            continue
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder} has no {name}: {_AGAIN}.")
        if _checksum(folder / name) != checksum:
            raise ValueError(f"{folder / name} is not as it was exported: {_AGAIN}.")


def read_onnx(folder: Path, *, precision: str) -> OnnxFolder:
    """Open an exported folder.

    Raises:
        ValueError: if it is of another version, is damaged, or has no such precision; or without ONNX Runtime.
    """
    require("onnxruntime", extra="onnx", purpose=f"{folder}, an ONNX model,")
    names = {"fp32": ONNX_MODEL, "int8": INT8_MODEL}
    if precision not in names:
        raise ValueError(
            f"--precision {precision}: {folder} is an ONNX model, which has fp32 or int8. Give one of them."
        )
    facts = read_json(folder / ONNX_FACTS, keys=["version"], remedy=_AGAIN)
    if facts is None or facts["version"] != VERSION:
        found = "has none" if facts is None else f"has version {facts['version']}"
        raise ValueError(
            f"{folder} is of another version of this plugin: {ONNX_FACTS} of version {VERSION} is needed; it {found}. "
            f"Please {_AGAIN}."
        )
    if lacking := next((key for key in _KEYS if key not in facts), None):
        raise ValueError(f"{folder / ONNX_FACTS} lacks the key {lacking!r}: {_AGAIN}.")
    path = folder / names[precision]
    if not path.is_file():
        remedy = "export it with --int8 TEXT" if precision == "int8" else _AGAIN
        raise FileNotFoundError(f"{folder} has no {path.name}: {remedy}.")
    if not isinstance(facts["trained_on"], dict):
        raise ValueError(f"{folder / ONNX_FACTS} is damaged (trained_on is {facts['trained_on']!r:.60}): {_AGAIN}.")
    _check_files(folder, facts["files"], unused=names["fp32" if precision == "int8" else "int8"])
    return OnnxFolder(
        model=OnnxModel(path, facts),
        tokenizer=load_tokenizer(folder),
        vocabulary=Vocabulary.load(folder / "dict.txt"),
        trained_on=facts["trained_on"],
    )


class OnnxModel(nn.Module):
    """A graph with the calls of a model that the hub makes; it computes on the CPU, with as many threads as torch."""

    def __init__(self, path: Path, facts: dict[str, Any]) -> None:
        """Open a graph."""
        import onnxruntime  # type: ignore[import-untyped]

        super().__init__()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        try:
            self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
            name, kind = str(facts["head"]["name"]), str(facts["head"]["kind"])
            self.dim, self._max_positions = int(facts["sizes"]["dim"]), int(facts["sizes"]["max_positions"])
            num_outputs = int(facts["head"]["num_outputs"])
            inputs = [entry.name for entry in self._session.get_inputs()]
            shapes = [entry.shape for entry in self._session.get_outputs()]
            if inputs != _INPUTS or [len(shape) for shape in shapes] != _RANKS[kind]:
                raise ValueError(f"the graph is not that of a head of the kind {kind}")
            if kind in ("classification", "token") and shapes[0][-1] != num_outputs:
                raise ValueError(f"the graph has {shapes[0][-1]} outputs instead of {num_outputs}")
        except Exception as error:  # ONNX Runtime has classes of its own for damaged files
            why = " ".join(str(error).split())[:160]
            raise ValueError(f"{path} or {ONNX_FACTS} beside it is damaged ({why}): {_AGAIN}.") from error
        self.path, self._is_masked_lm = path, kind == MASKED_LM
        self.head_kinds = {} if self._is_masked_lm else {name: kind}
        self.heads = {name: SimpleNamespace(out_proj=SimpleNamespace(out_features=num_outputs))}

    def max_positions(self) -> int:
        """The most tokens in a sequence."""
        return self._max_positions

    def forward(self, tokens: Tensor, *, classification_head_name: str | None = None, **layout: Any) -> tuple[Any]:
        """Ids (B, T), padded -> (the outputs of the head,), as `FastRobertaModel` does.

        Raises:
            ValueError: if it has no such head; a graph has no features either.
        """
        if classification_head_name not in self.head_kinds:
            has = " and ".join(self.head_kinds) or "the masked-LM head"
            raise ValueError(
                f"{self.path} is an ONNX model and answers by {has} alone: ask the checkpoint for features, vectors "
                "and other heads."
            )
        found = self._run(tokens, has_padding=layout.get("has_padding", True))
        return (found[0] if len(found) == 1 else SpanLogits(*found),)

    def position_logits(self, tokens: Tensor, positions: Sequence[Sequence[int]]) -> Iterator[Tensor]:
        """Scores of the vocabulary at some positions of each row, as `hub/running.position_logits`: parts (M', V)."""
        if not self._is_masked_lm:
            raise ValueError(f"{self.path} was exported without its masked-LM head: export with --head masked_lm.")
        step = max(1, _POSITIONS_AT_ONCE // tokens.size(1))
        for start in range(0, len(tokens), step):
            (logits,) = self._run(tokens[start : start + step], has_padding=True)
            for row, places in zip(logits, positions[start : start + step], strict=True):
                yield row[list(places)]

    def _run(self, tokens: Tensor, *, has_padding: bool) -> list[Tensor]:
        pad_id = 1
        mask = tokens.ne(pad_id).long() if has_padding else torch.ones_like(tokens)
        feed = {"input_ids": tokens.numpy(), "attention_mask": mask.numpy()}
        return [torch.from_numpy(np.asarray(value)) for value in self._session.run(None, feed)]
