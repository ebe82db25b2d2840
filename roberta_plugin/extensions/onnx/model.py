"""A portable model -> model.onnx for ONNX Runtime, with 8-bit weights as an option.

Inputs are `input_ids` and `attention_mask`, int64 (B, T), as tokenizer.json makes them. Outputs, by kind of head:

    masked_lm                                       logits (B, T, V)
    classification, regression, multi_label         logits (B, C)
    multiple_choice                                 logits (B, 1); one row per option of a question
    question_answering                              start_logits (B, T), end_logits (B, T), answerable (B,)
    tagging                                         logits (B, T, C)
    no head: vectors of texts                       sentence_embedding (B, D), pooled and normalized as in training

Batch size and length are free. The folder's roberta.json describes the graph: its head, its sizes, and the training of
the checkpoint. The folder also has dict.txt and the tokenizer's own files, so that texts get exactly the ids of the
checkpoint. roberta.json has the CRC-32 of each file, which is checked on opening, as for a checkpoint: 0.4 s for a base
model of 500 MB (zlib, one busy core).

Shapes: B sequences, T positions, V vocabulary, C classes, N lines, M positions that are asked for.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from roberta_plugin.conversion.fairseq_format import write_words
from roberta_plugin.conversion.formats import Format
from roberta_plugin.conversion.huggingface_tokenizers import model_type_of, write_tokenizer
from roberta_plugin.conversion.portable import MASKED_LM, PortableModel
from roberta_plugin.conversion.pretrained import build
from roberta_plugin.data.tokenizers.additions import additions_of, base_of, composes, with_additions
from roberta_plugin.extensions.onnx.files import FACTS, INT8_MODEL, MODEL, VERSION, compute_checksum
from roberta_plugin.extras import require
from roberta_plugin.json_files import write_json
from roberta_plugin.models.heads import Pooling, pool

_OPSET = 18
_MAX_LINES = 64
_MASKED = 7  # every seventh token of a line is masked to measure 8-bit weights


class _Graph(nn.Module):
    """Our model with one head, or with the pooling of `vectors`, as a function of ids and mask."""

    def __init__(self, model: Any, *, head: str | None, vectors: tuple[Pooling, bool] | None) -> None:
        super().__init__()
        self.model, self.head, self.vectors = model, head, vectors
        self.pad_id = int(model.encoder.sentence_encoder.pad_id)
        for layer in model.encoder.sentence_encoder.layers:
            layer.self_attn.make_plain()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        """Ids and mask (B, T) -> the outputs of the kind."""
        tokens = input_ids.masked_fill(attention_mask == 0, self.pad_id)
        if self.vectors is not None:
            pooling, normalizes = self.vectors
            pooled = pool(self.model(tokens, features_only=True, has_padding=True)[0], attention_mask != 0, pooling)
            return F.normalize(pooled, dim=-1) if normalizes else pooled
        outputs = self.model(tokens, head=self.head, has_padding=True)[0]
        return outputs if isinstance(outputs, Tensor) else tuple(outputs)


class OnnxFormat(Format):
    """A graph for ONNX Runtime."""

    program = "ONNX Runtime"
    has_decisions = True
    who_decides = "`roberta predict` does that."

    def write(self, model: PortableModel, folder: Path, settings: Any) -> Sequence[str]:  # noqa: D102
        return write_onnx(model, folder, int8_sample=settings.int8_sample)

    def usage(self, model: PortableModel) -> str:  # noqa: D102
        return usage(model)


def usage(model: PortableModel) -> str:
    """The section of a model card on the graph."""
    outputs = " and ".join(f"`{name}`" for name in model.head.facts.graph_outputs)
    of_texts = ", a vector for each text, pooled and normalized as below" if model.head.is_encoder else ""
    return (
        "`model.onnx` takes `input_ids` and `attention_mask`, int64 of any batch and length; `tokenizer.json` makes "
        f"them. It gives {outputs}{of_texts}."
    )


def write_onnx(model: PortableModel, folder: Path, *, int8_sample: Path | None) -> list[str]:
    """Write model.onnx, the tokenizer and, if asked, model.int8.onnx into an existing folder.

    `int8_sample` is a text file. On its lines, the model with 8-bit weights is compared with the model itself.

    Returns:
        Notes for the user, in sentences: the differences that 8-bit weights make.

    Raises:
        ValueError: if packages are missing, or the tokenizer cannot be written.
    """
    require("onnx", "onnxruntime", "onnxscript", extra="onnx", purpose="--to onnx")
    import onnx

    head = None if model.head.kind == MASKED_LM else model.head.name
    graph = _Graph(build(model), head=head, vectors=model.vectors if model.head.is_encoder else None).eval()
    length = int(model.state["cfg"]["model"]["max_positions"])
    ids = torch.full((2, min(8, length)), 5)
    ids[:, 0] = model.vocabulary.bos_id
    # Without a largest batch, torch 2.6 and 2.7 refuse the graph.
    sizes = {0: torch.export.Dim("batch", max=1 << 30), 1: torch.export.Dim("length", max=length)}
    with _quiet(), torch.no_grad():
        torch.onnx.export(
            graph,
            (ids, torch.ones_like(ids)),
            folder / MODEL,
            input_names=["input_ids", "attention_mask"],
            output_names=list(model.head.facts.graph_outputs),
            dynamic_shapes=(sizes, sizes),
            opset_version=_OPSET,
            dynamo=True,
            external_data=sum(value.nbytes for value in model.parameters.values()) > 1 << 30,
        )
    proto = onnx.load(folder / MODEL, load_external_data=False)
    del proto.graph.value_info[:]  # shapes, which the quantizer contradicts
    for node in proto.graph.node:
        del node.metadata_props[:]  # this machine's stack traces
    onnx.save(proto, folder / MODEL)
    model_type = model_type_of(model)
    tokens, add_prefix_space = additions_of(model.tokenizer)
    further = {"add_prefix_space": add_prefix_space, "composes": composes(model.tokenizer)}
    ours = with_additions(base_of(model.tokenizer), tokens, **further)  # the ids are as in the graph
    write_tokenizer(replace(model, tokenizer=ours, keeps_ids=True), folder, model_type=model_type, max_length=length)
    notes = [] if int8_sample is None else [_write_int8(model, folder, int8_sample)]
    write_facts(model, folder)
    return notes


def _write_int8(model: PortableModel, folder: Path, sample: Path) -> str:
    """Write the model with 8-bit weights, and describe the differences on the lines of a text."""
    from onnxruntime.quantization import QuantType, quantize_dynamic  # type: ignore[import-untyped]

    batches = list(_sample_batches(model, sample))
    with _quiet():
        quantize_dynamic(folder / MODEL, folder / INT8_MODEL, weight_type=QuantType.QInt8, per_channel=True)
    full, small = (_run(folder / name, [ids for ids, _ in batches]) for name in (MODEL, INT8_MODEL))  # N lists
    sizes = [sum(path.stat().st_size for path in folder.glob(f"{name}*")) / 1e6 for name in (MODEL, INT8_MODEL)]
    what = f"8-bit weights: {sizes[1]:.1f} MB instead of {sizes[0]:.1f} MB; on {len(batches)} lines of {sample}"
    if model.head.kind == MASKED_LM:
        losses = [
            np.mean(
                [
                    float(F.cross_entropy(torch.tensor(one[0])[labels >= 0], torch.tensor(labels[labels >= 0])))
                    for one, (_, labels) in zip(outputs, batches, strict=True)
                ]
            )
            for outputs in (full, small)
        ]
        return f"{what} the masked-LM loss is {losses[1]:.4f} instead of {losses[0]:.4f}."
    return f"{what} {_changes(full, small, model.head.facts.decides)}."


def _changes(full: list[list[NDArray[np.float32]]], small: list[list[NDArray[np.float32]]], what: str) -> str:
    """Differences that 8-bit weights make in the outputs (one list per line), which decide `what` (`Kind.decides`)."""
    pairs = [list(zip(a, b, strict=True)) for a, b in zip(full, small, strict=True)]
    if what == "vectors":
        cosines = [
            float(F.cosine_similarity(torch.tensor(both[0]), torch.tensor(both[1])).min())
            for line in pairs
            for both in line
        ]
        mean = np.mean(cosines)
        return f"vectors have a cosine of {mean:.4f} with their own on average, and of {min(cosines):.4f} at least"
    changes = [float(np.abs(a - b).max()) for line in pairs for a, b in line]
    if what == "scores":  # one for each line
        return f"the score changes by {np.mean(changes):.4f} on average, and by at most {max(changes):.4f}"
    # An answer is the same if all outputs have the same largest logit. Each row of logits is one, such as a token.
    alike = [reduce(np.logical_and, (a.argmax(-1) == b.argmax(-1) for a, b in line)) for line in pairs]
    same = np.mean(np.concatenate([np.ravel(each) for each in alike]))
    return f"{same:.1%} of the {what} are the same, and logits change by at most {max(changes):.4f}"


def _sample_batches(model: PortableModel, sample: Path) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Ids (1, T) and labels (1, T) of the first lines of a text file; labels are -1 where nothing is predicted."""
    if not sample.is_file():
        raise ValueError(f"--int8 {sample} does not exist: name a text file with lines to measure 8-bit weights on.")
    to_model = model.vocabulary.tokenizer_to_model(model.tokenizer)
    limit = int(model.state["cfg"]["model"]["max_positions"]) - 2
    lines = [line for line in sample.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not lines:
        raise ValueError(f"--int8 {sample} has no lines with text: name another file.")
    for line in lines[:_MAX_LINES]:
        text = to_model[model.tokenizer.encode(line)][:limit].astype(np.int64)
        ids = np.concatenate([[model.vocabulary.bos_id], text, [model.vocabulary.eos_id]])[None]
        labels = np.full_like(ids, -1)
        if model.head.kind == MASKED_LM:
            labels[0, 1:-1:_MASKED] = ids[0, 1:-1:_MASKED]
            ids[0, 1:-1:_MASKED] = model.vocabulary.mask_id
        yield ids, labels


def _run(path: Path, batches: list[NDArray[np.int64]]) -> list[list[NDArray[np.float32]]]:
    """All outputs for each batch of ids (1, T) without padding."""
    import onnxruntime  # type: ignore[import-untyped]

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return [session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)}) for ids in batches]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide the progress of the exporter and the quantizer, and their warnings of each other's versions."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def write_facts(model: PortableModel, folder: Path) -> None:
    """Write the files that `graph.read_onnx` needs beside the graphs: dict.txt, the tokenizer's, then roberta.json."""
    write_words(model, folder)
    head, options = model.head, model.state["cfg"]["model"]
    facts = {
        "version": VERSION,
        "head": {"name": head.name, "kind": head.facts.head, "num_outputs": head.num_outputs},
        "sizes": {"max_positions": int(options["max_positions"]), "dim": int(options["encoder_embed_dim"])},
        "trained_on": model.record,
        "files": {path.name: compute_checksum(path) for path in sorted(folder.iterdir()) if path.is_file()},
    }
    write_json(folder / FACTS, facts)
