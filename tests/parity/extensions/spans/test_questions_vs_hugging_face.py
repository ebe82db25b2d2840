"""Answers to questions, and that there are none, against Hugging Face's two classes and tokenizer on the same export.

transformers 5 has no pipeline for questions; here the answer is computed from its models' logits by the definition in
`extensions/spans/questions.py`, written down once more.
"""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from roberta_plugin.checkpoint_files import load_state
from roberta_plugin.cli import main
from roberta_plugin.hub import RobertaHub
from roberta_plugin.prediction.predict import PredictSettings, iterate_predictions
from tests.hugging_face import import_transformers
from tests.tiny_conversions import exported, write_checkpoint

transformers = import_transformers()
LONGEST_ANSWER = 30
CONTEXTS = ["good bad so", "a bad good thing", "it was good", "bad bad", "so so so good", "x y z good bad"]
CONTEXTS.append("\u00e9t\u00e9 good")
QUESTIONS = ["who", "good", "is it bad"]
PAIRS = [(question, context) for question in QUESTIONS for context in CONTEXTS]


def write_model(folder):
    """A random model that finds an answer in half of the contexts."""
    ours = write_checkpoint(folder, "question_answering")
    hub = RobertaHub.from_pretrained(ours)
    middle = torch.stack([each.answerable for each in hub.predict("span_head", PAIRS)]).median()
    state = load_state(ours / "model.pt")
    state["model"]["span_heads.span_head.answerable.out_proj.bias"] -= middle - 0.01
    torch.save(state, ours / "model.pt")
    return ours


@torch.no_grad()
def their_answers(folder):
    """Of each pair: text and probability of the best span, and the probability of no answer."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    spans = transformers.AutoModelForQuestionAnswering.from_pretrained(folder).eval()
    answerable = transformers.AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1).eval()
    for question, context in PAIRS:
        encoded = tokenizer(question, context, return_offsets_mapping=True, return_tensors="pt")
        offsets = encoded.pop("offset_mapping")[0].tolist()
        positions = [place for place, part in enumerate(encoded.sequence_ids(0)) if part == 1]
        found = spans(**encoded)
        start, end = (logits[0, positions].softmax(dim=0) for logits in (found.start_logits, found.end_logits))
        blanks = [not context[slice(*offsets[place])].strip() for place in positions]
        start *= ~torch.tensor(blanks)  # no answer is blank
        is_span = torch.ones(len(positions), len(positions)).triu().tril(LONGEST_ANSWER - 1)
        best = int((start[:, None] * end[None] * is_span).argmax())
        first, last = divmod(best, len(positions))
        probability = torch.sigmoid(answerable(**encoded).logits[0, 0])
        text = context[offsets[positions[first]][0] : offsets[positions[last]][1]]
        yield text.strip(), float(start[first] * end[last] * probability), float(1 - probability)


def test_questions_with_and_without_answers_have_hugging_faces_answers(tmp_path):
    ours = write_model(tmp_path / "ours")
    folder = exported(ours, tmp_path / "theirs").folder
    lines = [json.dumps({"question": question, "context": context}) for question, context in PAIRS]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    expected = list(their_answers(folder))
    without = [null > 0.5 for *_, null in expected]
    assert 3 < sum(without) < len(PAIRS) - 3
    for model in (ours, folder):
        words = ["--input", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / "out.jsonl"), "--device", "cpu"]
        assert main(["predict", str(model), *words, "--no-progress"]) == 0
        found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
        every = zip(PAIRS, found, expected, without, strict=True)
        for (_, context), answer, (text, probability, null), has_none in every:
            best = answer["candidates"][0]
            assert best["text"] == text
            assert best["probability"] == pytest.approx(probability, abs=2e-5)
            assert context[best["start"] : best["end"]] == text
            assert answer["no_answer_probability"] == pytest.approx(null, abs=2e-5)
            assert answer["answer"] == ("" if has_none else text)
            assert answer["probability"] == pytest.approx(null if has_none else probability, abs=2e-5)


def test_a_model_of_hugging_faces_own_answers_every_question(tmp_path):
    """Its class does not know whether there is an answer."""
    ours = write_model(tmp_path / "ours")
    folder = exported(ours, tmp_path / "theirs").folder
    best = [text for text, *_ in their_answers(folder)]
    weights = load_file(folder / "model.safetensors")
    span = {name: value for name, value in weights.items() if not name.startswith("classifier.")}
    assert len(span) == len(weights) - 4
    save_file(span, folder / "model.safetensors", metadata={"format": "pt"})
    questions = [{"question": question, "context": context} for question, context in PAIRS]
    found = list(iterate_predictions(PredictSettings(model=folder, device="cpu"), questions))
    assert [answer["answer"] for answer in found] == best
    assert not any("no_answer_probability" in answer for answer in found)
