"""Every kind of head to other formats and back, a hub's answers, and predictions of every kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.golden.entries import of_array, of_folder, of_state, of_text
from tests.golden.finetuning import HEADS, exported
from tests.golden.steps import Work, load_checkpoint

TO: dict[str, tuple[str, ...]] = {
    "huggingface": (),
    "fairseq": (),
    "fairseq of 2019, half": ("--layout", "2019", "--half"),
    "onnx": (),
}
HEADS_OF = (
    "masked_lm",
    "classification",
    "regression",
    "multi_label",
    "multiple_choice",
    "question_answering",
    "tagging",
)
TEXTS = ["good", "so it is good, or bad", "a bad good \u00e9t\u00e9 \u6771\u4eac", "bad bad bad bad bad"]
PAIRS = [{"text": "good " * (n % 7 + 1), "text_pair": "bad " * (n % 3 + 1)} for n in range(12)]
PASSAGES = [{"context": f"{'so ' * n}it is good or bad{' so' * n}", "question": "is it ?"} for n in range(12)]
RECORDS: dict[str, list[Any]] = {
    "fill_mask": [{"text": f"{text} <mask>"} for text in TEXTS],
    "classification": PAIRS,
    "single": [{"text": text} for text in TEXTS],
    "regression": PAIRS,
    "multiple_choice": [{**passage, "options": ["good", "bad", "so", "a bad one"]} for passage in PASSAGES],
    "question_answering": PASSAGES,
    "tagging": [{"text": f"{'so ' * n}good bad, good" } for n in range(12)],
    "summary": [{"text": [f"It is {word} {n}." for word in ("good", "bad", "so", "well", "bad")]} for n in range(6)],
    "pronoun": [{"text": "I saw the good dog and the bad cat. [It] ran."}, {"text": "The man saw a fox. [He] ran."}],
}  # fmt: skip


def record_heads(work: Work, kind: str) -> dict[str, Any]:
    """A model with a head of this kind in every format that has it, and read back."""
    from tests.tiny_conversions import write_checkpoint

    checkpoint = write_checkpoint(work.folder / "ours", kind) / "model.pt"
    found: dict[str, Any] = {}
    for name, options in TO.items():
        if name == "onnx" and kind not in ("masked_lm", "classification"):
            continue
        folder, to = work.folder / name.replace(" ", "-"), name.split()[0]
        try:
            work.roberta("export", checkpoint, "--to", to, *options, "--output-dir", folder)
        except AssertionError as error:
            found[name] = of_text(work.clean(_refusal(error)))
            continue
        if to == "onnx":
            found[name] = of_folder(folder, work.clean, skip=(r"\.onnx", r"README\.md$"))
            continue
        found[name] = exported(work, folder)
        back = work.folder / f"{folder.name}-back"
        work.roberta("import", folder, "--output-dir", back)
        state = load_checkpoint(back / "model.pt")
        found[f"{name}, back"] = {
            "model": of_state(state["model"], listed=HEADS),
            "files": of_folder(back, work.clean, skip=(r"\.pt$",)),
        }
    return found


def _refusal(error: AssertionError) -> str:
    lines = [line for line in str(error).splitlines() if line.startswith("roberta export:")]
    assert lines, error
    return lines[-1]


def record_hub(work: Work) -> dict[str, Any]:
    """What `RobertaHub` computes of some texts."""
    from tests.tiny_conversions import HEAD, write_checkpoint

    masked, classes = (
        write_checkpoint(work.folder / "ours"),
        write_checkpoint(work.folder / "classes", "classification"),
    )

    def compute() -> dict[str, Any]:
        import torch

        from roberta_plugin.hub import RobertaHub

        torch.manual_seed(0)
        hub, tuned = RobertaHub.from_pretrained(masked).eval(), RobertaHub.from_pretrained(classes).eval()
        ids = [hub.encode(text) for text in TEXTS]
        return {
            "ids": [each.tolist() for each in ids],
            "decoded": [hub.decode(each) for each in ids],
            "pair": hub.encode("good", "bad good").tolist(),
            "features": of_array(torch.cat([hub.extract_features(each)[0] for each in ids]).detach().numpy()),
            "features of texts": of_array(torch.cat(list(hub.extract_features(TEXTS))).numpy()),
            "embeddings": of_array(hub.embed(TEXTS).numpy()),
            "masks": of_text(json.dumps([list(map(list, hub.fill_mask(f"{text} <mask>", topk=3))) for text in TEXTS])),
            "scores": of_text(json.dumps([list(score)[:1] for score in hub.score(TEXTS)], default=float)),
            "classes": of_array(tuned.predict(HEAD, TEXTS).numpy()),
            "pairs": of_array(tuned.predict(HEAD, [(text, "good") for text in TEXTS]).numpy()),
        }

    found: dict[str, Any] = work.python(compute)
    return found


def record_predictions(work: Work, kind: str) -> dict[str, Any]:
    """The answers of `roberta predict`, in batches and alone, and in lower precision."""
    from tests.tiny_predictors import write_predictor

    model = write_predictor(work.folder / "model", kind)
    records, sentences = work.folder / "records.jsonl", work.folder / "sentences.jsonl"
    records.write_text("".join(json.dumps(record) + "\n" for record in RECORDS[kind]))
    sentences.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    found = {}
    variants = {"plain": (), "bf16": ("--precision", "bf16"), "small batches": ("--batch-tokens", "64")}
    if kind == "fill_mask":
        variants |= {f"score {how}": ("--score", how) for how in ("pll", "pll-word-l2r", "unmasked")}
        variants["embedding"] = ("--task-kind", "embedding", "--pooling", "mean")
    for name, options in variants.items():
        output = work.folder / "answers.jsonl"
        work.roberta(
            "predict",
            model,
            "--input",
            sentences if options[:1] == ("--score",) else records,
            "--output",
            output,
            "--no-progress",
            *options,
        )
        found[name] = of_text(work.clean(output.read_text()))
    return found


SUBJECTS: dict[str, Callable[[Work], dict[str, Any]]] = {
    **{f"head {kind}": lambda work, kind=kind: record_heads(work, kind) for kind in HEADS_OF},
    **{f"predict {kind}": lambda work, kind=kind: record_predictions(work, kind) for kind in RECORDS},
    "hub": record_hub,
}


def record(name: str, folder: Path) -> dict[str, Any]:
    """The entries of a subject."""
    return SUBJECTS[name](Work(folder))
