"""The model card: README.md of an exported folder, with the metadata that the Hugging Face hub reads.

It states the recorded facts of the run, and marks the gaps that only its makers can fill. Texts about a kind or a
benchmark come from `Kind` (description, usage, card_rows, decision) and from `Benchmark.on_hub`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from roberta_plugin.conversion.families import arguments_without_pooler, trust
from roberta_plugin.conversion.formats import Format
from roberta_plugin.conversion.huggingface_tokenizers import their_symbol
from roberta_plugin.conversion.model_files import finetuning_folder, own_results
from roberta_plugin.conversion.named_models import hub_name
from roberta_plugin.conversion.portable import PortableModel
from roberta_plugin.conversion.settings import RECORD, CommonExportSettings
from roberta_plugin.data.vocabulary import MASK
from roberta_plugin.finetuning import identity
from roberta_plugin.finetuning.benchmarks import all_tasks, benchmark_of
from roberta_plugin.finetuning.kinds import error_metrics
from roberta_plugin.finetuning.kinds.base import Kind
from roberta_plugin.finetuning.kinds.score_names import current_table, is_score, untuned
from roberta_plugin.finetuning.kinds.usage import Exported
from roberta_plugin.finetuning.prepared import NAME as PREPARED
from roberta_plugin.json_files import read_json
from roberta_plugin.models.checkpoints import saved_options

CARD = "README.md"
TO_FILL_IN = "*To be filled in.*"
TEMPLATE = """\
---
{metadata}
---

# RoBERTa {name}

A RoBERTa (Liu et al. 2019, arXiv 1907.11692) that {description}. Exported by roberta_plugin.

## Use

{usage}

## Model

{model}

## Data

{data}

## Training

{training}

## Evaluation

{evaluation}

## Limitations

*To be filled in.* Uses for which it was not made, and its known biases.

## Licence

{license}
"""
_SPLITS = {"valid": "validation"}
_METRICS = {"mcc": "matthews_correlation", "pearson": "pearsonr", "spearman": "spearmanr"}
_RECIPE = ("lr", "batch_size", "max_update", "warmup_updates", "weight_decay", "adam_betas", "tokens_per_sample")


def card(model: PortableModel, settings: CommonExportSettings, form: Format) -> str:
    """The text of the card."""
    name = (settings.push or _name(model.path)).partition("@")[0]
    does = model.head.facts.description.replace(MASK, form.mask or their_symbol(MASK, model))
    if not model.was_trained_for_its_answers:
        untrained = "by a head that was not trained with this encoder, which was fine-tuned later"
        does += ", without being trained for that" if model.head.is_encoder else f", {untrained}"
    usage = form.usage(model) + _decision(model, form)
    return TEMPLATE.format(
        metadata=metadata(model, settings, form, name=name).to_yaml(),
        name=name,
        description=does,
        usage=usage if settings.push is None else usage.replace('"FOLDER"', json.dumps(name)),
        model=_list(_sizes(model)),
        data=_list(_data(model)) or TO_FILL_IN,
        training=_list(_training(model)) or TO_FILL_IN,
        evaluation=_evaluation(model) or TO_FILL_IN,
        license=settings.license or TO_FILL_IN,
    )


def metadata(model: PortableModel, settings: CommonExportSettings, form: Format, *, name: str) -> ModelCardData:
    """The metadata that the hub reads: known facts from the run's records and from the options."""
    pipeline = form.pipeline or model.head.hugging_face.pipeline
    trained_on = identity.read_record(model.state)
    task = "" if trained_on.get(identity.IS_INFERRED) else str(trained_on.get("task") or "")
    dataset, config = benchmark_of(task).on_hub if task in all_tasks() else ("", None)
    results = [
        EvalResult(
            task_type=pipeline,
            dataset_type=dataset or task or "unknown",
            dataset_name=task or "unknown",
            dataset_config=config,
            dataset_split=_SPLITS.get(split, split),
            metric_type=_METRICS.get(untuned(metric), untuned(metric)),
            metric_name=metric,
            metric_value=round(value, 4),
        )
        for split, (metrics, _) in _results(model).items()
        for metric, value in metrics.items()
    ]
    return ModelCardData(
        language=list(settings.language) or None,
        license=settings.license,
        library_name=form.library or form.name,
        pipeline_tag=pipeline,
        tags=["roberta", model.head.kind.replace("_", "-")],
        base_model=_base_model(model) or None,
        datasets=[dataset] if dataset else None,
        model_name=name if results else None,
        eval_results=results or None,
    )


def usage(model: PortableModel) -> str:
    """The kind's section on how to use a folder with transformers."""
    return _kind(model).usage(_exported(model)).replace('"FOLDER"', f'"FOLDER"{trust(model)}')


def numbers_in_words(model: PortableModel) -> str:
    """The numbers by which a model decides, such as "the temperature 0.831 and the threshold 0.914 of spam"."""
    return " and ".join(_kind(model).decision(_exported(model)))


def _kind(model: PortableModel) -> Kind:
    record = identity.read_record(model.state)
    return model.head.facts(record.get("settings") or {}, task_name=str(record.get("task")))


def _exported(model: PortableModel) -> Exported:
    pooling, is_normalized = model.vectors
    return Exported(
        mask=their_symbol(MASK, model),
        labels=model.labels,
        decides_by=model.decides_by,
        reads_pairs=model.reads_pairs,
        layout=model.text_layout,
        max_positions=int(model.state["cfg"]["model"]["max_positions"]),
        pooling=pooling,
        is_normalized=is_normalized,
        model_arguments=arguments_without_pooler(model),
        is_byte_level=model.tokenizer.name == "byte_level_bpe",
    )


def _decision(model: PortableModel, form: Format) -> str:
    """A paragraph on the numbers that decide beside the weights; empty if there are none."""
    rules = _kind(model).decision(_exported(model))
    if not rules:
        return ""
    return (
        f"\n\nThe model was evaluated with {' and '.join(rules)}, which the weights do not contain. "
        f"{' '.join(rules.values())} {form.who_decides}"
    )


def _base_model(model: PortableModel) -> str:
    """The name at the hub of the model from which this one was made; empty if no record has it."""
    start = model.training.get("finetune_from_model")
    for path in (model.path, *([Path(start)] if start else [])):
        record = read_json(path.parent / RECORD, keys=(), remedy="remove it") if path.suffix == ".pt" else None
        if name := hub_name(path) or hub_name(Path(str((record or {}).get("source", "")))):
            return name
    return ""


def _results(model: PortableModel) -> dict[str, tuple[dict[str, float], int]]:
    """Split -> the model's own metrics, without numbers that decide, and the number of runs in the evaluation."""
    folder = (finetuning_folder(model.path) or model.path.parent) / "results"
    results = {}
    for path in sorted(folder.glob("evaluation_*.json")) if model.path.suffix == ".pt" else ():
        split = path.stem.removeprefix("evaluation_")
        metrics, num_runs, *_ = own_results(model.path, split)
        shown = {name: value for name, value in metrics.items() if is_score(name) and value is not None}
        results[split] = (shown, num_runs)
    return results


def _name(path: Path) -> str:
    """The title: the name of a run's folder, or roberta.base for roberta.base/model.pt and roberta.base.tar.gz."""
    if (output_dir := finetuning_folder(path)) is not None:
        return output_dir.name
    if path.suffix in (".pt", ".safetensors"):
        folder = path.absolute().parent
        return folder.parent.name if folder.name == "checkpoints" else folder.name
    name = re.sub(r"\.(tar\.gz|tgz|tar)$", "", path.absolute().name)
    return name if name != path.name else hub_name(path) or name


def _list(rows: Mapping[str, Any]) -> str:
    return "\n".join(f"- {name}: {value}" for name, value in rows.items())


def _sizes(model: PortableModel) -> dict[str, Any]:
    options = model.state["cfg"]["model"]
    # tied parameters are in the state twice
    distinct = {value.data_ptr(): value.numel() for value in model.parameters.values()}
    length = model.text_layout.max_length
    shorter = f"; fine-tuned with at most {length}" if length < options["max_positions"] else ""
    return {
        "Parameters": f"{sum(distinct.values()):,}",
        "Layers": options.get("encoder_layers"),
        "Dimension": options.get("encoder_embed_dim"),
        "Attention heads": options.get("encoder_attention_heads"),
        "Longest input": f"{options.get('max_positions')} tokens{shorter}",
        "Vocabulary": f"{len(model.vocabulary):,} symbols, {model.tokenizer.name}",
        **_kind(model).card_rows(_exported(model)),
    }


def _data(model: PortableModel) -> dict[str, Any]:
    """The data, as recorded by the checkpoint and by its data-bin or prepared folder."""
    trained_on = identity.read_record(model.state)
    rows: dict[str, Any] = {}
    if trained_on.get("task") and not trained_on.get(identity.IS_INFERRED):
        kind = (trained_on.get("settings") or {}).get("kind")
        rows["Fine-tuned on"] = ", ".join([trained_on["task"], *([kind] if kind else [])])
    record = _record_of_data(model)
    if names := (record.get("source") or {}).get("names"):  # only a prepared folder has them
        more = record["source"]["files"] - len(names)
        rows["Files"] = ", ".join([*names, *([f"{more:,} more"] if more else [])])
    for name, split in (record.get("splits") or {}).items():
        counts = split.get("counts") or split  # a manifest has counts; a prepared folder has them in the split itself
        numbers = ", ".join(f"{counts[what]:,} {what}" for what in ("examples", "tokens") if counts.get(what))
        files = ", ".join(Path(source["path"]).name for source in split.get("inputs", ()))
        rows[f"Split {name}"] = " of ".join(filter(None, (numbers, files)))
    return rows


def _record_of_data(model: PortableModel) -> dict[str, Any]:
    """The manifest of the data-bin, or prepared.json of the prepared folder; {} if it is gone.

    The folder is where the checkpoint says or, after a fine-tuning whose folder was moved, beside the checkpoint.
    """
    data, output_dir = saved_options(model.state)[0].get("data"), finetuning_folder(model.path)
    folders = [Path(data)] if data not in (None, "", ".") else []
    folders += [output_dir / "data"] if output_dir is not None else []
    candidates = (folder / name for folder in folders for name in ("manifest.json", PREPARED))
    path = next((path for path in candidates if path.is_file()), None)
    return {} if path is None else read_json(path, keys=(), remedy="bring it back from a copy, or remove it") or {}


def _training(model: PortableModel) -> dict[str, Any]:
    """Recipe, updates, hours and tokens, as far as the checkpoint records them."""
    training = model.training
    rows = {name.replace("_", " "): training[name] for name in _RECIPE if name in training}
    rows |= {name: training[name] for name in ("updates", "hours") if name in training}
    return {**rows, "tokens (full blocks)": f"{training['tokens']:,}"} if training.get("tokens") else rows


def _evaluation(model: PortableModel) -> str:
    """The table that `roberta finetune` wrote. If there were several runs, also the numbers of this run."""
    output_dir = finetuning_folder(model.path)
    if output_dir is None:
        return _pretraining_results(model)
    path = output_dir / "results" / "results.md"
    if not path.is_file():
        return ""
    table = re.sub(r"^#", "###", current_table(path.read_text(encoding="utf-8")).strip(), flags=re.MULTILINE)
    own = {
        f"{split}, {name}": f"{value:{'.4g' if name in error_metrics() else '.1f'}}"
        for split, (metrics, num_runs) in _results(model).items()
        if num_runs > 1
        for name, value in metrics.items()
    }
    if not own:
        return table
    return f"This folder has one of several runs. Its numbers are:\n\n{_list(own)}\n\nAll runs:\n\n{table}"


def _pretraining_results(model: PortableModel) -> str:
    """The measurements of `roberta pretrain` of this checkpoint; empty if they are of another checkpoint."""
    path = model.path.parent.parent / "report.json"
    report = (read_json(path, keys=(), remedy="delete it") if model.path.suffix == ".pt" else None) or {}
    return str(report.get("results", "")) if report.get("updates") == model.training.get("updates") else ""
