"""Rows of texts, pairs, wrong texts and scores: what is learned from them, what is refused, and what is measured."""

import re

import numpy as np
import pytest

from roberta_plugin.extensions.embeddings import similarity
from roberta_plugin.finetuning.benchmarks import benchmark_of, kind_of
from roberta_plugin.finetuning.kinds.outputs import RawOutputs
from roberta_plugin.finetuning.options import CustomOptions
from roberta_plugin.finetuning.preparation import DataSettings, PrepareSettings, check_same, prepare
from tests.tiny_tables import write_csv, write_json_lines
from tests.unit.extensions.own_tables.conftest import tokenizer  # noqa: F401  # a fixture

PAIRS = [{"text": f"t{n}", "near": f"n{n}"} for n in range(10)]
PAIRS_WITH_SCORES = [{**row, "label": n % 6} for n, row in enumerate(PAIRS)]
TRIPLETS = [{**row, "far": f"f{n}"} for n, row in enumerate(PAIRS)]
SCORED = [{**row, "label": 0.1 * n} for n, row in enumerate(PAIRS)]
NEAR = {"text_pair_column": "near"}


@pytest.fixture
def make(tmp_path, tokenizer):  # noqa: F811
    def prepared(rows, **options):
        for name, table in (("train", rows), ("valid", options.get("valid"))):
            if isinstance(table, list):
                options[name] = write_json_lines(tmp_path / f"{name}.jsonl", table).name
        chosen = CustomOptions(kind="embedding", **options)
        folder = tmp_path / f"data-{len(list(tmp_path.iterdir()))}"
        where = {"raw": tmp_path, "tokenizer": tokenizer, "output_dir": folder, "max_length": 32}
        return prepare(PrepareSettings(task="custom", options=chosen, **where))

    return prepared


@pytest.mark.parametrize(
    ("rows", "options", "loss", "width", "selection"),
    [
        (PAIRS, NEAR, "multiple-negatives-ranking", 2, "mrr"),
        (TRIPLETS, {**NEAR, "negative_column": ("far",)}, "multiple-negatives-ranking", 3, "mrr"),
        (TRIPLETS, {**NEAR, "negative_column": ("far",), "embedding_loss": "triplet"}, "triplet", 3, "mrr"),
        (SCORED, {**NEAR, "label_column": ("label",)}, "cosine-similarity", 2, "spearman"),
        (PAIRS, {**NEAR, "embedding_loss": "simcse"}, "simcse", 2, "mrr"),
    ],
)
def test_the_columns_say_what_is_learned(make, rows, options, loss, width, selection):
    prepared = make(rows, **options)
    kind, train = kind_of(prepared), prepared.split("train")
    assert prepared.settings["embedding_loss"] == loss and kind.selection == selection
    assert train.columns["texts"].shape == (len(train), width) and len(train.sequences) == width * len(train)
    is_simcse = loss == "simcse"
    assert len(train) + len(prepared.split("valid")) * (2 if is_simcse else 1) == 10 * (2 if is_simcse else 1)
    assert ("label" in train.columns) == (loss == "cosine-similarity")


@pytest.mark.parametrize("name", ["lines.txt", "lines.csv"])
@pytest.mark.parametrize("is_scored", [False, True])
def test_the_columns_of_the_training_table_choose_simcse_though_pairs_validate(
    make,
    tmp_path,
    tokenizer,  # noqa: F811
    name,
    is_scored,
):
    head = "text\n" if name.endswith("csv") else ""
    (tmp_path / name).write_text(head + "".join(f"text {n}\n" for n in range(20)))
    pairs = write_csv(tmp_path / "pairs.csv", PAIRS_WITH_SCORES)
    options = {**NEAR, **({"label_column": ("label",), "score_range": (0.0, 5.0)} if is_scored else {})}
    prepared = make(None, train=name, valid=pairs.name, **options)
    assert prepared.settings["embedding_loss"] == "simcse"
    assert prepared.split("train").columns["texts"].tolist() == [[n, n] for n in range(20)]
    assert kind_of(prepared).selection == ("spearman" if is_scored else "mrr")
    again = CustomOptions(kind="embedding", train=name, valid=pairs.name, **options)
    where = {"raw": tmp_path, "tokenizer": tokenizer, "max_length": 32}
    check_same(prepared, DataSettings(task="custom", options=again, **where))
    other = CustomOptions(kind="embedding", embedding_loss="triplet", negative_column=("a",), **NEAR)
    with pytest.raises(ValueError, match="--embedding-loss was simcse and is triplet now"):
        check_same(prepared, DataSettings(task="custom", options=other))


def test_equal_inputs_have_equal_numbers_and_scores_lie_between_0_and_1(make):
    rows = [{"text": "same", "near": f"n{n % 3}", "label": 5 - n} for n in range(6)]
    prepared = make(rows, valid=PAIRS_WITH_SCORES, **NEAR, label_column=("label",), score_range=(0.0, 5.0))
    train = prepared.split("train")
    assert train.columns["texts"].tolist() == [[0, 1], [0, 2], [0, 3]] * 2
    assert train.columns["label"].tolist() == pytest.approx([1, 0.8, 0.6, 0.4, 0.2, 0])


WITH_FAR, WITH_LABEL = {**NEAR, "negative_column": ("far",)}, {**NEAR, "label_column": ("label",)}
NO_SCORES = (1.1, -0.1, "NaN", float("nan"), float("inf"), True, None, "high", [1])


def changed(rows, **values):
    """Another fourth row; without a column whose value is `...`."""
    row = {name: value for name, value in {**rows[3], **values}.items() if value is not ...}
    return [*rows[:3], row, *rows[4:]]


@pytest.mark.parametrize(
    ("rows", "options", "messages"),
    [
        (changed(PAIRS, near=" "), NEAR, ["line 4", "'near'"]),
        (changed(PAIRS, text=None), NEAR, ["line 4", "'text'"]),
        (changed(TRIPLETS, far=...), WITH_FAR, ["line 4", "far", "--negative-column"]),
        (changed(TRIPLETS, far=""), WITH_FAR, ["line 4", "'far'"]),
        (changed(TRIPLETS, far="n3"), WITH_FAR, ["line 4", "'n3'", "right one"]),
        (changed(TRIPLETS, far="t3"), WITH_FAR, ["line 4", "'t3'", "text itself"]),
        *(
            (changed(SCORED, label=score), WITH_LABEL, ["line 4", "number from 0 to 1", "--score-range"])
            for score in NO_SCORES
        ),
        ([{**row, "label": 0.5} for row in PAIRS], WITH_LABEL, ["same score"]),
        ([{**row, "text": "same"} for row in PAIRS], {**NEAR, "valid": "dev.jsonl"}, ["same text", "nothing to learn"]),
        ([{"text": row["text"]} for row in PAIRS], {}, ["needs pairs", "--valid"]),
        (PAIRS, {**NEAR, "label_column": ("stars",)}, ["'stars'", "--label-column"]),
        (PAIRS, {"text_pair_column": "naer"}, ["there is no column 'naer'; there are 'text', 'near'"]),
        (PAIRS, {"embedding_loss": "multiple-negatives-ranking"}, ["needs --text-pair-column"]),
        (PAIRS, {**NEAR, "embedding_loss": "triplet"}, ["needs --negative-column"]),
        (PAIRS, {**NEAR, "embedding_loss": "cosine-similarity"}, ["needs --label-column"]),
        (PAIRS, {"label_column": ("label",)}, ["needs --text-pair-column"]),
        (SCORED, {**WITH_LABEL, "negative_column": ("far",)}, ["leave --negative-column out"]),
        (PAIRS, {**NEAR, "score_range": (0.0, 5.0)}, ["--score-range", "--label-column"]),
        (None, {"score_range": (5.0, 0.0)}, ["--score-range 5 0"]),
        (None, {"negative_column": ("a", "a")}, ["--negative-column a a"]),
    ],
)
def test_what_cannot_be_learned_is_named_with_its_line(make, tmp_path, rows, options, messages):
    write_json_lines(tmp_path / "dev.jsonl", PAIRS)
    with pytest.raises(ValueError, match=".*".join(map(re.escape, messages))):
        make(rows, **options)


def test_lines_of_a_text_file_are_texts(make, tmp_path):
    (tmp_path / "news.txt").write_text("one line\n\nanother line\n")
    options = {"train": "news.txt", "embedding_loss": "simcse", "valid": "dev.csv", "label_column": ("label",), **NEAR}
    scored = [{"near": "y", "label": 0.5}, {"near": "z", "label": 1}]
    write_csv(tmp_path / "dev.csv", [{"a": "x", **row} for row in scored])
    with pytest.raises(ValueError, match=r"dev\.csv, line 2: there is no column 'text'"):
        make(None, text_column="text", **options)
    write_csv(tmp_path / "dev.csv", [{"text": "x", **row} for row in scored])
    prepared = make(None, text_column="text", **options)
    assert len(prepared.split("train")) == 2 and prepared.split("valid").columns["label"].tolist() == [0.5, 1]
    assert kind_of(prepared).selection == "spearman"


def judged(prepared, vectors):
    outputs = [RawOutputs(vectors=np.asarray(each, dtype=np.float32)) for each in vectors]
    benchmark, options = benchmark_of("custom"), CustomOptions()
    details = benchmark.judge(prepared, "valid", outputs, folder=None, options=options)[1]
    entries = list(benchmark.outcome(prepared, prepared.split("valid"), outputs, options=options).entries())
    return benchmark.score(prepared, "valid", outputs, folder=None, options=options), details, entries


def test_other_right_texts_of_a_query_and_the_query_itself_do_not_count(make):
    """Candidates b, c and a; b and c are right for a, which is nearest to itself."""
    valid = [{"text": "a", "near": "b"}, {"text": "a", "near": "c"}, {"text": "d", "near": "a"}]
    prepared = make(PAIRS, valid=valid, **NEAR)
    a, b, c, d = [1, 0], [0.9, 0.2], [-1, 0.1], [0, 1]
    metrics, details, entries = judged(prepared, [[a, b, a, c, d, a]])
    assert [entry["rank"] for entry in entries] == [1, 1, 3]
    assert [entry["line_of_best"] for entry in entries] == [1, 2, 1]
    assert metrics == pytest.approx(
        {"mrr": 100 * (2 + 1 / 3) / 3, "recall@1": 200 / 3, "recall@5": 100, "recall@10": 100}
    )
    assert details["baseline"].keys() == metrics.keys()


def test_equal_vectors_have_a_middle_rank_and_triplets_count_how_often_the_right_text_is_nearer(make):
    ranks, _ = similarity.ranks([np.ones((10, 4)) / 2], np.arange(10).reshape(5, 2))
    assert ranks.tolist() == [3] * 5
    prepared = make(TRIPLETS, valid=TRIPLETS[:2], **WITH_FAR)
    metrics, _, _ = judged(prepared, [[[1, 0], [1, 0], [0, 1], [1, 0], [0.1, 1], [1, 0]]])
    assert metrics["accuracy"] == 50


def test_members_are_averaged_as_cosines_and_a_collapsed_model_is_known(make):
    prepared = make(SCORED, valid=SCORED[:4], **NEAR, label_column=("label",))
    rng = np.random.default_rng(0)
    members = rng.normal(size=(2, 8, 5))
    metrics, _, entries = judged(prepared, members)
    near = [(similarity.unit(each[::2]) * similarity.unit(each[1::2])).sum(axis=1) for each in members]
    assert [entry["score"] for entry in entries] == pytest.approx(np.mean(near, axis=0), abs=1e-5)
    assert [entry["label"] for entry in entries] == pytest.approx([0, 0.1, 0.2, 0.3])
    assert metrics["pearson"] == pytest.approx(100 * np.corrcoef(np.mean(near, axis=0), range(4))[0, 1], abs=1e-3)
    kind, split = kind_of(prepared), prepared.split("valid")
    same = np.ones((8, 5), dtype=np.float32)
    assert kind.only_answer(RawOutputs(vectors=same), split) == "the same vector"
    assert kind.only_answer(RawOutputs(vectors=members[0].astype(np.float32)), split) is None
