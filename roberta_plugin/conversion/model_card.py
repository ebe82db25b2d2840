"""The model card: README.md of an exported folder, with the metadata that the Hugging Face hub reads.

It states the recorded facts of the run, and marks the gaps that only its makers can fill. The metadata has `base_model`
where records lead to a model of the hub, `datasets` for tasks whose data are there, and the results as `model-index`.

Its code, by which transformers gives the answers of the folder, has what is not in the weights, too: texts are cut as
in fine-tuning, a threshold and a temperature are applied, and a span is found without the pipeline for it, which
transformers 5 lacks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from roberta_plugin.conversion.families import arguments_without_pooler, needs_code
from roberta_plugin.conversion.huggingface_tokenizers import their_symbol
from roberta_plugin.conversion.model_files import finetuning_folder, own_results
from roberta_plugin.conversion.named_models import hub_name
from roberta_plugin.conversion.portable import PortableModel
from roberta_plugin.conversion.settings import RECORD, ExportSettings
from roberta_plugin.data.vocabulary import MASK
from roberta_plugin.finetuning import identity
from roberta_plugin.finetuning.benchmarks import SMALLER_IS_BETTER
from roberta_plugin.finetuning.kinds.base import DEFAULT_THRESHOLD
from roberta_plugin.finetuning.kinds.outputs import NUMBERS
from roberta_plugin.finetuning.kinds.questions import MAX_ANSWER_LENGTH
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
    to = settings.to
    name = (settings.push or _name(model.path)).partition("@")[0]
    parts = [
        f"---\n{metadata(model, settings, name=name).to_yaml()}\n---\n\n# RoBERTa {name}\n",
        f"A RoBERTa (Liu et al. 2019, arXiv 1907.11692) that {_description(model, to)}. Exported by roberta_plugin.\n",
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


def _description(model: PortableModel, to: str) -> str:
    """What the model does, with the mask as the tokenizer of the folder has it."""
    does = model.head.facts.description.replace(MASK, _mask(model, to))
    if model.was_trained_for_its_answers:
        return does
    if model.head.is_encoder:
        return f"{does}, without a training for that"
    return f"{does}, by a head that was not trained with this encoder: the encoder was fine-tuned after it"


def _mask(model: PortableModel, to: str) -> str:
    """How a text for the model of the folder names the mask."""
    return MASK if to == "fairseq" else their_symbol(MASK, model)


def metadata(model: PortableModel, settings: ExportSettings, *, name: str) -> ModelCardData:
    """What the hub reads of the card: facts of the run's records and of the options; what is unknown is left out."""
    is_of_sentences = settings.to == SENTENCE_TRANSFORMERS
    pipeline = "sentence-similarity" if is_of_sentences else model.head.hugging_face.pipeline
    trained_on = identity.read_record(model.state)
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
    results = {}
    for path in sorted(folder.glob("evaluation_*.json")) if model.path.suffix == ".pt" else ():
        split = path.stem.removeprefix("evaluation_")
        metrics, num_runs, *_ = own_results(model.path, split)
        shown = {name: value for name, value in metrics.items() if not name.endswith(_DECIDES) and value is not None}
        results[split] = (shown, num_runs)
    return results


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
        outputs = " and ".join(f"`{name}`" for name in model.head.facts.onnx_outputs)
        of_texts = ", a vector for each text, pooled and normalized as below" if model.head.is_encoder else ""
        return (
            "`model.onnx` takes `input_ids` and `attention_mask`, int64 of any batch and length; "
            f"`tokenizer.json` makes them. It gives {outputs}{of_texts}."
        )
    if to == SENTENCE_TRANSFORMERS:
        call = f'vectors = SentenceTransformer("FOLDER"{_trust(model)}).encode(["A text.", "Another one."])'
        return f"```python\nfrom sentence_transformers import SentenceTransformer\n\n{call}\n```"
    if to == "peft":
        name = f"AutoModel{model.head.hugging_face.suffix}"
        return (
            "A low-rank adapter and a head, for the model that it was trained on:\n\n```python\nfrom peft import "
            f"PeftModel\nfrom transformers import {name}\n\n"
            f'base = {name}.from_pretrained("THAT MODEL", num_labels={model.head.num_outputs}{_trust(model)})\n'
            'model = PeftModel.from_pretrained(base, "FOLDER")\n```'
        )
    return transformers_code(model).replace('"FOLDER"', f'"FOLDER"{_trust(model)}')


def _trust(model: PortableModel) -> str:
    """The argument that a folder with code needs."""
    return ", trust_remote_code=True" if needs_code(model) else ""


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
    if model.head.is_encoder:
        rows["Vectors"] = _vectors_in_words(model)
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
    candidates = (folder / name for folder in folders for name in ("manifest.json", PREPARED))
    path = next((path for path in candidates if path.is_file()), None)
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
        return _pretraining_results(model)
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
    numbers = "\n".join(["| split | metric | this run |", "|---|---|---:|", *rows])
    return f"This folder holds one of several runs, with these numbers of its own:\n\n{numbers}\n\nAll runs:\n\n{table}"


def _pretraining_results(model: PortableModel) -> str:
    """What `roberta pretrain` has measured of this checkpoint; empty if that was another one."""
    path = model.path.parent.parent / "report.json"
    report = (read_json(path, keys=(), remedy="delete it") if model.path.suffix == ".pt" else None) or {}
    return str(report.get("results", "")) if report.get("updates") == model.training.get("updates") else ""


RULES = {
    "temperature": "Logits are divided by the temperature before the softmax.",
    "threshold": "A label is given if its probability reaches the threshold.",
    "null_threshold": "No answer is given if its probability is above the threshold.",
}
_PARTS = {"tail": "their end", "head+tail": "their begin and end", "windows": "windows over all of them"}


def numbers_in_words(model: PortableModel) -> str:
    """The numbers by which a model decides, such as "the temperature 0.831 and the threshold 0.914 of spam"."""
    numbers, parts = model.decides_by, []
    for name in (name for name in RULES if name in numbers):
        of_what = {"null_threshold": " of the probability of no answer"}.get(name, "")
        if name == "threshold" and model.head.kind == "classification" and model.labels:
            of_what = f" of {model.labels[1]}"
        parts.append(f"the {name.removeprefix('null_')} {numbers[name]:.6g}{of_what}")
    return " and ".join(parts)


def transformers_code(model: PortableModel) -> str:
    """Markdown: blocks of Python for the folder FOLDER, and what they leave out."""
    kind = model.head.kind
    if kind == "question_answering":
        return _spans(model)
    if kind == "multiple_choice":
        return _choices(model)
    if kind in ("classification", "multi_label", "regression"):
        return _texts(model)
    if kind == "tagging":
        return _tags(model)
    if model.head.is_encoder:
        return _vectors(model)
    facts = model.head.hugging_face
    text = f'"A text with {_mask(model, "huggingface")}.", tokenizer_kwargs={{"truncation": True}}'
    call = f'pipe = pipeline("{facts.pipeline}", "FOLDER"{facts.arguments})\nprint(pipe({text}))'
    return _block(f"from transformers import pipeline\n\n{call}")


def _block(code: str) -> str:
    return f"```python\n{code}\n```"


def _settings(model: PortableModel) -> Mapping[str, Any]:
    settings: Mapping[str, Any] = identity.read_record(model.state).get("settings") or {}
    return settings


def _cut(model: PortableModel, how: str = "True") -> str:
    """Arguments of the tokenizer that cut a text; the tokenizer itself cuts at the most positions."""
    length = model.text_layout.max_length
    shorter = f", max_length={length}" if length < int(model.state["cfg"]["model"]["max_positions"]) else ""
    return f"truncation={how}{shorter}"


_POOLED = {
    "mean": "(features * is_token).sum(dim=1) / is_token.sum(dim=1)",
    "first": "features[:, 0]",
    "max": "features.masked_fill(is_token == 0, -torch.inf).amax(dim=1)",
}
_POOLINGS = {"mean": "the mean", "first": "the features of `<s>`", "max": "the largest values"}


def _vectors_in_words(model: PortableModel) -> str:
    """How features become the vector of a text."""
    pooling, normalizes = model.vectors
    over = "" if pooling == "first" else " over all tokens of the text, the special ones included"
    return f"{_POOLINGS[pooling]} of the last layer{over}{', divided by their length' if normalizes else ''}"


def _vectors(model: PortableModel) -> str:
    pooling, normalizes = model.vectors
    arguments = "".join(f", {name}={value!r}" for name, value in arguments_without_pooler(model).items())
    code = f"""\
import torch
from transformers import AutoModel, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = AutoModel.from_pretrained("FOLDER"{arguments})
texts = ["A text.", "Another one."]
inputs = tokenizer(texts, padding=True, {_cut(model)}, return_tensors="pt")
is_token = inputs["attention_mask"][:, :, None]
with torch.no_grad():
    features = model(**inputs).last_hidden_state
vectors = {_POOLED[pooling]}"""
    code += "\nvectors = torch.nn.functional.normalize(vectors, dim=-1)" if normalizes else ""
    return _block(f"{code}\nprint(torch.cosine_similarity(vectors[0], vectors[1], dim=0).item())")


def _texts(model: PortableModel) -> str:
    texts = '[{"text": "A text.", "text_pair": "Another one."}]' if model.reads_pairs else '["A text.", "Another one."]'
    call = f"pipe({texts}, {_cut(model)})"
    arguments, lines = model.head.hugging_face.arguments, [f"print({call})"]
    imports = "from transformers import pipeline"
    if model.head.kind == "classification" and model.decides_by:
        arguments, lines = ', top_k=None, function_to_apply="none"', _decided(model, call)
        imports = f"import math\n\n{imports}"
    elif model.head.kind == "multi_label":
        limit = model.decides_by.get("threshold", DEFAULT_THRESHOLD)
        labels = f'[each["label"] for each in scores if each["score"] >= {limit!r}]'
        lines = [f"for scores in {call}:", f"    print({labels})"]
    code = _block("\n".join([imports, "", f'pipe = pipeline("text-classification", "FOLDER"{arguments})', *lines]))
    long_texts = model.text_layout.long_texts
    if long_texts is None:
        return code
    return f"{code}\n\nOf longer texts, the model was judged by {_PARTS[long_texts]}, not by their begin as here."


def _decided(model: PortableModel, call: str) -> list[str]:
    """Lines that choose a label as the threshold and the temperature say, from the logits of a call."""
    numbers, label = model.decides_by, "max(probabilities, key=probabilities.get)"
    divided = f" / {numbers['temperature']!r}" if "temperature" in numbers else ""
    if "threshold" in numbers:
        no, yes = (json.dumps(name, ensure_ascii=False) for name in model.labels or ("LABEL_0", "LABEL_1"))
        label = f"{yes} if probabilities[{yes}] >= {numbers['threshold']!r} else {no}"
    return [
        f"for scores in {call}:",
        f'    weights = {{each["label"]: math.exp(each["score"]{divided}) for each in scores}}',
        "    probabilities = {label: weight / sum(weights.values()) for label, weight in weights.items()}",
        f"    label = {label}",
        "    print(label, probabilities[label])",
    ]


def _tags(model: PortableModel) -> str:
    # The pipeline's aggregation_strategy takes a word mark or a space that is a token by itself for a word of its own.
    arguments = model.head.hugging_face.arguments
    is_byte_level = model.tokenizer.name == "byte_level_bpe"
    of_words = (
        "For lists of words (`is_split_into_words=True`), open the tokenizer by "
        '`AutoTokenizer.from_pretrained("FOLDER", add_prefix_space=True)`. '
        "It puts a space before the first word too, which the model learned without: only "
        "words that are joined by spaces, as above, have exactly its tags."
    )
    code = _block(f"""\
import re

from transformers import pipeline

pipe = pipeline("token-classification", "FOLDER"{arguments})
text = "Ann lives in Oslo."

# The tag of a word is that of its first token:
tokens = pipe(text)
for word in re.finditer(r"\\S+", text):
    print(word.group(), next(each for each in tokens if each["start"] >= word.start())["entity"])""")
    return f"{code}\n\n{of_words}" if is_byte_level else code


def _choices(model: PortableModel) -> str:
    pairs, cut = "[context] * len(options), seconds", '"only_first"'
    if _settings(model).get("order") == "question":
        pairs, cut = "seconds, [context] * len(options)", '"only_second"'
    code = f"""\
import torch
from transformers import AutoModelForMultipleChoice, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = AutoModelForMultipleChoice.from_pretrained("FOLDER")
context, question, options = "She opens the hood.", "Then, she", ["drives.", "looks at the engine."]
seconds = [f"{{question}} {{option}}" for option in options]
inputs = tokenizer({pairs}, {_cut(model, cut)}, padding=True, return_tensors="pt")
with torch.no_grad():
    logits = model(**{{name: value[None] for name, value in inputs.items()}}).logits[0]
print(options[logits.argmax()], logits.softmax(0).tolist())"""
    length = _settings(model).get("question_length")
    limit = f", and question with option are cut at {length} tokens" if length else ""
    return (
        f"{_block(code)}\n\nThe model was judged so, but an option fills the blank `_` of a question that has "
        f"one{limit}."
    )


def _spans(model: PortableModel) -> str:
    settings = _settings(model)
    has_none = identity.read_record(model.state).get("task") != "squad1"
    answerable = f"""
answerable = AutoModelForSequenceClassification.from_pretrained("FOLDER", num_labels=1)
with torch.no_grad():
    no_answer = 1 - answerable(**inputs).logits.sigmoid().item()
if no_answer > {model.decides_by.get("null_threshold", DEFAULT_THRESHOLD)!r}:
    answer = ""
print(no_answer)"""
    also = "AutoModelForSequenceClassification, " if has_none else ""
    code = f"""\
import torch
from transformers import AutoModelForQuestionAnswering, {also}AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = AutoModelForQuestionAnswering.from_pretrained("FOLDER")
question, passage = "Who wrote it?", "It was Ann who wrote it."
inputs = tokenizer(
    question, passage, {_cut(model, '"only_second"')}, return_offsets_mapping=True, return_tensors="pt"
)
places = inputs.pop("offset_mapping")[0].tolist()
in_passage = torch.tensor([text == 1 for text in inputs.sequence_ids()])
with torch.no_grad():
    found = model(**inputs)
scores = found.start_logits[0][:, None] + found.end_logits[0]  # of a span from each token to each
is_span = torch.ones_like(scores, dtype=torch.bool).triu().tril({MAX_ANSWER_LENGTH - 1})
is_span &= in_passage[:, None] & in_passage
start, end = divmod(scores.masked_fill(~is_span, -torch.inf).argmax().item(), len(places))
answer = passage[places[start][0] : places[end][1]].strip(){answerable if has_none else ""}
print(answer)"""
    length, stride = settings.get("question_length"), settings.get("doc_stride")
    windows = f" that start {stride} tokens apart" if stride else ""
    cut = f", and questions of at most {length} tokens" if length else ""
    return (
        f"{_block(code)}\n\nThis reads {model.text_layout.max_length} tokens at most. The model was judged with "
        f"windows of that length{windows}{cut}: the best span of all counts, and the lowest of their probabilities of "
        "no answer."
    )
