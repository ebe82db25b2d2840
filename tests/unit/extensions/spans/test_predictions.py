"""Answers: the best spans, what is decoded of windows and models, metrics, thresholds, and the official files."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roberta_plugin.extensions.spans.metrics import squad_metrics
from roberta_plugin.extensions.spans.options import SquadOptions
from roberta_plugin.extensions.spans.questions import Questions, best_spans, decode
from roberta_plugin.finetuning.benchmarks import BENCHMARKS, benchmark_of
from roberta_plugin.finetuning.kinds.outputs import RawOutputs
from tests.tiny_squad import question, write_json, write_prepared, write_raw


@given(
    scores=st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=1, max_size=12),
    bounds=st.tuples(st.integers(0, 11), st.integers(0, 12)),
    number=st.integers(1, 200),
    length=st.integers(1, 15),
)
def test_best_spans_are_those_of_all_spans(scores, bounds, number, length):
    starts, ends = np.array(scores, dtype=np.float64).T
    first, stop = min(*bounds, len(starts) - 1), min(max(bounds), len(starts))
    allowed = [(start, end) for start in range(first, stop) for end in range(start, min(start + length, len(starts)))]
    expected = sorted(allowed, key=lambda span: (-(starts[span[0]] + ends[span[1]]), span))[:number]
    values, begin, end = best_spans(starts, ends, slice(first, stop), number=number, length=length)
    assert values.tolist() == [starts[span[0]] + ends[span[1]] for span in expected]
    if number >= len(allowed):
        assert list(zip(begin.tolist(), end.tolist(), strict=True)) == expected
    assert all(span in allowed for span in zip(begin.tolist(), end.tolist(), strict=True))
    if expected:
        ties = [span for span in allowed if starts[span[0]] + ends[span[1]] == values[0]]
        assert values[0] == max(starts[span[0]] + ends[span[1]] for span in allowed) and (begin[0], end[0]) in ties


def write_one(folder, context, answers):
    paragraph = {"context": context, "qas": [question("squad2", "q", answers)]}
    write_json(folder / "raw" / "dev-v2.0.json", [paragraph])
    return write_prepared(folder, raw=folder / "raw")


@pytest.fixture
def prepared(tmp_path):
    """One question; its passage is cut in two windows: tokens 0 to 22 and 10 to 29, letter by letter."""
    prepared = write_one(tmp_path, "abcdefghijklmnopqrstuvwxyz0123", [{"text": "q", "answer_start": 16}])
    assert prepared.split("valid").columns["passage_token"].tolist() == [0, 10]
    assert prepared.split("valid").columns["passage_length"].tolist() == [23, 20]
    return prepared


def outputs(prepared, peaks, answerable):
    """Outputs with scores at the tokens of the passage that `peaks` names for each window; 0 elsewhere."""
    split = prepared.split("valid")
    starts, ends = [], []
    for window, (start, end) in enumerate(peaks):
        shift = int(split.columns["passage"][window] - split.columns["passage_token"][window])
        size = int(split.sequences.sizes[window])
        starts.append(np.zeros(size, dtype=np.float32))
        ends.append(np.zeros(size, dtype=np.float32))
        for scores, (place, value) in ((starts[-1], start), (ends[-1], end)):
            scores[place + shift] = value
    return RawOutputs(start_logits=starts, end_logits=ends, answerable_logits=np.array(answerable, dtype=np.float32))


def run(prepared, *members, **options):
    return decode(Questions(prepared.split("valid")), list(members), **options)[0]


def test_the_window_that_holds_the_answer_decides(prepared):
    peaks = [((3, 8), (5, 8)), ((25, 8), (26, 8))]
    first = run(prepared, outputs(prepared, peaks, [2.0, -2.0]))
    assert (first.candidates[0].text, first.candidates[0].start, first.candidates[0].stop) == ("def", 3, 6)
    assert run(prepared, outputs(prepared, peaks, [-2.0, 2.0])).candidates[0].text == "z0"
    assert first.null_probability == pytest.approx(1 / (1 + math.exp(2.0)))


def test_probabilities_are_products(prepared):
    member = outputs(prepared, [((3, 8), (5, 7)), ((25, 0), (26, 0))], [1.0, -30.0])
    candidate = run(prepared, member).candidates[0]
    inside = [math.exp(value) / (math.exp(value) + 22) for value in (8, 7)]  # 23 tokens of the passage
    assert candidate.log_probability == pytest.approx(math.log(inside[0] * inside[1] / (1 + math.exp(-1.0))), abs=1e-5)


def test_what_lies_outside_of_the_passage_does_not_count(prepared):
    member = outputs(prepared, [((3, 2), (5, 2)), ((25, 0), (26, 0))], [3.0, -30.0])
    before = run(prepared, member)
    for scores in (*member.start_logits, *member.end_logits):
        scores[:8] = scores[-1] = 50.0  # <s>, question, </s>
    assert run(prepared, member) == before


def test_an_answer_begins_in_its_best_window(prepared):
    # Token 10 has the first window as its best one, token 20 the second.
    member = outputs(prepared, [((20, 9), (21, 9)), ((10, 9), (11, 9))], [3.0, 3.0])
    texts = [candidate.text for candidate in run(prepared, member).candidates]
    assert "uv" not in texts and "kl" not in texts
    own = outputs(prepared, [((10, 9), (11, 9)), ((20, 9), (21, 9))], [3.0, 3.0])
    assert {candidate.text for candidate in run(prepared, own, n_best=2).candidates} == {"kl", "uv"}


def test_an_answer_is_never_empty(tmp_path):
    """The best spans begin with white space; the answer is the best of the others."""
    prepared = write_one(tmp_path, "x  y ", [])
    decoded = run(prepared, outputs(prepared, [((1, 9), (1, 9))], [3.0]))
    assert "" not in [candidate.text for candidate in decoded.candidates]
    assert {candidate.text for candidate in decoded.candidates} == {"x", "y", "x  y"}


def test_length_number_and_different_texts(prepared):
    member = outputs(prepared, [((0, 9), (20, 9)), ((25, 0), (26, 0))], [3.0, -30.0])
    assert run(prepared, member).candidates[0].text == "abcdefghijklmnopqrstu"
    assert len(run(prepared, member, max_answer_length=20).candidates[0].text) <= 20
    many = run(prepared, member, n_best=50).candidates
    assert len(many) == len({candidate.text for candidate in many}) == 50
    values = [candidate.log_probability for candidate in many]
    assert values == sorted(values, reverse=True)


def test_equal_texts_of_two_windows_are_one_candidate(prepared):
    # Candidates begin where their window is best, so equal texts come from different places.
    questions = Questions(prepared.split("valid"))
    questions._passages[0] = "x" * 30
    decoded = decode(questions, [outputs(prepared, [((3, 5), (3, 5)), ((25, 5), (25, 5))], [3.0, 3.0])], n_best=5)[0]
    assert [candidate.text for candidate in decoded.candidates][:1] == ["x"]
    assert len({candidate.text for candidate in decoded.candidates}) == len(decoded.candidates)


def test_members_are_averaged_as_probabilities(prepared):
    left = outputs(prepared, [((3, 8), (5, 8)), ((25, 0), (26, 0))], [4.0, -30.0])
    right = outputs(prepared, [((7, 8), (9, 8)), ((25, 0), (26, 0))], [0.0, -30.0])
    both = run(prepared, left, right)
    inside = math.exp(8) / (math.exp(8) + 22)
    mean = (inside + 1 / (math.exp(8) + 22)) / 2
    in_window = (1 / (1 + math.exp(-4.0)) + 0.5) / 2
    assert both.candidates[0].log_probability == pytest.approx(math.log(mean * mean * in_window), abs=1e-5)
    assert both.null_probability == pytest.approx(1 - in_window)
    twice, once = (run(prepared, *members).candidates[0].log_probability for members in ((left, left), (left,)))
    assert twice == pytest.approx(once)


def test_tiny_probabilities_of_no_answer_stay_apart(prepared):
    peaks = [((3, 8), (5, 8)), ((25, 8), (26, 8))]
    values = [run(prepared, outputs(prepared, peaks, [logit, -5.0])).null_probability for logit in (50.0, 60.0)]
    assert 0 < values[1] < values[0] < 1e-20


@pytest.fixture(scope="module", params=BENCHMARKS["squad"].tasks)
def squad(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    raw = write_raw(folder / "raw", task=request.param, sizes={"train": 5, "dev": 40})
    context = "xx good yy"
    version = {"squad1": "1.1", "squad2": "2.0"}[request.param]
    entries = [question(request.param, "untold", None)]
    write_json(raw / f"test-v{version}.json", [{"context": context, "qas": entries}], task=request.param)
    return write_prepared(folder, task=request.param, raw=raw)


def noisy_outputs(prepared, split="valid", *, seed=0):
    """Scores that are right more often than not."""
    part, rng = prepared.split(split), np.random.default_rng(seed)
    columns = part.columns
    starts = [rng.normal(size=size).astype(np.float32) * 2 for size in part.sequences.sizes]
    ends = [rng.normal(size=size).astype(np.float32) * 2 for size in part.sequences.sizes]
    for window in range(len(part)):
        starts[window][columns["start"][window]] += 5
        ends[window][columns["end"][window]] += 5
    answerable = (columns["has_answer"] * 2 - 1 + rng.normal(size=len(part))).astype(np.float32)
    return RawOutputs(start_logits=starts, end_logits=ends, answerable_logits=answerable)


def score(prepared, members, *, split="valid", folder=None, **options):
    return benchmark_of(prepared.task).score(prepared, split, members, folder=folder, options=SquadOptions(**options))


def read(folder, name):
    return json.loads((folder / "valid" / name).read_text())


def test_metrics_are_those_of_the_files_that_are_written(squad, tmp_path):
    found = score(squad, [noisy_outputs(squad)], folder=tmp_path)
    questions = Questions(squad.split("valid"))
    predictions = read(tmp_path, "predictions.json")
    assert list(predictions) == questions.ids
    expected = squad_metrics(squad.task, questions.answers, list(predictions.values()))
    if squad.task == "squad2":
        expected = {f"tuned_{name}": value for name, value in expected.items()}
    assert expected.items() <= found.items()
    assert 40 < min(expected.values()) < max(expected.values()) <= 100
    assert (tmp_path / "valid" / "null_odds.json").exists() == (squad.task == "squad2")


@pytest.mark.parametrize("squad", ["squad2"], indirect=True)
def test_the_threshold_is_the_best_one_for_f1(squad, tmp_path):
    found = score(squad, [noisy_outputs(squad)], folder=tmp_path)
    null, predictions = read(tmp_path, "null_odds.json"), read(tmp_path, "predictions.json")
    threshold = found["best_f1_thresh"]
    assert found["null_threshold"] == threshold
    assert {id_ for id_, text in predictions.items() if not text} == {id_ for id_ in null if null[id_] > threshold}
    assert found["tuned_f1"] == pytest.approx(found["best_f1"]) and not {"f1", "exact_match"} & found.keys()
    assert found["tuned_NoAns_f1"] > 0 and found["tuned_HasAns_f1"] > 0
    worse = [score(squad, [noisy_outputs(squad)], null_threshold=other)["tuned_f1"] for other in (0.0, 0.3, 0.7, 1.0)]
    assert max(worse) <= found["best_f1"] and min(worse) < found["best_f1"]


def test_candidates_are_listed_with_their_places(squad, tmp_path):
    score(squad, [noisy_outputs(squad)], folder=tmp_path, n_best=3)
    listed, predictions = read(tmp_path, "nbest_predictions.json"), read(tmp_path, "predictions.json")
    records = list(squad.split("valid").records())
    texts = [record["text"] for record in records if "id" not in record]
    passage_of = {record["id"]: texts[record["passage"]] for record in records if "id" in record}
    for id_, entries in listed.items():
        spans = [entry for entry in entries if "start" in entry]
        assert len(spans) == 3 and len(entries) == 3 + (squad.task == "squad2")
        assert all(passage_of[id_][entry["start"] : entry["end"]] == entry["text"] for entry in spans)
        probabilities = [entry["probability"] for entry in entries]
        assert probabilities == sorted(probabilities, reverse=True) and 0 < probabilities[0] <= 1
        assert predictions[id_] in ("", spans[0]["text"])


def test_a_split_without_answers_has_predictions_and_no_metrics(squad, tmp_path):
    member = noisy_outputs(squad, "test")
    options = {} if squad.task == "squad1" else {"null_threshold": 0.4}
    assert score(squad, [member], split="test", folder=tmp_path, **options) == {}
    assert json.loads((tmp_path / "test" / "predictions.json").read_text()).keys() == {"untold"}
    if squad.task == "squad2":
        said = r"found on the development set, not on the split test: .* or give --null-threshold"
        with pytest.raises(ValueError, match=said):
            score(squad, [member], split="test")
        with pytest.raises(ValueError, match="found on the development set, not on the split train"):
            score(squad, [noisy_outputs(squad, "train")], split="train")
