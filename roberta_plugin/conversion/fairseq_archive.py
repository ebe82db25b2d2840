"""fairseq's archives of released models: read them safely, and write their files.

    roberta.base/model.pt  dict.txt  NOTE            2019: half precision, names that begin with `decoder.`, query, key
                                                     and value in one matrix, options in an argparse.Namespace
    DIR/model.pt  dict.txt  encoder.json ...         today's layout, with the tokenizer's files

An archive may come from anywhere: only files of known names are extracted, and one whose paths lead out of its
folder is refused as a whole.

Shapes: D model dimension.
"""

from __future__ import annotations

import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal

import torch
from torch import Tensor

from roberta_plugin.conversion.huggingface_tokenizers import write_pieces
from roberta_plugin.conversion.portable import PortableModel
from roberta_plugin.data.tokenizers import KINDS
from roberta_plugin.data.tokenizers.byte_level_bpe import ByteLevelBpe
from roberta_plugin.files import atomic_write
from roberta_plugin.models.checkpoints.names import CLASSIFICATION, SENTENCE, SPAN, TOKEN, VERSION

Layout = Literal["today", "2019"]
MODEL = "model.pt"
NOTE = "NOTE"
FAIRSEQS_EPSILON = 1e-5  # of layer norms
_TAKEN = {MODEL, "dict.txt", NOTE, *(name for files, _ in KINDS for name in files)}
_ENDINGS = (".tar.gz", ".tgz", ".tar")


def is_archive(path: Path) -> bool:
    """Whether a path is a .tar.gz, .tgz or .tar file."""
    return path.is_file() and path.name.endswith(_ENDINGS)


@contextmanager
def unpacked(archive: Path) -> Iterator[Path]:
    """The files of a model out of an archive, in a temporary folder.

    Raises:
        ValueError: if the archive is damaged, holds no model.pt, or has paths that lead out of its folder.
    """
    with tempfile.TemporaryDirectory(prefix="roberta-archive-") as name:
        folder = Path(name)
        try:
            with tarfile.open(archive) as members:
                for member in members:
                    _take(archive, members, member, folder)
        except (tarfile.TarError, EOFError, OSError) as error:
            raise ValueError(f"{archive} is damaged or no tar archive ({error}): download it again.") from error
        if not (folder / MODEL).is_file():
            raise ValueError(f"{archive} holds no {MODEL}: it is not one of fairseq's archives of a RoBERTa.")
        yield folder


def _take(archive: Path, members: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(
            f"{archive} contains the path {member.name!r}, which leads out of its folder: do not trust it."
        )
    if member.isdir() or path.name not in _TAKEN:
        return
    if not member.isfile():
        raise ValueError(f"{archive}: {member.name} is a link or a device, not a file: do not trust the archive.")
    if (folder / path.name).exists():
        raise ValueError(f"{archive} holds {path.name} twice: unpack it, and name the folder of the right one.")
    free = shutil.disk_usage(folder).free
    if member.size > free:
        raise ValueError(
            f"{archive}: {member.name} takes {member.size / 1e9:.1f} GB, and {folder.parent} has {free / 1e9:.1f} GB "
            "left: set TMPDIR to a folder with more room."
        )
    content: IO[bytes] | None = members.extractfile(member)
    assert content is not None
    with content, open(folder / path.name, "wb") as out:
        shutil.copyfileobj(content, out)


def write_fairseq(model: PortableModel, folder: Path, *, layout: Layout = "today", half: bool = False) -> None:
    """Write model.pt, dict.txt, the tokenizer and a NOTE into an existing folder, for fairseq without this plugin.

    All classification heads go along, as in roberta.large.mnli; fairseq's hub registers them by name.

    Raises:
        ValueError: for heads, or another epsilon of layer norms, than fairseq's RoBERTa can have.
    """
    if any(name.startswith((SPAN, TOKEN)) for name in model.parameters):
        raise ValueError(
            f"{model.path} finds spans or tags in a text, and fairseq's RoBERTa has no such head: use --to huggingface."
        )
    if any(name.startswith(SENTENCE) for name in model.parameters):
        raise ValueError(
            f"{model.path} chooses the sentences of summaries, and fairseq's RoBERTa has no such head: use --to "
            "huggingface --head masked_lm for the encoder, or the checkpoint itself."
        )
    epsilon = model.state["cfg"]["model"].get("layer_norm_eps", FAIRSEQS_EPSILON)
    if epsilon != FAIRSEQS_EPSILON:
        raise ValueError(
            f"{model.path} has layer norms with layer_norm_eps {epsilon}, and fairseq's RoBERTa always computes with "
            f"{FAIRSEQS_EPSILON}, so its answers would differ: use --to huggingface or --to onnx."
        )
    parameters = {name: value.half() if half else value for name, value in model.parameters.items()}
    options = {name: value for name, value in model.state["cfg"]["model"].items() if not name.startswith("_")}
    # Plain types only, which torch's safe loading reads. fairseq's hub overrides only options that are there.
    options |= {"_name": "roberta", "load_checkpoint_heads": False}
    task = {"_name": "masked_lm", "data": ".", "tokens_per_sample": options["max_positions"]}
    named = as_of_2019(parameters) if layout == "2019" else parameters
    state = {"args": None, "cfg": _config(task, options), "model": named}
    save_state(folder / MODEL, state)
    _write_words(model, folder)
    with atomic_write(folder / NOTE, "w") as file:
        file.write(_note(model))


def write_ours(model: PortableModel, folder: Path) -> None:
    """Write model.pt, dict.txt and the tokenizer for this plugin, as `roberta import` does."""
    task = {**model.state["cfg"]["task"], "data": "."}
    options = dict(model.state["cfg"]["model"])
    content = {**model.state, "args": None, "cfg": _config(task, options)}
    save_state(folder / MODEL, content)
    _write_words(model, folder)


def save_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write a checkpoint with the entries that fairseq expects in each, equal tensors once."""
    history = {
        "criterion_name": "",
        "optimizer_name": "",
        "lr_scheduler_state": {},
        "num_updates": 0,
    }
    content = {
        "optimizer_history": [history],
        "extra_state": {"train_iterator": {"epoch": 1}},
        "last_optimizer_state": None,
        "task_state": {},
        **state,
    }
    with atomic_write(path) as file:
        torch.save(content, file)


def as_of_2019(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Today's names -> those of the released models.

    Example: the three ...self_attn.q_proj.weight, k_proj and v_proj (D, D) -> decoder....self_attn.in_proj_weight
    (3 D, D).
    """
    result: dict[str, Tensor] = {}
    for name, value in parameters.items():
        if name == VERSION:
            continue
        old = re.sub(r"^encoder\.", "decoder.", name).replace(".layernorm_embedding.", ".emb_layer_norm.")
        match = re.fullmatch(r"(.*\.self_attn\.)([qkv])_proj\.(weight|bias)", old)
        if match is None:
            result[old] = value
        elif match[2] == "q":
            parts = [parameters[name.replace(".q_proj.", f".{letter}_proj.")] for letter in "qkv"]
            result[f"{match[1]}in_proj_{match[3]}"] = torch.cat(parts)
    return result


def _config(task: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    return {"task": dict(task), "model": dict(options), "bpe": None, "common": {"seed": 1}}


def _write_words(model: PortableModel, folder: Path) -> None:
    model.vocabulary.save(folder / "dict.txt")
    model.tokenizer.save(folder)
    if isinstance(model.tokenizer, ByteLevelBpe):  # fairseq finds these two by itself, with bpe="hf_byte_bpe"
        pieces = {piece: number for number, piece in enumerate(model.tokenizer.pieces)}
        write_pieces(pieces, model.tokenizer.merges, folder)


def _note(model: PortableModel) -> str:
    """Python code by which fairseq opens the folder."""
    bpe = {"byte_level_bpe": "hf_byte_bpe", "sentencepiece": "sentencepiece"}.get(model.tokenizer.name)
    how = f'RobertaModel.from_pretrained("THIS FOLDER", "model.pt", bpe="{bpe}")'
    if bpe is None:
        how = 'RobertaModel.from_pretrained("THIS FOLDER", "model.pt", bpe=None)  # its tokenizer is of roberta_plugin'
    heads = sorted({name.split(".")[1] for name in model.parameters if name.startswith(CLASSIFICATION)})
    listed = f"Classification heads: {', '.join(heads)}.\n" if heads else ""
    labels = f"Classes of {model.head.name}, in their order: {', '.join(model.labels)}.\n" if model.labels else ""
    return f"from fairseq.models.roberta import RobertaModel\nroberta = {how}\n\n{listed}{labels}"
