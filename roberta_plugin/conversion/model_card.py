"""The model card: README.md of an exported folder, with the metadata that the Hugging Face hub reads.

It states the recorded facts of the run, and marks the gaps that only its makers can fill. The metadata has `base_model`
where records lead to a model of the hub, `datasets` for tasks whose data are there, and the results as `model-index`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from roberta_plugin.conversion.model_files import finetuning_folder, own_results
from roberta_plugin.conversion.named_models import hub_name
from roberta_plugin.conversion.portable import PortableModel
from roberta_plugin.conversion.settings import RECORD, ExportSettings
from roberta_plugin.conversion.usage import RULES, numbers_in_words, transformers_code
from roberta_plugin.finetuning import identity
from roberta_plugin.finetuning.benchmarks import SMALLER_IS_BETTER
from roberta_plugin.finetuning.kinds.outputs import NUMBERS
from roberta_plugin.finetuning.prepared import NAME as PREPARED
from roberta_plugin.json_files import read_json
from roberta_plugin.models.checkpoints import saved_options
from roberta_plugin.models.flops import training_flops

CARD = "README.md"
SENTENCE_TRANSFORMERS = "sentence-transformers"  # of `convert.Format`
TO_FILL_IN = "*To be filled in.*"
_GLUE = {"CoLA": "cola", "SST-2": "sst2", "MRPC": "mrpc", "STS-B": "stsb", "QQP": "qqp", "MNLI": "mnli", "QNLI": "qnli"}
_GLUE |= {"QNLI-ranking": "qnli", "RTE": "rte", "WNLI": "wnli"}
_SUPERGLUE = {"BoolQ": "boolq", "CB": "cb", "SuperRTE": "rte", "WiC": "wic", "MultiRC": "multirc", "COPA": "copa"}
_SUPERGLUE |= {"ReCoRD": "record", "WSC": "wsc"}
# task -> its data set at the hub, and the part of it
DATASETS: dict[str, tuple[str, str | None]] = {
    **{task: ("nyu-mll/glue", config) for task, config in _GLUE.items()},
    **{task: ("aps/super_glue", config) for task, config in _SUPERGLUE.items()},
    "XNLI": ("facebook/xnli", None),
    "squad1": ("rajpurkar/squad", None),
    "squad2": ("rajpurkar/squad_v2", None),
    "race": ("ehovy/race", None),
    "conll2003": ("eriktks/conll2003", None),
    "wnut17": ("leondz/wnut_17", None),
    "cnn_dailymail": ("abisee/cnn_dailymail", None),
    "WinoGrande": ("allenai/winogrande", None),
    "CommonsenseQA": ("tau/commonsense_qa", None),
}
_SPLITS = {"valid": "validation"}
_METRICS = {"mcc": "matthews_correlation", "pearson": "pearsonr", "spearman": "spearmanr"}
_DECIDES = ("thresh", *NUMBERS)  # ends of the names of numbers that are no results
_RECIPE = ("lr", "batch_size", "max_update", "warmup_updates", "weight_decay", "adam_betas", "tokens_per_sample")


def card(model: PortableModel, settings: ExportSettings) -> str:
    """The text of the card."""
    head, to = model.head, settings.to
    name = (settings.push or _name(model.path)).partition("@")[0]
    parts = [
        f"---\n{metadata(model, settings, name=name).to_yaml()}\n---\n\n# RoBERTa {name}\n",
        f"A RoBERTa (Liu et al. 2019, arXiv 1907.11692) that {head.facts.description}. Exported by roberta_plugin.\n",
        _section("Use", _usage(model, to)),
        _section("Model", _list(_sizes(model))),
        _section("Data", _list(_data(model)) or TO_FILL_IN),
        _section("Training", _list(_training(model)) or TO_FILL_IN),
        _section("Decision", _decision(model, to)) if model.decides_by else None,
        _section("Evaluation", _evaluation(model) or TO_FILL_IN),
        _section("Limitations", f"{TO_FILL_IN} What it was not made for; what is known of its biases."),
        _section("Licence", settings.license or TO_FILL_IN),
    ]
    text = "\n".join(part for part in parts if part is not None)
    return text if settings.push is None else text.replace('"FOLDER"', json.dumps(name))


def metadata(model: PortableModel, settings: ExportSettings, *, name: str) -> ModelCardData:
    """What the hub reads of the card: facts of the run's records and of the options; what is unknown is left out."""
    pipeline = "sentence-similarity" if settings.to == SENTENCE_TRANSFORMERS else model.head.hugging_face.pipeline
    trained_on = identity.of_checkpoint(model.state)
    task = "" if trained_on.get(identity.IS_INFERRED) else str(trained_on.get("task") or "")
    dataset, config = DATASETS.get(task, ("", None))
    results = [
        EvalResult(
            task_type=pipeline,
            dataset_type=dataset or task or "unknown",
            dataset_name=task or "unknown",
            dataset_config=config,
            dataset_split=_SPLITS.get(split, split),
            metric_type=_METRICS.get(metric, metric),
            metric_name=metric,
            metric_value=round(value, 4),
        )
        for split, (metrics, _) in _results(model).items()
        for metric, value in metrics.items()
    ]
    return ModelCardData(
        language=list(settings.language) or None,
        license=settings.license,
        library_name={"huggingface": "transformers"}.get(settings.to, settings.to),
        pipeline_tag=pipeline,
        tags=["roberta", model.head.kind.replace("_", "-")],
        base_model=_base_model(model) or None,
        datasets=[dataset] if dataset else None,
        model_name=name if results else None,
        eval_results=results or None,
    )


def _base_model(model: PortableModel) -> str:
    """The name at the hub of the model that this one was made from; empty if no record names it."""
    start = model.training.get("finetune_from_model")
    for path in (model.path, *([Path(start)] if start else [])):
        record = read_json(path.parent / RECORD, keys=(), remedy="remove it") if path.suffix == ".pt" else None
        if name := hub_name(path) or hub_name(Path(str((record or {}).get("source", "")))):
            return name
    return ""


def _results(model: PortableModel) -> dict[str, tuple[dict[str, float], int]]:
    """Split -> the model's own metrics, without numbers that decide, and how many runs were evaluated with it."""
    folder = (finetuning_folder(model.path) or model.path.parent) / "results"
    found = {}
    for path in sorted(folder.glob("evaluation_*.json")) if model.path.suffix == ".pt" else ():
        split = path.stem.removeprefix("evaluation_")
        metrics, num_runs, *_ = own_results(model.path, split)
        shown = {name: value for name, value in metrics.items() if not name.endswith(_DECIDES) and value is not None}
        found[split] = (shown, num_runs)
    return found


def _name(path: Path) -> str:
    """The name in the card's title.

    Example: roberta.base/model.pt and roberta.base.tar.gz -> roberta.base; a checkpoint below runs/reviews -> reviews.
    """
    output_dir = finetuning_folder(path)
    if output_dir is not None:
        return output_dir.name
    if path.suffix in (".pt", ".safetensors"):
        folder = path.absolute().parent
        return folder.parent.name if folder.name == "checkpoints" else folder.name
    name = re.sub(r"\.(tar\.gz|tgz|tar)$", "", path.absolute().name)
    return name if name != path.name else hub_name(path) or name


def _section(title: str, body: str) -> str:
    return f"## {title}\n\n{body}\n"


def _list(rows: Mapping[str, Any]) -> str:
    return "\n".join(f"- {name}: {value}" for name, value in rows.items())


def _usage(model: PortableModel, to: str) -> str:
    if to == "fairseq":
        return "See the file NOTE."
    if to == "onnx":
        return (
            "`model.onnx` takes `input_ids` and `attention_mask`, int64 of any batch and length; "
            "`tokenizer.json` makes them."
        )
    if to == SENTENCE_TRANSFORMERS:
        call = 'vectors = SentenceTransformer("FOLDER").encode(["A text.", "Another one."])'
        return f"```python\nfrom sentence_transformers import SentenceTransformer\n\n{call}\n```"
    if to == "peft":
        name = f"AutoModel{model.head.hugging_face.suffix}"
        return (
            "A low-rank adapter and a head, for the model that it was trained on:\n\n```python\nfrom peft import "
            f"PeftModel\nfrom transformers import {name}\n\n"
            f'base = {name}.from_pretrained("THAT MODEL", num_labels={model.head.num_outputs})\n'
            'model = PeftModel.from_pretrained(base, "FOLDER")\n```'
        )
    return transformers_code(model)


def _sizes(model: PortableModel) -> dict[str, Any]:
    options = model.state["cfg"]["model"]
    # tied parameters are in the state twice
    distinct = {value.data_ptr(): value.numel() for value in model.parameters.values()}
    length = model.text_layout.max_length
    shorter = f"; fine-tuned with at most {length}" if length < options["max_positions"] else ""
    rows = {
        "Parameters": f"{sum(distinct.values()):,}",
        "Layers": options.get("encoder_layers"),
        "Dimension": options.get("encoder_embed_dim"),
        "Attention heads": options.get("encoder_attention_heads"),
        "Longest input": f"{options.get('max_positions')} tokens{shorter}",
        "Vocabulary": f"{len(model.vocabulary):,} symbols, {model.tokenizer.name}",
    }
    if model.labels:
        rows["Classes"] = ", ".join(model.labels)
    return rows


def _data(model: PortableModel) -> dict[str, Any]:
    """The data, as recorded by the checkpoint and the manifest of its data-bin."""
    task = saved_options(model.state)[0]
    trained_on = (model.state.get("task_state") or {}).get("data") or {}
    rows: dict[str, Any] = {}
    if trained_on.get("task") and not trained_on.get(identity.IS_INFERRED):
        kind = (trained_on.get("settings") or {}).get("kind")
        rows["Fine-tuned on"] = ", ".join([trained_on["task"], *([kind] if kind else [])])
    output_dir = finetuning_folder(model.path)
    folders = [Path(task["data"])] if task.get("data") not in (None, "", ".") else []
    folders += [output_dir / "data"] if output_dir is not None else []  # where it was moved
    found = (folder / name for folder in folders for name in ("manifest.json", PREPARED))
    path = next((path for path in found if path.is_file()), None)
    record = {} if path is None else read_json(path, keys=(), remedy="bring it back from a copy, or remove it") or {}
    if names := (record.get("source") or {}).get("names"):  # of a prepared folder
        more = record["source"]["files"] - len(names)
        rows["Files"] = ", ".join([*names, *([f"{more:,} more"] if more else [])])
    for name, split in (record.get("splits") or {}).items():
        counts = split.get("counts") or split  # of a manifest, or of a prepared folder
        parts = [f"{counts[what]:,} {what}" for what in ("examples", "tokens") if counts.get(what)]
        files = ", ".join(Path(source["path"]).name for source in split.get("inputs", ()))
        rows[f"Split {name}"] = " of ".join(part for part in (", ".join(parts), files) if part)
    return rows


def _training(model: PortableModel) -> dict[str, Any]:
    """Recipe, updates, hours and FLOPs, as far as the checkpoint records them."""
    training = model.training
    rows = {name.replace("_", " "): training[name] for name in _RECIPE if name in training}
    rows |= {name: training[name] for name in ("updates", "hours") if name in training}
    num_tokens = training.get("tokens")
    if num_tokens:
        rows["tokens (full blocks)"] = f"{num_tokens:,}"
        options = model.state["cfg"]["model"]
        length = int(options["max_positions"])
        total = training_flops(
            num_layers=options["encoder_layers"],
            dim=options["encoder_embed_dim"],
            ffn_dim=options["encoder_ffn_embed_dim"],
            vocab_size=len(model.vocabulary),
            num_tokens=num_tokens,
            num_pairs=num_tokens * length,
            num_predicted=round(0.15 * num_tokens),
        )
        rows["FLOPs (computed from these)"] = f"{total:.2e}"
    return rows


def _decision(model: PortableModel, to: str) -> str:
    """The numbers that decide beside the weights, and who applies them."""
    keeps = f"`roberta predict` applies {'it' if len(model.decides_by) == 1 else 'them'} to this folder"
    applies = {"huggingface": f"{keeps}, and so does the code above.", "onnx": f"{keeps}."}
    rules = " ".join(rule for name, rule in RULES.items() if name in model.decides_by)
    return (
        f"It was judged by {numbers_in_words(model)}, which the weights do not hold. {rules} "
        f"{applies.get(to, 'No file of this folder does that.')}"
    )


def _evaluation(model: PortableModel) -> str:
    """The table that `roberta finetune` wrote; if it is of several runs, also the numbers of this one."""
    output_dir = finetuning_folder(model.path)
    if output_dir is None:
        return _of_pretraining(model)
    path = output_dir / "results" / "results.md"
    if not path.is_file():
        return ""
    table = re.sub(r"^#", "###", path.read_text(encoding="utf-8").strip(), flags=re.MULTILINE)
    rows = [
        f"| {split} | {name} | {value:{'.4g' if name in SMALLER_IS_BETTER else '.1f'}} |"
        for split, (metrics, num_runs) in _results(model).items()
        if num_runs > 1
        for name, value in metrics.items()
    ]
    if not rows:
        return table
    own = "\n".join(["| split | metric | this run |", "|---|---|---:|", *rows])
    return f"This folder holds one of several runs, with these numbers of its own:\n\n{own}\n\nAll runs:\n\n{table}"


def _of_pretraining(model: PortableModel) -> str:
    """What the report of `roberta pretrain` says of this checkpoint, up to its curve; empty if it is of another."""
    path = model.path.parent.parent / "report.md"
    text = path.read_text(encoding="utf-8") if model.path.suffix == ".pt" and path.is_file() else ""
    body = text.partition("\n\n")[2].partition("\n\n![")[0]
    return body if f"the last checkpoint, of {model.training.get('updates', 0):,} updates," in body else ""
