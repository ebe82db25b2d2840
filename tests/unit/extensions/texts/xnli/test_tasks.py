"""XNLI's and XQuAD's official layouts: a language to train on, a test split for each."""

import pytest
import torch

from roberta_plugin.cli import main
from roberta_plugin.extensions.spans.questions import Questions
from roberta_plugin.extensions.texts.options import XNLI_LANGUAGES as LANGUAGES
from roberta_plugin.extensions.texts.xnli import XLMR, xnli_examples
from roberta_plugin.finetuning.options import XnliOptions
from tests.tiny_benchmarks import prepared_of, write_tokenizer
from tests.tiny_checkpoints import state_of
from tests.tiny_squad import question, write_json, write_raw

LABELS = ("neutral", "contradiction", "entailment")
COLUMNS = ("language", "gold_label", "sentence1_tokenized", "sentence1", "sentence2", "promptID", "pairID")


def write_xnli(folder, *, languages=LANGUAGES, train_language="en"):
    """The two official archives, unpacked side by side, with three rows a language."""
    for archive in ("XNLI-1.0", "XNLI-MT-1.0/multinli"):
        (folder / archive).mkdir(parents=True)
    rows = [f"it is good {n}\tit is bad {n}\t{('neutral', 'contradictory', 'entailment')[n % 3]}\n" for n in range(9)]
    train = folder / "XNLI-MT-1.0" / "multinli" / f"multinli.train.{train_language}.tsv"
    train.write_text("".join(["premise\thypo\tlabel\n", *rows]))
    for name in ("dev", "test"):
        rows = [
            "\t".join((language, LABELS[number], "x", f"{language} good {name}", "bad", "1", str(number)))
            for number in range(3)
            for language in languages
        ]
        (folder / "XNLI-1.0" / f"xnli.{name}.tsv").write_text("\n".join(["\t".join(COLUMNS), *rows]) + "\n")
    return folder


@pytest.mark.parametrize("language", ["en", "sw"])
def test_each_language_is_a_test_split_and_that_of_training_chooses(tmp_path, language):
    raw = write_xnli(tmp_path / "raw", train_language=language)
    found = prepared_of("XNLI", raw, tmp_path / "prepared", language=language)
    assert set(found.splits) == {"train", "valid", *(f"test_{each}" for each in LANGUAGES)}
    assert found.split("train").columns["label"].tolist() == [1, 0, 2] * 3
    assert [len(found.split(split)) for split in ("train", "valid", "test_zh")] == [9, 3, 3]
    assert found.split("test_th").columns["label"].tolist() == [1, 0, 2]
    rows = xnli_examples("valid", [raw / "XNLI-1.0" / "xnli.dev.tsv"], XnliOptions(language=language))
    assert {row.texts[0] for row in rows} == {f"{language} good dev"}
    assert found.settings["language"] == language
    assert found.content["source"]["files"] == 3, "the file of the tests is read once for the record"


def test_what_is_missing_is_named(tmp_path):
    raw = write_xnli(tmp_path / "raw", languages=LANGUAGES[:-1])
    with pytest.raises(ValueError, match=r"xnli\.test\.tsv has no rows with language zh"):
        prepared_of("XNLI", raw, tmp_path / "prepared")
    with pytest.raises(FileNotFoundError, match=r"has no multinli\.train\.fr\.tsv or XNLI-MT-1\.0/multinli/"):
        prepared_of("XNLI", raw, tmp_path / "prepared", language="fr")


def test_numbers_of_xlmr_have_the_papers_mean():
    assert {*XLMR} == {*LANGUAGES}
    assert sum(XLMR.values()) / len(XLMR) == pytest.approx(80.9, abs=0.05)  # "Avg" of its row


def test_xquad_is_tested_by_language(tmp_path):
    raw = write_raw(tmp_path / "raw", task="squad1")
    for language in ("de", "zh"):
        answers = [{"text": "gut", "answer_start": 4}]
        paragraph = {"context": "das gut ist", "qas": [question("squad1", f"q-{language}", answers)]}
        write_json(raw / f"xquad.{language}.json", [paragraph], task="squad1")
    found = prepared_of("squad1", raw, tmp_path / "prepared", question_length=8)
    assert set(found.splits) == {"train", "valid", "test_de", "test_zh"}
    assert Questions(found.split("test_zh")).ids == ["q-zh"]


def test_a_model_is_judged_in_every_language_by_the_commands(tmp_path, capsys):
    write_xnli(tmp_path / "raw")
    write_tokenizer(tmp_path / "model")
    task = {"_name": "roberta_sentence_prediction", "classification_head_name": "sentence_classification_head"}
    state = state_of(tmp_path / "model", task=task, heads={"sentence_classification_head": 3})
    torch.save(state, tmp_path / "model" / "model.pt")
    made = f"--raw {tmp_path}/raw --tokenizer {tmp_path}/model --output-dir {tmp_path}/data --max-length 40"
    assert main(["prepare", "XNLI", *made.split()]) == 0
    judged = f"--data {tmp_path}/data --checkpoint {tmp_path}/model/model.pt --output-dir {tmp_path}/out"
    assert main(["evaluate", "XNLI", *judged.split()]) == 0
    printed = capsys.readouterr().out
    assert all(f"test_{language}" in printed for language in LANGUAGES)
    assert (tmp_path / "out" / "XNLI.test_sw.tsv").read_text().count("\n") == 4
