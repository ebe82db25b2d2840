"""Code by which transformers gives the answers of an exported folder, for its card: what is not in the weights, too.

Texts are cut as in fine-tuning, a threshold and a temperature are applied, and a span is found without the pipeline for
it, which transformers 5 lacks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from roberta_plugin.conversion.portable import PortableModel
from roberta_plugin.finetuning import identity
from roberta_plugin.finetuning.benchmarks import TASKS, benchmark_of
from roberta_plugin.finetuning.kinds.base import DEFAULT_THRESHOLD
from roberta_plugin.finetuning.kinds.questions import MAX_ANSWER_LENGTH

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
    facts = model.head.hugging_face
    text = '"A text with <mask>.", tokenizer_kwargs={"truncation": True}' if kind == "masked_lm" else '"A text."'
    call = f'pipe = pipeline("{facts.pipeline}", "FOLDER"{facts.arguments})\nprint(pipe({text}))'
    return _block(f"from transformers import pipeline\n\n{call}")


def _block(code: str) -> str:
    return f"```python\n{code}\n```"


def _settings(model: PortableModel) -> Mapping[str, Any]:
    found: Mapping[str, Any] = identity.of_checkpoint(model.state).get("settings") or {}
    return found


def _cut(model: PortableModel, how: str = "True") -> str:
    """Arguments of the tokenizer that cut a text; the tokenizer itself cuts at the most positions."""
    length = model.text_layout.max_length
    shorter = f", max_length={length}" if length < int(model.state["cfg"]["model"]["max_positions"]) else ""
    return f"truncation={how}{shorter}"


def _texts(model: PortableModel) -> str:
    task = str(identity.of_checkpoint(model.state).get("task"))
    is_pair = bool(_settings(model).get("text_pair_column"))
    if task in TASKS and task != "custom":
        is_pair = bool(benchmark_of(task).rules.is_pair)
    texts = '[{"text": "A text.", "text_pair": "Another one."}]' if is_pair else '["A text.", "Another one."]'
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
    return _block(f"""\
import re

from transformers import pipeline

pipe = pipeline("token-classification", "FOLDER"{arguments})
text = "Ann lives in Oslo."

# The tag of a word is that of its first token:
tokens = pipe(text)
for word in re.finditer(r"\\S+", text):
    print(word.group(), next(each for each in tokens if each["start"] >= word.start())["entity"])""")


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
    has_none = identity.of_checkpoint(model.state).get("task") != "squad1"
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
