"""Labels of the model from the tags of files, and what is said of tags that cannot be used."""

import logging
from pathlib import Path

import pytest

from roberta_plugin.finetuning.benchmarks import benchmark_of
from roberta_plugin.finetuning.benchmarks.tagging import labels_of
from roberta_plugin.finetuning.examples import Example
from roberta_plugin.finetuning.kinds.entities import entity_labels, types_of
from roberta_plugin.finetuning.options import TaggingOptions


def sentences(*lines):
    result, line = [], 1
    for tags in lines:
        tags = tags.split()
        result.append(Example(Path("f.txt"), line, "", tuple("w" * len(tags)), tuple(tags)))
        line += len(tags) + 1
    return result


def convert(task, splits, options):
    """The labels of the model, and the numbers of those of each word."""
    labels = labels_of(task, splits, options)
    kind = benchmark_of(task).kind_for({"labels": labels})
    return labels, {name: [kind.numbers_of_tags(each) for each in sentences] for name, sentences in splits.items()}


def test_labels_are_numbered_by_a_rule():
    assert entity_labels(["LOC", "PER"]) == ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    assert types_of(entity_labels(["LOC", "PER"])) == ["LOC", "PER"]
    assert types_of(["DT", "NN", "VB"]) is None
    assert types_of(["O", "I-LOC", "B-LOC"]) is None


@pytest.mark.parametrize("tags", ["B-X I-X B-X O B-Y", "I-X I-X B-X O I-Y", "B-X E-X S-X O S-Y", "B-X L-X U-X O U-Y"])
def test_every_scheme_becomes_the_same_labels(tags):
    labels, numbers = convert("tagging", {"train": sentences(tags)}, TaggingOptions(strict=True))
    assert labels == ["O", "B-X", "I-X", "B-Y", "I-Y"]
    assert numbers == {"train": [[1, 2, 1, 0, 3]]}


def test_types_of_any_split_have_labels_and_those_that_train_lacks_are_named(caplog):
    splits = {"train": sentences("B-X"), "valid": sentences("B-A"), "test": sentences("O")}
    labels, numbers = convert("tagging", splits, TaggingOptions())
    assert labels == ["O", "B-A", "I-A", "B-X", "I-X"]
    assert numbers["valid"] == [[1]]
    assert "valid has the types A, which no entity of train has" in caplog.text


def test_invalid_sequences_are_named_and_read_as_conlleval_reads_them(caplog):
    splits = {"train": sentences("B-X O B-X", "O I-X I-X")}
    _, numbers = convert("tagging", splits, TaggingOptions())
    assert numbers["train"] == [[1, 0, 1], [0, 1, 2]]
    assert "train: 1 tags are not valid in IOB2" in caplog.text
    assert "f.txt, line 6: I-X, read as B-X" in caplog.text
    with pytest.raises(ValueError, match=r"f\.txt, line 6: I-X, read as B-X: the tag is not valid in IOB2 after"):
        convert("tagging", splits, TaggingOptions(strict=True))
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        convert("tagging", {"train": sentences("I-X I-X", "I-X B-X")}, TaggingOptions(strict=True))
    assert not caplog.records, "IOB1"


def test_many_faults_are_counted_and_five_are_named(caplog):
    faults = ["O I-X"] * 8
    convert("tagging", {"train": sentences("B-X I-X O B-X", *["O B-X"] * 20, *faults)}, TaggingOptions(scheme="iob2"))
    assert "8 tags are not valid" in caplog.text
    assert caplog.text.count("read as B-X") == 5
    assert "and 3 more" in caplog.text


@pytest.mark.parametrize(
    ("task", "tags", "options", "message"),
    [
        ("tagging", "O NN", {}, r"f\.txt, line 2: the tag 'NN' is neither.*--tags-column.*--scheme plain"),
        ("wnut17", "O B-PER", {}, r"f\.txt, line 2: the type of 'B-PER' is none of corporation, creative-work"),
        ("tagging", "B-X O B-Y", {"types": "X, Z"}, r"line 3: the type of 'B-Y' is none of X, Z"),
    ],
)
def test_tags_that_cannot_be_used_are_named(task, tags, options, message):
    with pytest.raises(ValueError, match=message):
        convert(task, {"train": sentences(tags)}, TaggingOptions(**options))


def test_official_sets_have_all_their_labels_and_types_may_be_given():
    assert len(convert("conll2003", {"train": sentences("O B-PER")}, TaggingOptions())[0]) == 9
    assert len(convert("wnut17", {"train": sentences("O")}, TaggingOptions())[0]) == 13
    labels, _ = convert("tagging", {"train": sentences("B-X")}, TaggingOptions(types="Z,X"))
    assert labels == ["O", "B-Z", "I-Z", "B-X", "I-X"]


def test_plain_tags_are_labels_as_they_are():
    labels, numbers = convert("tagging", {"train": sentences("NN VB , NN")}, TaggingOptions(scheme="plain"))
    assert labels == [",", "NN", "VB"]
    assert numbers == {"train": [[1, 2, 0, 1]]}
