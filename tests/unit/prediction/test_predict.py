"""Predictions of every kind: what the model says of each record, in order, whatever the windows and batches."""

import bz2
import gzip
import io
import json
import logging
import lzma
import os
import pty
import select
import shutil
import sys
import threading
from types import SimpleNamespace

import fsspec
import numpy as np
import pytest
import torch
from backports import zstd
from fsspec.implementations.memory import MemoryFileSystem

from roberta_plugin.checkpoint_files import load_state
from roberta_plugin.cli import main
from roberta_plugin.extensions.spans.kind import QuestionAnswering
from roberta_plugin.extensions.spans.questions import decode
from roberta_plugin.finetuning.examples_dataset import ExamplesDataset
from roberta_plugin.finetuning.identity import KEY
from roberta_plugin.finetuning.kinds import KINDS, kind_class, task_kinds
from roberta_plugin.finetuning.options import CustomOptions
from roberta_plugin.hub import RobertaHub
from roberta_plugin.prediction import predict as predicting
from roberta_plugin.prediction.predict import PredictSettings, iterate_predictions, kind_of_training, predict
from tests.needed_extensions import needs
from tests.tiny_conversions import exported, write_checkpoint
from tests.tiny_predictors import CLASSES, LABELS, TRAINED, write_finetuning, write_predictor

PAIRS = [{"id": n, "text": "good " * (n % 7 + 1), "text_pair": "bad " * (n % 3 + 1)} for n in range(40)]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    root = tmp_path_factory.mktemp("predictors")
    return {name: write_predictor(root / name, name) for name in TRAINED}


def answers(model, records, **changes):
    settings = PredictSettings(model=model, device="cpu", **changes)
    return list(iterate_predictions(settings, records))


def test_the_kind_is_that_of_the_training(models):
    for name, trained in TRAINED.items():
        expected = {"fill_mask": None, "single": "classification"}.get(name, name)
        assert kind_of_training(trained) == task_kinds().get(expected)
    assert all(kind_class(name).name == name for name in KINDS)
    with pytest.raises(ValueError, match=r"'translation'; there are fill_mask"):
        kind_class("translation")


@pytest.mark.parametrize("max_length", [12, 20])
def test_a_question_of_unknown_length_is_cut_as_tables_of_your_own_are_prepared(models, max_length):
    hub = RobertaHub.from_pretrained(models["question_answering"])
    hub.trained_on = {}  # as of an imported model
    settings = PredictSettings(model=models["question_answering"], max_length=max_length)
    predicted = kind_class("question_answering").answering(hub, settings).windows.question_length
    prepared = QuestionAnswering.settings_of(CustomOptions(kind="question-answering"), max_length=max_length)
    assert predicted == prepared["question_length"] == max_length // 4


def test_labels_are_those_of_the_head_in_any_window_and_batch(models):
    hub = RobertaHub.from_pretrained(models["classification"])
    found = answers(models["classification"], PAIRS)
    assert [answer["id"] for answer in found] == list(range(40))
    pairs = [(record["text"], record["text_pair"]) for record in PAIRS]  # with a space at the end
    expected = hub.predict(CLASSES, pairs).exp()
    assert [answer["label"] for answer in found] == [LABELS[row] for row in expected.argmax(dim=1).tolist()]
    probabilities = [list(answer["probabilities"].values()) for answer in found]
    torch.testing.assert_close(torch.tensor(probabilities), expected, atol=2e-5, rtol=0)
    assert len({answer["probability"] for answer in found}) > 10
    again = answers(models["classification"], PAIRS, window=7, batch_tokens=25)
    for one, other in zip(again, found, strict=True):
        assert (one["label"], one["probability"]) == (other["label"], pytest.approx(other["probability"], abs=1e-4))


def test_texts_are_cut_as_in_training_and_say_so(models):
    cut, whole = answers(models["classification"], [{"text": "x" * 90, "text_pair": "good"}, PAIRS[0]])
    assert cut["truncated"] is True
    assert "truncated" not in whole
    hub = RobertaHub.from_pretrained(models["classification"])
    sequence = hub.codec.encoder.join(*hub.codec.encoder.ids_of_all(["x" * 90, "good"]), max_length=30)
    expected = hub.predict(CLASSES, torch.from_numpy(sequence).long()).exp()[0]
    assert list(cut["probabilities"].values()) == pytest.approx(expected.tolist(), abs=1e-4)


ODD = [" good", "bad\n", "\u3000good bad\u00a0", "good <mask> bad", " <mask>", "good\n\nbad"]


def test_the_hub_reads_odd_texts_as_predict_does(models):
    single, plain = RobertaHub.from_pretrained(models["single"]), RobertaHub.from_pretrained(models["fill_mask"])
    found = [list(answer["probabilities"].values()) for answer in answers(models["single"], ODD)]
    torch.testing.assert_close(single.predict(CLASSES, ODD).exp(), torch.tensor(found), atol=1e-5, rtol=0)
    found = [answer["embedding"] for answer in answers(models["fill_mask"], ODD, task_kind="embedding")]
    torch.testing.assert_close(plain.embed(ODD), torch.tensor(found), atol=1e-5, rtol=0)
    without_masks = [text for text in ODD if "<mask>" not in text]
    found = [answer["score"] for answer in answers(models["fill_mask"], without_masks, score="pll")]
    assert [each.score for each in plain.score(without_masks)] == pytest.approx(found, abs=1e-4)


def test_columns_of_the_task_are_fields_too(models):
    named = [{"sentence1": record["text"], "sentence2": record["text_pair"]} for record in PAIRS[:5]]
    found, expected = answers(models["classification"], named), answers(models["classification"], PAIRS[:5])
    assert [answer["probabilities"] for answer in found] == [answer["probabilities"] for answer in expected]
    single = answers(models["single"], [{"sentence": "good"}, "good"])
    assert single[0] == single[1]


@pytest.mark.parametrize("shift", [-0.1, 4.9])  # of numbers from 0.04 to 0.17
def test_numbers_are_clipped_to_the_tasks_limits(models, tmp_path, shift):
    folder = shutil.copytree(models["regression"], tmp_path / "model")
    state = torch.load(folder / "model.pt", weights_only=False)
    state["model"][f"classification_heads.{CLASSES}.out_proj.bias"] += shift
    torch.save(state, folder / "model.pt")
    found = [answer["score"] for answer in answers(folder, PAIRS)]
    pairs = [(record["text"].strip(), record["text_pair"].strip()) for record in PAIRS]
    logits = RobertaHub.from_pretrained(folder).predict(CLASSES, pairs, return_logits=True)[:, 0]
    assert found == pytest.approx(logits.clamp(0, 5).tolist(), abs=1e-4)
    assert 0 < logits.eq(logits.clamp(0, 5)).sum() < len(logits)


def test_masks_have_the_answers_of_the_hub(models):
    hub = RobertaHub.from_pretrained(models["fill_mask"])
    texts = ["good <mask> bad", "<mask> good <mask>", "bad bad <mask>"]
    found = answers(models["fill_mask"], texts, top_k=3)
    assert [len(answer["masks"]) for answer in found] == [1, 2, 1]
    for text, answer in zip(texts, found, strict=True):
        expected = hub.fill_mask(text, topk=3)
        expected = [expected] if text.count("<mask>") == 1 else expected
        for best, wanted in zip(answer["masks"], expected, strict=True):
            assert [each["text"] for each in best] == [filling.text for filling in wanted]
            assert [each["probability"] for each in best] == pytest.approx([w.probability for w in wanted], abs=1e-5)


@pytest.mark.parametrize("method", ["pll", "pll-word-l2r", "unmasked"])
def test_scores_are_those_of_the_hub_and_long_texts_are_refused(models, method):
    texts = ["a good thing", "x" * 50, "bad"]
    found = answers(models["fill_mask"], texts, score=method, per_token=True, on_error="skip")
    assert "52 tokens, and 40 is the most" in found[1]["error"]
    expected = RobertaHub.from_pretrained(models["fill_mask"]).score(texts[::2], method)
    for answer, score in zip(found[::2], expected, strict=True):
        assert answer["score"] == pytest.approx(score.score, abs=1e-5) and answer["tokens"] == score.tokens
        assert answer["log_probs"] == pytest.approx(score.log_probs, abs=1e-5)
    assert answers(models["fill_mask"], texts[:1], task_kind="score")[0].keys() == {"score", "num_tokens"}


def test_the_option_with_the_highest_score_is_the_answer(models):
    hub = RobertaHub.from_pretrained(models["multiple_choice"])
    question = {"context": "a  good thing", "question": "It is _ .", "options": ["bad", "good", "good bad"]}
    (found,) = answers(models["multiple_choice"], [question])
    inputs = [("a good thing", f"It is {option} .") for option in question["options"]]
    expected = hub.predict(CLASSES, inputs, return_logits=True)[:, 0].softmax(dim=0)
    assert found["probabilities"] == pytest.approx(expected.tolist(), abs=1e-5)
    assert found["answer"] == int(expected.argmax())
    assert found["option"] == question["options"][found["answer"]]
    in_columns = {f"option{number}": option for number, option in enumerate(question["options"], start=1)}
    del question["options"]
    assert answers(models["multiple_choice"], [question | in_columns])[0] == found


def evaluated(hub, name, split, *, head):
    """The outputs of the evaluation's code."""
    from roberta_plugin.experiments.inference import run_model

    def outputs(model, batch):
        return model(batch["net_input"]["src_tokens"], head=head)[0]

    kind = {"training": SimpleNamespace(inputs_class=ExamplesDataset), "kind": kind_class(name)}
    return run_model(hub.model, SimpleNamespace(vocabulary=hub.vocabulary, outputs=outputs, **kind), split)


def test_answers_in_long_contexts_are_those_of_the_evaluation(models, tmp_path):
    """The same questions through prepared windows and the evaluation's code."""
    from roberta_plugin.extensions.spans.questions import Questions
    from tests.tiny_squad import write_prepared

    prepared = write_prepared(tmp_path, task="squad2")
    split = prepared.split("valid")
    questions = Questions(split)
    hub = RobertaHub.from_pretrained(models["question_answering"])

    expected = decode(questions, [evaluated(hub, "question_answering", split, head="span_head")], n_best=3)
    passages = [record["text"] for record in split.records() if "question" not in record]
    asked = [
        {"id": record["id"], "question": record["text"], "context": passages[record["passage"]]}
        for record in split.records()
        if "question" in record
    ]
    assert max(len(windows) for windows in questions.windows_of) > 1
    found = answers(models["question_answering"], asked, top_k=3, null_threshold=1.0)
    assert [answer["id"] for answer in found] == questions.ids
    for answer, wanted, record in zip(found, expected, asked, strict=True):
        assert [each["text"] for each in answer["candidates"]] == [each.text for each in wanted.candidates]
        assert answer["no_answer_probability"] == pytest.approx(wanted.null_probability, abs=1e-5)
        assert record["context"][answer["start"] : answer["end"]] == answer["answer"]
    unanswered = answers(models["question_answering"], asked, null_threshold=0.0)
    assert {answer["answer"] for answer in unanswered} == {""}


def test_tags_of_long_texts_are_those_of_the_evaluation(models, tmp_path):
    """The same words through prepared windows and the evaluation's code."""
    from roberta_plugin.finetuning.benchmarks import benchmark_of
    from roberta_plugin.finetuning.options import TaggingOptions
    from tests.tiny_tagging import write_prepared

    prepared = write_prepared(tmp_path)
    split = prepared.split("valid")
    hub = RobertaHub.from_pretrained(models["tagging"])

    outputs = evaluated(hub, "tagging", split, head="token_head")
    records = list(split.records())
    assert len(split) > len(records), "no text was cut"
    for is_valid in (False, True):
        options = TaggingOptions(valid_sequences=is_valid)
        benchmark_of("tagging").score(prepared, "valid", [outputs], folder=tmp_path, options=options)
        lines = (tmp_path / "valid.predictions.conll").read_text().split("\n\n")[:-1]
        found = answers(models["tagging"], records, valid_sequences=is_valid)
        expected = [[line.split(" ")[2] for line in block.split("\n")] for block in lines]
        assert [answer["tags"] for answer in found] == expected
        assert [answer["words"] for answer in found] == [record["words"] for record in records]
        for answer in found:
            assert answer["entities"] or set(answer["tags"]) == {"O"}
            for entity in answer["entities"]:
                text = " ".join(answer["words"])
                assert text[entity["start"] : entity["end"]] == entity["text"]
                assert entity["text"] == " ".join(answer["words"][entity["first_word"] : entity["last_word"] + 1])


def test_columns_of_tagged_words_are_read_as_in_training_whatever_is_beside_the_words(models, tmp_path):
    path, output = tmp_path / "new.conll", tmp_path / "answers.jsonl"
    words = [["good", "K\u00f6ln"], ["bad"]]
    for line in ("{} B-LOC", "{} NN B-LOC", "{}"):
        path.write_text("\n\n".join("\n".join(map(line.format, text)) for text in words) + "\n")
        predict(PredictSettings(model=models["tagging"], device="cpu", input=path, output=output))
        found = [json.loads(answer) for answer in output.read_text().splitlines()]
        assert [answer["words"] for answer in found] == words
        assert [each["tags"] for each in found] == [
            each["tags"] for each in answers(models["tagging"], [{"words": text} for text in words])
        ]


def test_entities_of_a_text_are_where_its_words_are(models):
    text = "good,  bad\r\n (good) don't xyz\u200b."
    (found,) = answers(models["tagging"], [text])
    assert found["words"] == ["good", ",", "bad", "(", "good", ")", "don't", "xyz\u200b", "."]
    same = answers(models["tagging"], [{"tokens": found["words"]}])[0]
    assert found["tags"] == same["tags"]
    assert found["entities"]
    for entity, other in zip(found["entities"], same["entities"], strict=True):
        assert text[entity["start"] : entity["end"]] == entity["text"]
        assert all(entity[name] == other[name] for name in ("type", "first_word", "score"))


def test_pronouns_have_the_answers_of_the_hub(models):
    hub = RobertaHub.from_pretrained(models["pronoun"])
    record = {"text": "The dog, and [it] was bad.", "candidates": ["a dog", "a hen"]}
    (found,) = answers(models["pronoun"], [record])
    assert found["answer"] == hub.disambiguate_pronoun(record["text"], record["candidates"])
    assert list(found["scores"]) == record["candidates"]


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_embeddings_are_those_of_the_hub(models, tmp_path, pooling):
    texts = ["good", "bad " * 5, "good bad"]
    (tmp_path / "in.txt").write_text("\n".join(texts) + "\n")
    settings = {"task_kind": "embedding", "pooling": pooling, "input": tmp_path / "in.txt", "device": "cpu"}
    result = predict(PredictSettings(model=models["single"], output=tmp_path / "out.jsonl", **settings))
    assert (result.num_answers, result.num_errors) == (3, 0)
    expected = RobertaHub.from_pretrained(models["single"]).embed([text.strip() for text in texts], pooling)
    found = [json.loads(line)["embedding"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)


def retold(model, folder, **data):
    """A copy of the model whose checkpoint says something else of its data; a value of None is left out."""
    shutil.copytree(model, folder)
    state = torch.load(folder / "model.pt", weights_only=False)
    data = {**state.get("task_state", {}).get("data", {}), **data}
    state["task_state"] = {"data": {name: value for name, value in data.items() if value is not None}}
    torch.save(state, folder / "model.pt")
    return folder


def test_a_model_of_vectors_gives_one_to_a_text_and_a_cosine_to_two(models, tmp_path):
    settings = {"kind": "embedding", "embedding_loss": "simcse", "pooling": "max", "normalize": True, "max_length": 6}
    settings |= {"text_column": "said", "text_pair_column": None, "label_column": []}
    folder = retold(models["fill_mask"], tmp_path / "vectors", task="custom", settings=settings)
    records = [{"text": "good"}, {"said": "good", "text_pair": "bad"}, {"text": "bad"}, {"text": "bad " * 9}]
    good, both, bad, cut = answers(folder, records)
    vectors = [np.array(each["embedding"]) for each in (good, bad, cut)]
    np.testing.assert_allclose(vectors[:2], RobertaHub.from_pretrained(folder).embed(["good", "bad"]), atol=1e-6)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1, 1])
    assert both == {"score": pytest.approx(vectors[0] @ vectors[1], abs=2e-6)}
    assert [answer.get("truncated", False) for answer in (good, bad, cut)] == [False, False, True]
    plain = answers(folder, records[:1], pooling="first")
    assert not np.allclose(plain[0]["embedding"], vectors[0])


def test_no_special_symbol_is_an_answer_however_many_are_asked_for(models):
    hub = RobertaHub.from_pretrained(models["fill_mask"])
    (found,) = answers(models["fill_mask"], ["good <mask>"], top_k=100_000)
    assert len(found["masks"][0]) == len(hub.vocabulary) - int(hub.vocabulary.never_masked().sum())
    assert all(each["probability"] > 0 for each in found["masks"][0])


HOSTILE = {
    "fill_mask": [
        *("no mask", "", "\ud83d <mask>", "<mask> " + "x" * 90),
        *({"id": "\udc00", "text": "<mask>"}, {"txt": "<mask>"}, {"text": 5}),
    ],
    "classification": [{"text": "good"}, {"text": "good", "text_pair": ""}, {"text": None, "text_pair": "a"}],
    "single": [{"text": "good", "text_pair": "bad"}],
    "multiple_choice": [
        {"context": "a", "question": "b", "options": ["c"]},
        {"context": "a", "question": 1, "options": ["c", "d"]},
        {"question": "b", "options": ["c", "d"]},
    ],
    "question_answering": [{"question": "Who?"}, {"question": " ", "context": "a"}],
    "tagging": [{"words": "a b"}, {"words": []}, {"words": ["a", 1]}, " ", {"words": ["\ud83d"]}],
    "summary": [" ", {"txt": "a"}, {"text": 5}, {"text": []}, {"text": ["a", " "]}, {"text": ["a", 1]}, "\ud83d"],
    "pronoun": ["no pronoun", {"text": "[it] is", "candidates": "a dog"}],
}
GOOD = {
    "fill_mask": "good <mask>",
    "classification": {"text": "good", "text_pair": "bad"},
    "single": "good",
    "multiple_choice": {"context": "a", "question": "", "options": ["c", "d"]},
    "question_answering": {"question": "Who?", "context": "good \U0001f642 \u6771\u4eac\r\nbad"},
    "tagging": {"words": ["", "good \U0001f642", "\u6771\u4eac"] * 20},
    "summary": {"text": ["good \U0001f642", "\u6771\u4eac", "bad. So"]},
    "pronoun": {"text": "A dog, and [it] is bad.", "candidates": ["a dog"]},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_bad_records_are_explained_and_the_others_answered(models, name):
    records = [GOOD[name], *HOSTILE[name], GOOD[name]]
    found = answers(models[name], records, on_error="skip")
    assert [answer.get("line") for answer in found] == [None, *range(2, len(HOSTILE[name]) + 2), None]
    for answer in found[1:-1]:
        assert answer["error"].endswith(".") and answer["error"].count(".") >= 2, answer  # what, and the remedy
    assert found[0] == found[-1]
    with pytest.raises(ValueError, match=r"line 2: .*Or give --on-error skip\."):
        answers(models[name], records)


def test_a_stop_keeps_what_was_answered(models, tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text('{"id": 1, "text": "good <mask>"}\n{"text": "no mask"}\n')
    settings = {"model": models["fill_mask"], "input": path, "output": tmp_path / "out.jsonl", "device": "cpu"}
    said = r"in\.jsonl, line 2: the text 'no mask' has no <mask>.*out\.jsonl\.partial, as JSON Lines\.$"
    with pytest.raises(ValueError, match=said):
        predict(PredictSettings(**settings))
    assert not (tmp_path / "out.jsonl").exists()
    assert json.loads((tmp_path / "out.jsonl.partial").read_text())["id"] == 1
    result = predict(PredictSettings(**settings, on_error="skip"))
    assert (result.num_answers, result.num_errors) == (2, 1)
    assert [json.loads(line).get("line") for line in (tmp_path / "out.jsonl").read_text().splitlines()] == [None, 2]


@pytest.fixture
def stdin(monkeypatch):
    """Give a text on standard input."""
    return lambda text: monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_standard_input_is_answered_on_standard_output(models, stdin, capfdbinary):
    stdin("good\r\nbad\n")
    predict(PredictSettings(model=models["single"], device="cpu"))
    found = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    expected = answers(models["single"], ["good", "bad"])
    assert found == [{"line": number, **answer} for number, answer in enumerate(expected, start=1)]


@pytest.mark.parametrize("source", ["pipe", "terminal", "fifo"])
def test_what_a_pipe_has_written_is_answered_before_more_comes(models, tmp_path, monkeypatch, source):
    write_to, read_from = (None, None)
    path = None
    if source == "fifo":
        path = tmp_path / "records"
        os.mkfifo(path)
    else:
        read_from, write_to = pty.openpty()[::-1] if source == "terminal" else os.pipe()
        monkeypatch.setattr(sys, "stdin", open(read_from))  # noqa: SIM115
    answered, output = os.pipe()
    monkeypatch.setattr(sys, "stdout", open(output, "w"))  # noqa: SIM115
    seen = []

    def converse():
        file = os.open(path, os.O_WRONLY) if write_to is None else write_to
        for line in (b"good\n", b"bad\n"):
            os.write(file, line)
            seen.append(bool(select.select([answered], [], [], 60)[0]) and os.read(answered, 2**16).count(b"\n"))
        if source == "terminal":
            os.write(file, b"\x04")  # Ctrl-D
        else:
            os.close(file)

    speaker = threading.Thread(target=converse, daemon=True)
    speaker.start()
    predict(PredictSettings(model=models["single"], input=path, format="text", device="cpu"))
    speaker.join(60)
    assert seen == [1, 1]


def test_a_closed_standard_input_is_named(models, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(ValueError, match="Standard input is closed: name a file by --input"):
        predict(PredictSettings(model=models["single"], device="cpu"))


@pytest.mark.parametrize(
    ("first", "remedy"),
    [
        ("id,text,label", "--format csv, or --format text if it is one"),
        (",text", "--format csv, or"),  # pandas' index
        ('"text","id"', "--format csv, or"),
        ("id;sentence", "--format csv --delimiter ';', or"),  # SST-2's column
        ("id\ttext", "--format tsv, or"),
    ],
)
def test_a_table_is_not_read_as_texts(models, tmp_path, stdin, capsys, first, remedy):
    command = ["predict", str(models["single"]), "--device", "cpu", "--no-progress"]
    for options, code in (([], 2), (["--format", "text", "--output", str(tmp_path / "out.jsonl")], 0)):
        stdin(f"{first}\n1,good,0\n")
        assert main([*command, *options]) == code
        if code:
            error = capsys.readouterr().err
            assert "standard input, line 1: " in error and f"Give {remedy}" in error


def test_a_file_in_the_place_of_a_text_is_not_answered_by_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "new.csv").write_text("text\ngood\n")
    with pytest.raises(ValueError, match=r"new\.csv is a file, but arguments after the model are texts: give --input"):
        PredictSettings(model=tmp_path, texts=("a text", "new.csv"))
    PredictSettings(model=tmp_path, texts=("other.csv", ".", "x" * 5000))


@pytest.mark.parametrize("text", ["text", "a text, and good", "text, good", "good text", "id,sentiment"])
def test_texts_that_mention_a_column_are_no_table(models, stdin, text):
    stdin(text)
    assert len(answers(models["single"], None)) == 1


@pytest.mark.parametrize("name", ["classification", "question_answering", "multiple_choice", "tagging"])
def test_columns_and_ids_may_have_any_names(models, tmp_path, name):
    """Those of another model's training, too, which here are unknown; an answer without an id names its line."""
    first, *second = kind_class(name).fields
    usual = {first: "good bad", **({second[0]: "bad good"} if second else {}), "options": ["good", "bad"]}
    (expected,) = answers(models[name], [usual])
    renamed = {"said": usual[first], "also": "bad good", "who": "w1", "options": ["good", "bad"]}
    (tmp_path / "in.jsonl").write_text(json.dumps(renamed) + "\n")
    options = {"text_column": "said", **({"text_pair_column": "also"} if second else {})}
    settings = {"model": models[name], "input": tmp_path / "in.jsonl", "device": "cpu", **options}
    for own, identity in (({"id_column": "who"}, {"id": "w1"}), ({}, {"line": 1})):
        assert list(iterate_predictions(PredictSettings(**settings, **own))) == [{**identity, **expected}]
    with pytest.raises(ValueError, match=r"line 1: .*no column 'whom'; there are said, .*--id-column"):
        list(iterate_predictions(PredictSettings(**settings, id_column="whom")))


def test_a_bad_value_is_named_by_its_own_column(models, tmp_path, capsys):
    (tmp_path / "in.csv").write_text('review,more\ngood,bad\n"",good\n')
    command = ["predict", str(models["classification"]), "--input", str(tmp_path / "in.csv"), "--text-column", "review"]
    assert main([*command, "--text-pair-column", "more", "--output", str(tmp_path / "out.jsonl")]) == 2
    shown = capsys.readouterr().err
    assert "in.csv, line 3: the column 'review' is empty" in shown and "'text'" not in shown


def test_windows_hold_a_limited_number_of_records_and_characters(models, monkeypatch):
    kind = kind_class("classification")
    sizes = []
    answer = kind.answer
    monkeypatch.setattr(kind, "answer", lambda self, texts: sizes.append(len(texts)) or answer(self, texts))
    answers(models["single"], ["good"] * 25, window=10)
    assert sizes == [10, 10, 5]
    sizes.clear()
    monkeypatch.setattr(predicting, "MOST_CHARACTERS", 20)
    answers(models["single"], ["good good good"] * 4)
    assert sizes == [2, 2]


def test_records_are_read_no_further_than_a_window_ahead(models):
    taken = []

    def endless():
        while True:
            taken.append(1)
            yield "good"

    found = iterate_predictions(PredictSettings(model=models["single"], device="cpu", window=8), endless())
    assert next(found)["label"] in "01"
    assert len(taken) == 8


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("fill_mask", {"task_kind": "classification"}, "has no head for classification: fine-tune it first"),
        ("single", {"head": "mnli"}, "--head mnli: the model has sentence_classification_head for classification"),
        ("single", {"task_kind": "question_answering"}, "has no head for question_answering"),
        ("single", {"task_kind": "regression"}, "has 2 outputs, one for each class"),
        ("single", {"max_length": 99}, "--max-length 99: the model has 40 positions"),
        ("single", {"device": "cuda:77"}, "--device cuda:77 cannot be used here"),
    ],
)
def test_what_a_model_cannot_do_is_said(models, name, changes, message):
    with pytest.raises(ValueError, match=message):
        list(iterate_predictions(PredictSettings(**{"model": models[name], "device": "cpu", **changes}), ["good"]))
    with pytest.raises(FileNotFoundError, match=r"--input .*none\.txt does not exist"):
        predict(PredictSettings(model=models[name], input=models[name] / "none.txt"))


def test_the_threshold_for_no_answer_is_the_one_of_the_development_set_or_the_given_one(models, tmp_path):
    """As the output folder of `roberta finetune` has it, under the names of SQuAD 2.0 and of own data."""
    asked = [{"question": "good ?", "context": "a good bad thing"}]
    (undecided,) = answers(models["question_answering"], asked)
    null = undecided["no_answer_probability"]
    for name, shift in (("null_threshold", 0.01), ("threshold", -0.01)):
        folder = write_finetuning(tmp_path / name, models["question_answering"], {name: null + shift})
        (found,) = answers(folder, asked)
        assert bool(found["answer"]) is (shift > 0)
        assert found["null_threshold"] == pytest.approx(null + shift, abs=1e-6)
        assert bool(answers(folder, asked, null_threshold=1.0)[0]["answer"]) is True
    assert "null_threshold" not in undecided
    member = json.loads((folder / "results" / "evaluation_valid.json").read_text())["members"][1]
    (folder / "results" / "evaluation_valid.json").write_text("")
    with pytest.raises(ValueError, match=r"evaluation_valid\.json is empty: evaluate again"):
        answers(folder, asked)
    for damage in (3, {}, *({**member, "metrics": {"threshold": value}} for value in ("high", 7.0))):
        (folder / "results" / "evaluation_valid.json").write_text(json.dumps({"members": [damage]}))
        with pytest.raises(ValueError, match=r"evaluation_valid\.json is not an evaluation of .*: evaluate again"):
            answers(folder, asked)
    # as `fairseq-train --save-dir` and `roberta evaluate --output-dir SAVE_DIR/results` do
    beside = shutil.copytree(models["question_answering"], tmp_path / "beside")
    (beside / "results").mkdir()
    member = {"checkpoint": "runs/squad2/model.pt", "metrics": {"null_threshold": null + 0.01}}
    (beside / "results" / "evaluation_valid.json").write_text(json.dumps({"members": [member]}))
    assert answers(beside, asked)[0]["null_threshold"] == pytest.approx(null + 0.01, abs=1e-6)


def test_a_label_is_given_at_the_threshold_and_temperature_of_the_run_that_answers(models, tmp_path):
    (plain,) = answers(models["single"], ["good"])
    names, shares = zip(*plain["probabilities"].items(), strict=True)
    assert len(names) == 2
    folder = write_finetuning(tmp_path / "tuned", models["single"], {"temperature": 0.1, "threshold": 0.99})
    powers = [share**10 for share in shares]  # divided by 0.1
    (tuned,) = answers(folder, ["good"])
    assert list(tuned["probabilities"].values()) == pytest.approx([each / sum(powers) for each in powers], abs=1e-5)
    assert tuned["label"] == names[powers[1] / sum(powers) >= 0.99]
    assert tuned["threshold"] == 0.99
    assert "threshold" not in plain
    assert answers(folder / "runs" / "lr-1" / "seed-2", ["good"], data=folder / "data") == [tuned]
    for limit, label in ((0.0, names[1]), (1.0, names[0])):
        (given,) = answers(folder, ["good"], threshold=limit, temperature=1.0)
        assert given == {**plain, "label": label, "probability": plain["probabilities"][label], "threshold": limit}


@pytest.mark.parametrize(
    ("name", "option", "message"),
    [
        ("regression", {"threshold": 0.4}, "--threshold goes with classification and multi_label, and this is regr"),
        ("regression", {"null_threshold": 0.4}, "--null-threshold goes with question_answering"),
        ("classification", {"threshold": 0.4}, "--threshold goes with two labels, and there are 3: "),
        ("fill_mask", {"num_sentences": 2}, "--num-sentences goes with summary, and this is fill_mask"),
        ("single", {"no_trigram_blocking": True}, "--no-trigram-blocking goes with summary"),
        ("fill_mask", {"valid_sequences": True}, "--valid-sequences goes with tagging"),
        ("fill_mask", {"head": "x"}, "--head goes with kinds that are fine-tuned"),
        ("fill_mask", {"score": "pll", "task_kind": "embedding"}, "--score goes with score, and this is embedding"),
        ("classification", {"pooling": "max"}, "--pooling goes with embedding, and this is classification"),
        ("fill_mask", {"normalize": True}, "--normalize goes with embedding, and this is fill_mask"),
        ("regression", {"top_k": 3}, "--top-k goes with fill_mask and question_answering, and this is regression"),
        ("tagging", {"text_pair_column": "also"}, "--text-pair-column goes with models of two texts"),
    ],
)
def test_options_of_other_kinds_are_refused(models, name, option, message):
    with pytest.raises(ValueError, match=message):
        answers(models[name], PAIRS[:1], **option)


TABLE = [{"text": "good bad", "text_pair": "bad, good"}, {"text": "good", "text_pair": "bad bad"}]
AS_JSON = "".join(json.dumps(row) + "\n" for row in TABLE).encode()
AS_CSV = b'text,text_pair\ngood bad,"bad, good"\ngood,bad bad\n'
AS_TSV = b"text\ttext_pair\ngood bad\tbad, good\ngood\tbad bad\n"


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("t.csv", AS_CSV, []),
        ("t.csv", AS_TSV.replace(b"\t", b";"), ["--delimiter", ";"]),
        ("t.csv.gz", gzip.compress(AS_CSV), []),
        ("t.tsv.xz", lzma.compress(AS_TSV), []),
        ("t.json", AS_JSON, []),
        ("t.jsonl.bz2", bz2.compress(AS_JSON), []),
        ("t.ndjson.zst", zstd.compress(AS_JSON), []),
        ("t.txt", AS_CSV, ["--format", "csv"]),
        ("t.parquet", None, []),
        ("memory://predict/t.csv", AS_CSV, []),
    ],
)
def test_the_command_reads_whatever_a_training_reads(models, tmp_path, monkeypatch, name, content, options):
    path, output, first_line = tmp_path / name, tmp_path / "out.jsonl", 2 if options or "sv" in name else 1
    if "://" in name:
        path = name
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setattr(MemoryFileSystem, "store", {})
        fsspec.filesystem("memory").pipe(name, content)
    elif content is None:
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(TABLE), path)
    else:
        path.write_bytes(content)
    words = ["predict", str(models["classification"]), "--input", str(path), "--output", str(output), *options]
    assert main([*words, "--device", "cpu", "--no-progress"]) == 0
    found = [json.loads(line) for line in output.read_text().splitlines()]
    expected = answers(models["classification"], TABLE)
    assert found == [{"line": number, **answer} for number, answer in enumerate(expected, start=first_line)]


def test_the_column_of_training_goes_before_another_that_is_called_text(models, tmp_path):
    settings = {**TRAINED["tagging"]["settings"], "text_column": "w"}
    model = retold(models["tagging"], tmp_path / "words", task="custom", settings=settings)
    found = answers(model, [{"w": ["a", "good"]}, {"words": ["a", "good"]}])
    assert found[0] == found[1] and found[0]["words"] == ["a", "good"]
    settings = {**TRAINED["single"]["settings"], "text_column": "title", "text_pair_column": None}
    model = retold(models["single"], tmp_path / "titles", task="custom", settings=settings)
    row, expected = {"text": "bad", "title": "good"}, [answers(model, [text])[0] for text in ("good", "bad")]
    assert [answers(model, [row])[0], answers(model, [row], text_column="text")[0]] == expected


def test_summaries_of_long_texts_are_those_of_the_evaluation(models, tmp_path):
    """The same documents through prepared windows and the evaluation's code."""
    from roberta_plugin.extensions.summaries.dataset import DocumentsDataset
    from roberta_plugin.extensions.summaries.documents import Length, choose
    from tests.tiny_summaries import write_prepared

    split = write_prepared(tmp_path, max_length=38).split("valid")
    dataset = DocumentsDataset(split, pad_id=1, vocab_size=1000, seed=1)
    hub = RobertaHub.from_pretrained(models["summary"])
    assert hub.model.heads["summary_head"].layers, "its layers are found in the checkpoint"
    records = list(split.records())
    found = answers(models["summary"], [{"id": record["id"], "text": record["sentences"]} for record in records])
    for number, (record, answer) in enumerate(zip(records, found, strict=True)):
        batch = dataset.__getitems__([(1, number)])
        with torch.inference_mode():
            logits = hub.model(**batch["net_input"], head="summary_head", predicted=batch["sentences"])[0]
        expected = logits.double().sigmoid().numpy()
        chosen = choose(expected, record["sentences"], Length())
        assert [each["sentence"] for each in answer["sentences"]] == chosen
        assert [each["probability"] for each in answer["sentences"]] == pytest.approx(expected[chosen], abs=1e-5)
        assert answer["summary"] == " ".join(record["sentences"][each] for each in chosen)
        assert answer["id"] == record["id"] and answer["num_sentences"] == len(record["sentences"])


def test_a_text_is_summed_up_in_its_own_sentences(models):
    text = "It was good. He said so.\n\nThen it was bad. Nobody said so."
    (found,) = answers(models["summary"], [text], num_sentences=2)
    assert found["num_sentences"] == 4
    assert len(found["sentences"]) == 2 and all(each["text"] in text for each in found["sentences"])
    (whole,) = answers(models["summary"], [text], length_share=1.0, no_trigram_blocking=True)
    assert whole["summary"] == " ".join(text.split())
    (cut,) = answers(models["summary"], ["x" * 90])
    assert cut["truncated"] is True
    with pytest.raises(ValueError, match="sentence 2 of the column 'text' is empty"):
        answers(models["summary"], [{"text": ["a", " "]}])


def test_a_second_text_of_another_name_is_named(models, tmp_path, caplog):
    record = {"text": "good", "pair": "bad", "label": "x", "id": "a"}
    with pytest.raises(ValueError, match=r"\(there are text, pair, label, id\).* --text-pair-column"):
        answers(models["classification"], [record])
    # as of a model by Hugging Face, which may have learned from pairs
    model = retold(models["classification"], tmp_path / "imported", task=None)
    answers(model, [record, record])
    assert [said.message for said in caplog.records if said.levelname == "WARNING"] == [
        "'pair' of the records is not read, and the model does not say whether it was fine-tuned on pairs of texts: "
        "if it was, name the column of the second by --text-pair-column"
    ]
    caplog.clear()
    answers(model, [record], text_pair_column="pair")
    answers(model, ["good", {"text": "good", "id": "a", "label": "x", "stars": "3.5", "note": " "}])  # as of CSV
    assert not caplog.records


LONG = ["good bad good so it is, or not at all, is it", "bad", "it is so good"]


@pytest.mark.parametrize(
    ("kind", "settings", "to"),
    [
        ("classification", {}, ""),
        ("classification", {"long_texts": "tail"}, ""),
        ("regression", {}, "huggingface"),
        pytest.param("regression", {}, "onnx", marks=needs("onnx")),
        ("embedding", {"pooling": "first", "normalize": True}, ""),
        pytest.param(
            *("embedding", {"pooling": "max", "normalize": False}, "sentence-transformers"),
            marks=needs("sentence_transformers"),
        ),
    ],
)
def test_texts_and_pairs_are_cut_to_the_length_of_the_training_as_by_roberta_predict(
    tmp_path, caplog, kind, settings, to
):
    model = write_checkpoint(tmp_path / "model", "masked_lm" if kind == "embedding" else kind, max_positions=40)
    state = load_state(model / "model.pt")
    trained = state.setdefault("task_state", {}).setdefault(KEY, {"settings": {}})["settings"]
    trained.update(settings, max_length=12, kind=kind)
    torch.save(state, model / "model.pt")
    if to:
        if to == "onnx":
            pytest.importorskip("onnxruntime")
            pytest.importorskip("onnxscript")
        model = exported(model, tmp_path / "exported", to).folder
    hub = RobertaHub.from_pretrained(model)
    texts = [*LONG, *([first, second] for first, second in zip(LONG, LONG[1:] + LONG[:1], strict=True))]
    records = [
        {"text": text} if isinstance(text, str) else dict(zip(("text", "text_pair"), text, strict=True))
        for text in texts
    ]
    wanted = answers(model, records, task_kind=kind)
    num_cut = sum("truncated" in answer for answer in wanted)
    assert 1 < num_cut < 6
    with caplog.at_level(logging.WARNING):
        if kind == "embedding":
            found = hub.embed(texts).tolist()
            expected = [answer["embedding"] for answer in wanted]
        else:
            (head,) = hub.heads
            logits = hub.predict(head, texts, return_logits=True)
            found = (logits.softmax(dim=-1) if kind == "classification" else logits).tolist()
            names = {"classification": lambda answer: list(answer["probabilities"].values())}
            expected = [names.get(kind, lambda answer: [answer["score"]])(answer) for answer in wanted]
    np.testing.assert_allclose(found, expected, atol=2e-6)
    assert f"{num_cut} of 6 texts were cut to 12 tokens." in caplog.text
