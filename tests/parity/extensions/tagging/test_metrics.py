"""Entity F1 against results of seqeval, and against conlleval's definition, written out plainly, on its own files.

The second reference works step by step as conlleval.pl (Tjong Kim Sang 2000-2004) does, line by line.
"""

import json
import re

import numpy as np
import pytest

from roberta_plugin.extensions.tagging.entities import TagCounts, entities_of, entity_labels
from roberta_plugin.extensions.tagging.options import TaggingOptions
from roberta_plugin.finetuning.benchmarks import benchmark_of
from roberta_plugin.finetuning.kinds.outputs import RawOutputs
from tests.parity.extensions.tagging import seqeval_results
from tests.parity.extensions.tagging.seqeval_results import TYPES, random_tags
from tests.tiny_tagging import write_prepared

LABELS = entity_labels(TYPES)
SEQEVAL = json.loads(seqeval_results.FILE.read_text())


def conlleval(text):
    """Overall and by type: correct, found and gold phrases; and the right tags and all tags."""
    counts, tags = {}, [0, 0]

    def end(last, tag, last_type, type_):
        return (
            (last == "B" and tag in "BO")
            or (last == "I" and tag in "BO")
            or (last in "ES")
            or (last != "O" and last != "." and last_type != type_)
        )

    def start(last, tag, last_type, type_):
        return (
            tag in ("B", "S")
            or (last in ("E", "S", "O") and tag in ("E", "I"))
            or (tag != "O" and tag != "." and last_type != type_)
        )

    in_correct, last = False, [("O", ""), ("O", "")]
    for line in text.split("\n"):
        cells = line.split()
        is_boundary = not cells
        both = ["O", "O"] if is_boundary else cells[-2:]
        now = [tuple(re.match(r"^([^-]*)-(.*)$", tag).groups()) if "-" in tag else (tag, "") for tag in both]
        (gold, gold_type), (given, given_type) = now
        ends = [end(last[side][0], now[side][0], last[side][1], now[side][1]) for side in (0, 1)]
        starts = [start(last[side][0], now[side][0], last[side][1], now[side][1]) for side in (0, 1)]
        if in_correct:
            if ends[0] and ends[1] and last[0][1] == last[1][1]:
                in_correct = False
                counts.setdefault(last[0][1], [0, 0, 0])[0] += 1
            elif ends[0] != ends[1] or gold_type != given_type:
                in_correct = False
        if starts[0] and starts[1] and gold_type == given_type:
            in_correct = True
        if starts[0]:
            counts.setdefault(gold_type, [0, 0, 0])[2] += 1
        if starts[1]:
            counts.setdefault(given_type, [0, 0, 0])[1] += 1
        if not is_boundary:
            tags[0] += gold == given and gold_type == given_type
            tags[1] += 1
        last = now
    return counts, tags


def percentages(correct, found, gold):
    precision = 100 * correct / found if found else 0.0
    recall = 100 * correct / gold if gold else 0.0
    return precision, recall, 2 * precision * recall / (precision + recall) if precision + recall else 0.0


@pytest.mark.parametrize("case", SEQEVAL["scores"])
def test_scores_are_seqevals(case):
    gold, given = (np.array([int(digit) for digit in case[side].replace(" ", "")]) for side in ("gold", "given"))
    is_first = np.concatenate([np.arange(len(sentence)) == 0 for sentence in case["gold"].split()])
    ours = TagCounts(gold, given, is_first, TYPES).metrics()
    for name, value in case["scores"].items():
        assert ours[name] == pytest.approx(100 * value), name
    assert 5 < ours["f1"] < 95


@pytest.mark.parametrize("is_valid", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_scores_are_conllevals(seed, is_valid):
    gold, given, is_first = random_tags(seed, is_valid=is_valid)
    lines = []
    for right, found, first in zip(gold, given, is_first, strict=True):
        lines += [""] * bool(first) + [f"w {LABELS[right]} {LABELS[found]}"]
    counts, tags = conlleval("\n".join([*lines, ""]))
    ours = TagCounts(gold, given, is_first, TYPES).metrics()
    assert ours["accuracy"] == pytest.approx(100 * tags[0] / tags[1])
    total = [sum(row[column] for row in counts.values()) for column in range(3)]
    for end, row in [("", total), *((f"_{type_}", counts[type_]) for type_ in TYPES)]:
        found = tuple(ours[f"{name}{end}"] for name in ("precision", "recall", "f1"))
        assert found == pytest.approx(percentages(*row))


@pytest.mark.parametrize("case", SEQEVAL["entities"])
def test_entities_of_any_tags_are_seqevals(case):
    assert [list(entity) for entity in entities_of(case["tags"].split())] == case["entities"]
    assert len(case["entities"]) > 10


def test_a_prediction_file_scores_the_same_under_conlleval(tmp_path):
    prepared = write_prepared(tmp_path)
    split, rng = prepared.split("valid"), np.random.default_rng(0)
    labels = np.asarray(split.array("token_labels"))
    logits = rng.normal(size=(len(labels), 5)).astype(np.float32)
    logits[np.flatnonzero(labels >= 0), labels[labels >= 0]] += 1.5
    outputs = RawOutputs(token_logits=np.split(logits, np.cumsum(split.sequences.sizes)[:-1]))
    ours = benchmark_of("tagging").score(prepared, "valid", [outputs], folder=tmp_path, options=TaggingOptions())
    counts, tags = conlleval((tmp_path / "valid.predictions.conll").read_text())
    total = [sum(row[column] for row in counts.values()) for column in range(3)]
    assert (ours["precision"], ours["recall"], ours["f1"]) == pytest.approx(percentages(*total))
    assert ours["accuracy"] == pytest.approx(100 * tags[0] / tags[1])
    assert 10 < ours["f1"] < 90
