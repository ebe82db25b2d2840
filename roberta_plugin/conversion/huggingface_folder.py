"""The files of a Hugging Face folder: config.json, and weights in one safetensors file or in several.

Files are memory-mapped, and only the parameters in use are read. Weights in pytorch_model.bin are read too, without
running code of the file.

    model.safetensors                      up to 5 GB of weights
    model-00001-of-00002.safetensors ...   and model.safetensors.index.json, the file of each parameter
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from roberta_plugin.checkpoint_files import check_claims, explain_refusal
from roberta_plugin.files import atomic_write

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
OLD_WEIGHTS = "pytorch_model.bin"
MAX_SHARD_BYTES = 5 * 10**9  # as transformers cuts them
_ADVICE = "Copy the file again."


def is_huggingface_folder(path: Path) -> bool:
    """Whether a folder has a config.json of Hugging Face, or the path is a file of weights."""
    if path.is_file():
        return path.suffix == ".safetensors" or path.name == OLD_WEIGHTS
    return (path / CONFIG).is_file()


def read_config(folder: Path) -> dict[str, Any]:
    """The content of config.json.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if it is not a JSON object.
    """
    path = folder / CONFIG
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no {path}, which describes the model: weights alone are not enough. Copy {CONFIG} and the "
            "tokenizer's files from where the weights come from."
        )
    return read_object(path)


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        ValueError: if it holds anything else.
    """
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON ({error}): {_ADVICE}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not a JSON object: {_ADVICE}")
    return content


def read_weights(folder: Path, *, file: Path | None = None) -> dict[str, Tensor]:
    """All parameters of a folder, or of one safetensors file of it.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if a file is damaged.
    """
    parameters: dict[str, Tensor] = {}
    for path in [file] if file else _weight_files(folder):
        parameters |= _read_safetensors(path) if path.suffix == ".safetensors" else _read_pickle(path)
    return parameters


def write_weights(folder: Path, parameters: Mapping[str, Tensor], *, max_shard_bytes: int = MAX_SHARD_BYTES) -> None:
    """Write parameters as safetensors; more than `max_shard_bytes` become several files and an index."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    shards = list(_shards(parameters, max_shard_bytes))
    where: dict[str, str] = {}
    for number, names in enumerate(shards, start=1):
        name = WEIGHTS if len(shards) == 1 else f"model-{number:05}-of-{len(shards):05}.safetensors"
        content = {key: parameters[key].contiguous() for key in names}
        try:
            save_file(content, folder / name, metadata={"format": "pt"})
        except SafetensorError as error:  # names no file
            raise ValueError(
                f"{folder / name} ({sum(tensor.nbytes for tensor in content.values()):,} bytes) cannot be written "
                f"({error}). Free some space there, and run the same command again."
            ) from error
        where |= dict.fromkeys(names, name)
    if len(shards) > 1:
        total = sum(tensor.nbytes for tensor in parameters.values())
        index = {"metadata": {"total_size": total}, "weight_map": where}
        with atomic_write(folder / f"{WEIGHTS}.index.json", "w") as out:
            json.dump(index, out, indent=2)


def _shards(parameters: Mapping[str, Tensor], max_bytes: int) -> Iterator[list[str]]:
    """Names of the parameters of each file, in their order.

    Example: parameters a, b, c of 3, 4 and 2 bytes with at most 6 bytes per file -> [a], [b, c].
    """
    names: list[str] = []
    size = 0
    for name, tensor in parameters.items():
        if names and size + tensor.nbytes > max_bytes:
            yield names
            names, size = [], 0
        names.append(name)
        size += tensor.nbytes
    yield names


def _weight_files(folder: Path) -> list[Path]:
    for name in (WEIGHTS, OLD_WEIGHTS):
        if (folder / name).is_file():
            return [folder / name]
        index = folder / f"{name}.index.json"
        if index.is_file():
            return _indexed_files(index)
    raise FileNotFoundError(
        f"No weights in {folder}: looked for {WEIGHTS} and {OLD_WEIGHTS}, and their .index.json. Copy them from where "
        f"{CONFIG} comes from."
    )


def _indexed_files(index: Path) -> list[Path]:
    """The files that an index names; they lie beside it and nowhere else."""
    where = read_object(index).get("weight_map")
    if not isinstance(where, dict) or not where:
        raise ValueError(f"{index} has no weight_map, the file of each parameter: {_ADVICE}")
    names = sorted(set(map(str, where.values())))
    for name in names:
        if Path(name).name != name:
            raise ValueError(f"{index}: {name!r} is not the name of a file in this folder. {_ADVICE}")
        if not (index.parent / name).is_file():
            raise FileNotFoundError(f"{index} names {name}, which is not there: {_ADVICE}")
    return [index.parent / name for name in names]


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 -- not a dict
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{path} is damaged or no safetensors file ({error}). {_ADVICE}") from error


def _read_pickle(path: Path) -> dict[str, Tensor]:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damage raises nearly anything
        raise ValueError(f"{explain_refusal(path, error)} {_ADVICE}") from error
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ValueError(f"{path} is not a state dict: {_ADVICE}")
    check_claims(path, state)
    return state
