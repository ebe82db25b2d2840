"""Tagging as a benchmark: the recipe, scores of one model and of several, prediction files."""

import numpy as np
import pytest

from roberta_plugin.experiments.evaluation import EvaluateSettings
from roberta_plugin.experiments.evaluation import evaluate as evaluate_splits
from roberta_plugin.experiments.evaluation_report import write_report
from roberta_plugin.finetuning.benchmarks import benchmark_of
from roberta_plugin.finetuning.benchmarks.tagging import shown
from roberta_plugin.finetuning.kinds.entities import Sentences, TagCounts, best_valid, invalid_places
from roberta_plugin.finetuning.kinds.outputs import RawOutputs, write_outputs
from roberta_plugin.finetuning.options import TaggingOptions
from tests.tiny_tagging import write_columns, write_prepared, write_raw


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tagging")
    raw = write_raw(folder / "raw")
    (raw / "test.txt").write_text("good\n\nbad\nxyz\n")
    return write_prepared(folder, raw=raw)


def outputs(prepared, split="valid", *, seed=0, right=0.0):
    """Random logits of all tokens; `right` is added to those of the right tags."""
    part, rng = prepared.split(split), np.random.default_rng(seed)
    labels = np.asarray(part.array("token_labels"))
    logits = rng.normal(size=(len(labels), len(prepared.settings["labels"])), scale=2).astype(np.float32)
    logits[np.flatnonzero(labels >= 0), labels[labels >= 0]] += right
    return RawOutputs(token_logits=np.split(logits, np.cumsum(part.sequences.sizes)[:-1]))


def score(prepared, split, *members, folder=None, **options):
    return benchmark_of("tagging").score(prepared, split, members, folder=folder, options=TaggingOptions(**options))


def columns(path):
    blocks = path.read_text().split("\n\n")
    assert blocks.pop() == ""
    return [[line.split(" ") for line in block.split("\n")] for block in blocks]


def test_right_logits_score_100_and_random_ones_do_not(prepared, tmp_path):
    perfect = score(prepared, "valid", outputs(prepared, right=50.0))
    assert {perfect[name] for name in perfect} == {100.0}
    found = score(prepared, "valid", outputs(prepared), folder=tmp_path)
    assert 0 < found["f1"] < 50
    assert set(found) == {"accuracy"} | {
        f"{name}{end}" for name in ("f1", "precision", "recall") for end in ("", "_FINE", "_POOR")
    }
    sentences = columns(tmp_path / "valid.predictions.conll")
    assert sum(map(len, sentences)) == len(Sentences(prepared.split("valid")))
    right = sum(gold == given for lines in sentences for _, gold, given in lines)
    assert found["accuracy"] == 100 * right / sum(map(len, sentences))
    report = (tmp_path / "valid.report.txt").read_text()
    assert f"FB1: {found['f1']:6.2f}" in report
    assert f"             FINE: precision: {found['precision_FINE']:6.2f}%" in report


def test_a_type_without_entities_in_a_split_is_not_measured(tmp_path):
    raw = write_raw(tmp_path / "raw")
    (raw / "valid.txt").write_text("good NN B-FINE\n\nxyz NN O\nbad NN O\n")
    prepared = write_prepared(tmp_path, raw=raw)
    write_outputs(tmp_path / "outputs", outputs(prepared, right=50.0), prepared.split("valid"))
    run = {"checkpoints": [tmp_path / "none.pt"], "stored": [tmp_path / "outputs"], "output_dir": tmp_path}
    settings = EvaluateSettings(data=prepared.folder, splits=["valid"], **run)
    table = write_report(evaluate_splits(settings), tmp_path)
    results = (tmp_path / "results.md").read_text()
    assert "| f1_FINE | 100.0 |" in results and "_POOR |" not in results
    for text in (table, results):
        assert "valid: no example has the label 'POOR', so it is not measured\n" in text


def test_valid_sequences_on_request(prepared, tmp_path):
    def invalid(**options):
        score(prepared, "valid", outputs(prepared), folder=tmp_path, **options)
        lines = columns(tmp_path / "valid.predictions.conll")
        return sum(len(invalid_places([line[2] for line in sentence], "iob2")) for sentence in lines)

    assert invalid() > 10
    assert invalid(valid_sequences=True) == 0


def test_an_ensemble_averages_the_probabilities_of_words(prepared):
    members = [outputs(prepared, seed=seed, right=2.0) for seed in range(3)]
    sentences = Sentences(prepared.split("valid"))
    mean = 0
    for member in members:
        rows = []
        for window, position in zip(sentences.windows, sentences.positions, strict=True):
            logits = member.token_logits[window][position].astype(np.float64)
            rows.append(np.exp(logits) / np.exp(logits).sum())
        mean = mean + np.array(rows) / 3
    valid = best_valid(mean, sentences.offsets, prepared.settings["labels"])
    for chosen, options in ((mean.argmax(1), {}), (valid, {"valid_sequences": True})):
        expected = TagCounts(sentences.tags, chosen, sentences.is_first, ["FINE", "POOR"]).metrics()
        assert score(prepared, "valid", *members, **options) == pytest.approx(expected)
    assert score(prepared, "valid", *members)["f1"] > score(prepared, "valid", members[0])["f1"]


@pytest.mark.parametrize("tags", [["NN", "VB"], ["S-X", "O"]])
def test_plain_tags_have_an_accuracy(tmp_path, tags):
    raw = tmp_path / "raw"
    write_columns(raw / "train.txt", [(["good", "xyz"], tags)] * 4)
    prepared = write_prepared(tmp_path, raw=raw, scheme="plain")
    assert benchmark_of("tagging").recipe(prepared).metric["value"] == "accuracy"
    found = score(prepared, "train", outputs(prepared, "train", right=50.0), folder=tmp_path, valid_sequences=True)
    assert found == {"accuracy": 100.0}
    assert not (tmp_path / "train.report.txt").exists()


def test_words_have_no_white_space_in_a_column():
    assert [shown(word) for word in ("New York", "", "a\u00a0b\n", "\u200b")] == ["New_York", "_", "a_b_", "\u200b"]
