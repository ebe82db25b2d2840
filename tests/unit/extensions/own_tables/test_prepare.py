"""Tables become prepared folders; what cannot be learned is refused with file and line."""

import csv
import gzip
import json
import logging
import math
import re

import fsspec
import numpy as np
import pytest

from roberta_plugin.finetuning.benchmarks import benchmark_of
from roberta_plugin.finetuning.options import CustomOptions, own_kind_names
from roberta_plugin.finetuning.preparation import DataSettings, check_same, describe, remarks
from tests.tiny_tables import rows_of, write_csv, write_json_lines


@pytest.mark.parametrize("kind", own_kind_names())
def test_every_row_of_every_kind_is_an_example_of_one_split(prepare_table, kind):
    prepared = prepare_table(kind)
    assert prepared.splits == ("train", "valid")
    first = 1 if kind in ("multiple-choice", "tagging") else 2  # JSON Lines; line 1 of CSV names the columns
    lines = []
    for split in map(prepared.split, prepared.splits):
        ids = [
            int(record["id"]) for record in split.records() if "id" in record
        ]  # question-answering has passages, too
        assert len(ids) == len(split) > 0
        lines += ids
    assert sorted(lines) == [*range(first, first + 60)]
    with pytest.raises(ValueError, match=r"--valid-share was 0\.1 and is 0\.5 now"):
        check_same(prepared, DataSettings(task="custom", options=CustomOptions(valid_share=0.5)))


def test_an_edited_table_is_refused_by_its_name(prepare_table, tmp_path, tokenizer):
    prepared = prepare_table("classification")
    options = CustomOptions(kind="classification", train="my.csv")
    edited = DataSettings(task="custom", raw=tmp_path, tokenizer=tokenizer, max_length=64, options=options)
    check_same(prepared, edited)
    with open(tmp_path / "my.csv", "a") as table:
        table.write("\n")
    said = r"the content of my\.csv was 1 file with [0-9,]+ bytes .* and is 1 file"
    with pytest.raises(ValueError, match=said):
        check_same(prepared, edited)


def test_labels_are_listed_in_the_folder_and_shown(prepare_table):
    prepared = prepare_table(class_weights="balanced")
    assert prepared.settings["labels"] == ["neg", "none", "pos"]
    labels = np.asarray(prepared.split("train").columns["label"])
    weights = np.array(prepared.settings["weights"])[labels]
    assert weights.mean() == pytest.approx(1) and weights.std() > 0.1
    assert [weights[labels == label].sum() for label in range(3)] == pytest.approx([len(labels) / 3] * 3)
    assert any(line.startswith("label: neg ") for line in describe(prepared, prepared.split("train")))


def test_each_example_of_every_split_has_the_label_of_its_row(prepare_table):
    """A development set in another order than its labels would choose a wrong model, and say nothing."""
    rows = [{"text": f"text {n}", "label": ("neg", "none", "pos")[n * n % 7 % 3]} for n in range(60)]
    prepared = prepare_table(rows=rows, valid_share=0.3)
    for name in ("train", "valid"):
        split = prepared.split(name)
        labels = [prepared.settings["labels"][index] for index in split.columns["label"].tolist()]
        assert labels != labels[::-1]
        assert labels == [rows[int(record["id"]) - 2]["label"] for record in split.records()]
        of_rows = [rows[int(record["id"]) - 2]["text"] for record in split.records()]
        to_model = prepared.vocabulary.tokenizer_to_model(prepared.tokenizer)
        ids = [to_model[prepared.tokenizer.encode(text)].tolist() for text in of_rows]
        assert [split.sequences[place][1:-1].tolist() for place in range(len(split))] == ids


def test_weights_of_labels_are_given_by_name_or_by_a_table(prepare_table, tmp_path, tokenizer):
    table = write_csv(tmp_path / "weights.csv", [{"label": "pos", "weight": 0.5}, {"label": "neg", "weight": 3}])
    for words in (("pos=0.5", "neg=3"), (str(table),)):
        prepared = prepare_table(class_weights=words)
        assert prepared.settings["weights"] == [3, 1, 0.5]
        assert benchmark_of("custom").recipe(prepared).metric["value"] == "macro_f1"
        for again in [{"class_weights": words}, {}]:
            check_same(prepared, DataSettings(task="custom", options=CustomOptions(**again)))
        with pytest.raises(ValueError, match=r"--class-weights was .*neg 3\.0.* and is balanced now"):
            check_same(prepared, DataSettings(task="custom", options=CustomOptions(class_weights="balanced")))
    several = prepare_table("multi-label", class_weights=("good=7",))
    assert several.settings["weights"] == [1, 7]


def test_a_table_of_weights_is_separated_as_the_others_are_or_by_commas(prepare_table, tmp_path):
    rows = rows_of("classification", 60)
    write_csv(tmp_path / "semicolons.csv", rows, delimiter=";")
    for mark in ";,":
        table = write_csv(tmp_path / f"weights{ord(mark)}.csv", [{"label": "pos", "weight": 0.5}], delimiter=mark)
        prepared = prepare_table(train="semicolons.csv", delimiter=";", class_weights=(str(table),))
        assert prepared.settings["weights"] == [1, 1, 0.5]
    weights = write_csv(tmp_path / "weights.csv", [{"label": "pos", "weight": 0.5}], delimiter=";")
    with pytest.raises(ValueError, match=r"weights\.csv, line 1: found a single column.*--delimiter ';'"):
        prepare_table(class_weights=(str(weights),))


@pytest.mark.parametrize("kind", ["regression", "embedding"])
def test_a_decimal_comma_is_read_where_it_is_named(prepare_table, tmp_path, tokenizer, kind):
    more = {} if kind == "regression" else {"text_pair_column": "pair", "label_column": ("label",)}
    rows = [{"text": f"text {n}", "pair": f"other {n}", "label": n / 64} for n in range(60)]
    commas = [{**row, "label": str(row["label"]).replace(".", ",")} for row in rows]
    plain = prepare_table(kind, rows=rows, **more)
    with pytest.raises(ValueError, match=r"found '0,0'\. .*--decimal ','"):
        prepare_table(kind, rows=commas, **more)
    prepared = prepare_table(kind, rows=commas, decimal=",", **more)
    assert [*prepared.split("train").columns["label"]] == [*plain.split("train").columns["label"]]
    check_same(prepared, DataSettings(task="custom", options=CustomOptions(kind=kind, decimal=",")))
    with pytest.raises(ValueError, match=r"must hold a number.*'1\.5'.*write it as 1234,5"):
        prepare_table(kind, rows=[*commas, {"text": "x", "pair": "y", "label": "1.5"}], decimal=",", **more)
    with pytest.raises(ValueError, match="--decimal goes with --kind"):
        CustomOptions(kind="classification", decimal=",")


def test_tables_as_other_programs_write_them_give_the_same_examples(prepare_table, tmp_path):
    rows = [{"text": f'She said "text {n}"', "label": json.dumps(["joy", "fear"][n % 2 :])} for n in range(40)]
    expected = prepare_table("multi-label", rows=rows)
    assert expected.settings["labels"] == ["fear", "joy"]
    ways = {"a.tsv": {"delimiter": "\t"}, "b.tsv": {"delimiter": "\t", "quoting": csv.QUOTE_ALL}}
    for name, form in {**ways, "c.csv": {"delimiter": "\t"}}.items():
        write_csv(tmp_path / name, rows, **form)
        options = {"delimiter": "\\t"} if name == "c.csv" else {}
        prepared = prepare_table("multi-label", train=name, **options)
        assert prepared.settings["labels"] == ["fear", "joy"]
        assert prepared.split("train").sequences[0].tolist() == expected.split("train").sequences[0].tolist()


def test_several_labels_are_a_row_of_zeros_and_ones_from_lists_texts_or_columns(prepare_table):
    def prepared(rows, **options):
        return prepare_table("multi-label", rows=rows, valid_share=0.3, **options)

    rows = [{"text": f"text {n}", "label": ["b", "a"] if n % 3 else []} for n in range(9)]
    rows.append({"text": "x", "label": "c"})
    texts = [{**row, "label": ", ".join(row["label"])} for row in rows]
    flags = [{"text": row["text"], **{label: int(label in row["label"]) for label in "abc"}} for row in rows]
    vectors = [{"text": row["text"], "label": str([row[label] for label in "abc"])} for row in flags]
    literals = [{**row, "label": json.dumps(row["label"])} for row in rows]
    from_lists, of_columns = prepared(rows), prepared(flags, label_column=("a", "b", "c"))
    of_vectors = prepared(vectors, labels=("a", "b", "c"))
    for other in (from_lists, prepared(texts), of_columns, of_vectors, prepared(literals)):
        assert other.settings["labels"] == ["a", "b", "c"]
        for name in other.splits:
            wanted = from_lists.split(name).columns["labels"]
            assert other.split(name).columns["labels"].tolist() == wanted.tolist()
    total = sum(from_lists.split(name).columns["labels"].sum(axis=0) for name in from_lists.splits)
    assert total.tolist() == [6, 6, 1]
    shown = list(describe(from_lists, from_lists.split("train")))
    assert any(line.startswith("labels: a ") and ", c " in line for line in shown)


def test_a_right_option_has_a_number_a_letter_a_column_or_its_text(prepare_table):
    labels = ["1", "B", "two", "no"] * 5
    rows = [{"text": f"about {n}", "one": "yes", "two": "no", "label": label} for n, label in enumerate(labels)]
    options = {"choices_columns": ("one", "two"), "valid_share": 0.3}
    prepared = prepare_table("multiple-choice", rows=rows, **options)
    found = np.concatenate([prepared.split(name).columns["label"] for name in prepared.splits])
    assert found.tolist() == [1] * 20
    numbered = [{**row, "label": "2"} for row in rows]
    prepared = prepare_table("multiple-choice", rows=numbered, labels=("1", "2"), **options)
    assert set(prepared.split("train").columns["label"].tolist()) == {1}
    with pytest.raises(ValueError, match=r"my\.csv, line 2: the label '2' is none of the 2 options: .* by --labels"):
        prepare_table("multiple-choice", rows=numbered, **options)


def test_the_last_columns_of_options_may_be_empty(prepare_table):
    names = ("a", "b", "c", "d")
    rows = [
        {"text": f"about {n}", **{name: f"it {place}" * (place < 2 + n % 3) for place, name in enumerate(names)}}
        for n in range(20)
    ]
    for label in ("1", "B", "b", "it 1"):
        labelled = [{**row, "label": label} for row in rows]
        prepared = prepare_table("multiple-choice", rows=labelled, choices_columns=names, valid_share=0.3)
        examples = [record for name in prepared.splits for record in prepared.split(name).records()]
        assert len(examples) == 20 and sum(len(prepared.split(name).sequences) for name in prepared.splits) == 59
    for row, message in (
        ({"b": ""}, "'b' is empty"),
        ({"c": "", "d": "it"}, "'c' is empty"),
        ({"label": "d"}, "'d' is none"),
    ):
        with pytest.raises(ValueError, match=f"line 2: .*{message}"):
            prepare_table("multiple-choice", rows=[{**labelled[0], **row}, *labelled[1:]], choices_columns=names)


def test_lists_that_a_csv_file_holds_as_texts_are_lists(prepare_table):
    rows = [{"text": f"about {n}", "options": json.dumps(["it's so", f"no {n}"]), "label": n % 2} for n in range(20)]
    found = prepare_table("multiple-choice", rows=rows, valid_share=0.3)
    lists = [{**row, "options": ["it's so", f"no {n}"]} for n, row in enumerate(rows)]
    wanted = prepare_table("multiple-choice", rows=lists, valid_share=0.3)
    assert found.split("train").sequences.tokens.tolist() == wanted.split("train").sequences.tokens.tolist()
    answers = ['{"text": ["bad"], "answer_start": [7]}', '["no", "bad"]', "[]", "[1]"]
    rows = [{"context": f"so bad bad [1] {n}", "question": "?", "answer": answers[n % 4]} for n in range(20)]
    prepared = prepare_table("question-answering", rows=rows, valid_share=0.3)
    records = [record for name in prepared.splits for record in prepared.split(name).records() if "answers" in record]
    assert sorted({str(record["answers"]) for record in records}) == ["['[1]']", "['bad']", "['no', 'bad']", "[]"]


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        ("classification", {"text": "a", "label": "['x']"}),
        ("multi-label", {"text": "a", "label": "['x', 'y']"}),
        ("multi-label", {"text": "a", "label": "[0 1 0]"}),
        ("multiple-choice", {"text": "a", "options": "['x' 'y']", "label": 0}),
        ("multiple-choice", {"text": "a", "options": "{'text': ['x', 'y'], 'label': ['A', 'B']}", "label": "A"}),
        ("multiple-choice", {"text": "a", "options": '["x", "y"]', "label": "['x']"}),
        ("question-answering", {"context": "a", "question": "b", "answer": "{'text': array(['a'], dtype=object)}"}),
        ("question-answering", {"context": "a", "question": "b", "answer": "a", "answer_start": "[0 1]"}),
        ("tagging", {"tokens": "['x' 'y']", "tags": '["O", "O"]'}),
        ("tagging", {"tokens": '["x", "y"]', "tags": "[0 1]"}),
    ],
)
def test_lists_that_python_or_numpy_printed_into_a_csv_file_are_refused_by_line_and_column(prepare_table, kind, row):
    odd = next(name for name, value in row.items() if str(value)[:1] in "[{" and '"' not in str(value))
    with pytest.raises(ValueError, match=rf"my\.csv, line 2, the column '{odd}': .*(Python|numpy).*lines=True"):
        prepare_table(kind, rows=[row] * 20, valid_share=0.3)


def test_a_label_that_can_mean_two_options_is_refused_unless_it_is_a_number(prepare_table):
    rows = [{"text": f"about {n}", "one": "DE", "two": "1", "three": "0", "label": "DE"} for n in range(20)]
    options = {"choices_columns": ("one", "two", "three"), "valid_share": 0.3}
    prepared = prepare_table("multiple-choice", rows=rows, **options)  # DE is no letter
    assert set(prepared.split("train").columns["label"].tolist()) == {0}
    rows[7]["label"] = "0"
    with pytest.raises(ValueError, match=r"line 9: the label '0' can mean different options, 'DE' and '0': .*--labels"):
        prepare_table("multiple-choice", rows=rows, **options)
    numbered = [{"text": f"about {n}", "options": ["DE", "1", "0"], "label": 2} for n in range(20)]
    prepared = prepare_table("multiple-choice", rows=numbered, valid_share=0.3)
    assert set(prepared.split("train").columns["label"].tolist()) == {2}


def test_answers_that_start_within_a_token_are_listed(prepare_table):
    rows = [{"context": f"so bad bad {n}", "question": "?", "answer": ("bad", "ad")[n == 3]} for n in range(20)]
    prepared = prepare_table("question-answering", rows=rows, valid_share=0.3)
    (listed,) = [line for split in ("train", "valid") for line in doubtful(prepared, split)]
    assert (listed["id"], listed["answer"], listed["tokens"]) == ("5", "ad", "bad")


def doubtful(prepared, split):
    path = prepared.folder / f"{split}.doubtful.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_answers_are_found_in_their_text_or_at_the_place_that_is_given(prepare_table):
    hub = {"text": ["bad", "so"], "answer_start": [7, 0]}  # as the Hugging Face hub has SQuAD
    answers = ["bad", ["no", "bad"], hub, None, [], "so bad", {"text": "bad", "answer_start": "7.0"}]
    rows = [{"context": f"so bad bad {n}", "question": "?", "answer": answer} for n, answer in enumerate(answers * 5)]
    prepared = prepare_table("question-answering", rows=rows, valid_share=0.3)
    found: dict[int, set[tuple[int, int]]] = {}
    for name in prepared.splits:
        split = prepared.split(name)
        ids = [int(record["id"]) - 1 for record in split.records() if "id" in record]
        columns = (split.columns[key] for key in ("question", "start", "end", "passage"))
        for number, start, end, place in zip(*columns, strict=True):
            span = (int(start - place), int(end - place)) if end else (-1, -1)
            found.setdefault(ids[number] % 7, set()).add(span)
    assert found[0] == found[1] and found[3] == found[4] == {(-1, -1)}
    ((first, last),) = found[0]
    ((second, _),) = found[2]
    assert 0 <= first <= last < second, "answer_start decides between two occurrences"
    assert found[5] == {(0, last)} and found[6] == found[2]


def test_a_test_table_may_lack_labels_and_has_no_columns_then(prepare_table, tmp_path):
    write_csv(tmp_path / "test.csv", [{"text": "so good"}, {"text": "so bad"}])
    prepared = prepare_table(test="test.csv")
    assert len(prepared.split("test")) == 2
    assert prepared.split("test").columns == {}
    write_csv(tmp_path / "test.csv", [{"text": "so good", "label": "pos"}, {"text": "so bad", "label": "neg"}])
    prepared = prepare_table(test="test.csv", id_column="text")
    assert prepared.split("test").columns["label"].tolist() == [2, 0]
    assert [record["id"] for record in prepared.split("test").records()] == ["so good", "so bad"]


def test_a_development_set_has_rows_of_rare_labels(prepare_table):
    for text in ("so", "we", "to"):
        rows = [{"text": f"{text} {n}", "label": "rare" if n % 100 == 7 else "common"} for n in range(1000)]
        prepared = prepare_table(rows=rows)
        assert prepared.settings["labels"] == ["common", "rare"]
        assert np.sum(prepared.split("valid").columns["label"]) == 1
        assert remarks(prepared) == []


def test_folds_have_each_text_once_in_a_development_set(prepare_table):
    texts = []
    for number in (1, 2, 3):
        prepared = prepare_table(fold=f"{number}/3")
        texts += [record["id"] for record in prepared.split("valid").records()]
        assert len(prepared.split("valid")) + len(prepared.split("train")) == 60
    assert sorted(map(int, texts)) == list(range(2, 62))


def tagged(**changes):
    """Rows of tagged words, of which the third has other values."""
    rows = [{"tokens": ["a", str(n)], "tags": ["B-X", "O"]} for n in range(40)]
    rows[2] |= changes
    return rows


@pytest.mark.parametrize(
    ("kind", "rows", "options", "message"),
    [
        ("classification", [{"review": "a", "label": "x"}], {}, r"my\.csv, line 2: there is no column 'text'; there are 'review', 'label'\. Name one of them by --text-column"),
        ("classification", [{"text": "a", "stars": "x"}], {}, "no column 'label'.* --label-column"),
        ("classification", [{"text": "a", "label": "x"}, {"text": " ", "label": "y"}], {}, r"line 3: the column 'text' is empty"),
        ("classification", [{"text": "a", "label": "x"}, {"text": "b", "label": ""}], {}, r"line 3: the label in the column 'label' is empty"),
        ("classification", [{"text": str(n), "label": "x"} for n in range(30)], {}, "all rows have the label 'x'"),
        ("classification", [{"text": "a", "label": "x"}], {"text_column": "label"}, "--text-column and --label-column both name 'label'"),
        ("classification", [{"text": "a", "label": ["x", "y"]}], {}, r"line 1: the column 'label' must hold one label, found \['x', 'y'\]"),
        ("classification", [{"text": "a", "label": "[0, 1, 0]"}], {}, r"line 2: .* must hold one label, found '\[0, 1, 0\]'.*--kind multi-label"),
        ("multi-label", [{"text": "a", "label": "[0, 1, 0]"}], {}, r"line 2: '\[0, 1, 0\]' in the column 'label' is a vector of 0 and 1\. Name .* by --labels"),
        ("multi-label", [{"text": "a", "label": "0 1 0"}], {}, "line 2: '0 1 0' .* is a vector of 0 and 1"),
        ("multi-label", [{"text": "a", "label": [True, False, False]}], {"labels": ("a", "b")}, "line 1: .* has 3 numbers, and --labels 2"),
        ("multi-label", [{"text": str(n), "label": "[0, 1]" if n % 2 else "[1, 0]"} for n in range(30)], {}, "every row has the labels 0, 1"),
        ("multi-label", [{"text": "a", "label": "[x, y]"}], {}, "line 2, the column 'label': .* is not a list in JSON"),
        ("multi-label", [{"text": str(n), "label": "x;y" if n % 2 else "x"} for n in range(30)], {}, "line 3: no row has several labels, and 'x;y' .* --label-separator ';'"),
        ("regression", [{"text": "a", "label": "1.234,5"}], {}, "found '1.234,5'"),
        ("regression", [{"text": "a", "label": "1_000"}], {}, "found '1_000'"),
        ("classification", [{"text": "a", "label": math.inf}, {"text": ["b"], "label": 1}], {}, "line 1: .* must hold a label, found inf"),
        ("multi-label", [{"text": str(n), "label": "x" * (n % 2)} for n in range(30)], {}, "all rows have the label 'x'"),
        ("regression", [{"text": str(n), "label": 1.7e308 * (-1) ** n} for n in range(30)], {}, "too large or too small to compute with"),
        ("regression", [{"text": str(n), "label": 1e-320 * n} for n in range(30)], {}, "too large or too small to compute with"),
        ("regression", [{"text": "a", "label": 10**400}, {"text": ["b"], "label": 1}], {}, "line 1: the column 'label' must hold a number"),
        ("regression", [{"text": "a", "label": "1,5"}], {}, r"line 2: the column 'label' must hold a number, found '1,5'"),
        ("regression", [{"text": str(n), "label": 3} for n in range(30)], {}, "every row has the number 3"),
        ("multi-label", [{"text": "a", "x": 1, "y": "maybe"}], {"label_column": ("x", "y")}, "line 2: the column 'y' must hold 1 or 0, found 'maybe'"),
        ("multiple-choice", [{"text": "a", "options": ["b"], "label": 0}], {}, "line 1: 1 options, and a choice needs two or more"),
        ("multiple-choice", [{"text": "a", "options": "b", "label": 0}], {}, r"line 2: the column 'options' must hold a list.* --choices-columns"),
        ("classification", [{"text": str(n), "label": "xy"[n % 2], "id": f"id {n % 29}"} for n in range(30)], {"id_column": "id"}, r"my\.csv, line 31: the id 'id 0' occurs in .*my\.csv, line 2 already"),
        ("classification", None, {"class_weights": ("rare=2",)}, "--class-weights rare=2: there is no such label; there are neg, none, pos"),
        ("classification", None, {"class_weights": ("pos=-1",)}, "--class-weights pos=-1: the weight of the label 'pos' must be a number from 0 on, got '-1'"),
        ("classification", None, {"class_weights": ("pos=many",)}, "got 'many'"),
        ("classification", None, {"class_weights": ("pos=nan",)}, "got 'nan'"),
        ("classification", None, {"class_weights": ("pos=1", "pos=2")}, "the label 'pos' has two weights"),
        ("classification", None, {"class_weights": ("pos=0", "neg=0", "none=0")}, "gives every label the weight 0"),
        ("classification", None, {"class_weights": ("weights.tsv",)}, r"--class-weights weights\.tsv: there is no such file"),
        ("classification", None, {"class_weights": ("balanced", "pos=1")}, "--class-weights balanced: there is no such file"),
        ("tagging", tagged(tags=["O"]), {}, r"line 3: 2 words and 1 tags"),
        ("tagging", tagged(tags=["b-x", "O"]), {}, r"line 3, word 1: the tag 'b-x' is neither O nor B-TYPE.*, as 'B-X' is"),
        ("tagging", tagged(tokens=[]), {}, r"line 3: the column 'tokens' is an empty list"),
        ("tagging", tagged(tokens="a b"), {}, r"line 3: the column 'tokens' must be a list, found 'a b'"),
        ("tagging", tagged(tags=None), {}, r"line 3: there are no tags, and only a test table may omit them.* --label-column"),
        ("tagging", tagged(tags="B-X O"), {}, r"line 3: the column 'tags' must be a list, found 'B-X O'"),
        ("tagging", tagged(tags=["O", 3]), {}, r"line 3: the tags \(tags\) are numbers, such as 3.* --label-names O B-PER"),
        ("tagging", tagged(), {"label_column": ("ner",)}, r"line 1: there is no column 'ner'.* --label-column"),
        ("tagging", tagged(), {"labels": ("B-X", "O")}, r"--labels B-X O: the labels of entities are O, then B-TYPE and I-TYPE"),
        ("tagging", tagged(tags=["B-Y", "O"]), {"labels": ("O", "B-X", "I-X")}, r"line 3: the label 'Y' is none of --labels X"),
        ("pair", [{"text": "a", "label": 0}], {}, "--kind pair needs --text-pair-column: the column of the second text"),
        ("question-answering", [{"context": "a b", "question": "?", "answer": "c"}], {}, "line 2: the text does not contain the answer 'c'"),
        ("question-answering", [{"context": str(n), "question": "?", "answer": ""} for n in range(30)], {}, "no row has an answer"),
        ("question-answering", [{"context": "a", "question": "?", "answer": {"text": ["a"], "answer_start": ["x"]}}], {}, "line 1: .* one whole number in answer_start for each text, found 'x'"),
    ],
)  # fmt: skip
def test_what_cannot_be_learned_is_refused_with_its_line_and_writes_nothing(
    prepare_table, tmp_path, kind, rows, options, message
):
    with pytest.raises(ValueError, match=message):
        prepare_table(kind, rows=rows, **options)
    assert not list(tmp_path.glob("data*"))


def test_a_missing_or_empty_table_is_named(prepare_table, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"--valid .*dev\.csv does not exist"):
        prepare_table(valid="dev.csv")
    (tmp_path / "dev.csv").write_text("text,label\n")
    with pytest.raises(ValueError, match=r"dev\.csv has no rows"):
        prepare_table(valid="dev.csv")
    with pytest.raises(ValueError, match="--train is missing"):
        prepare_table(train=None)


def test_a_label_that_only_the_development_set_has_is_warned_of(prepare_table, caplog):
    rows = [{"text": f"row {n}", "label": "xy"[n % 2]} for n in range(30)]
    valid = [{"text": "row 3", "label": "x"}]
    with caplog.at_level(logging.WARNING):
        prepare_table(rows=[*rows, *valid], labels=("x", "y", "z"))
    assert "no row has the label 'z' of --labels" in caplog.text
    assert "with 'x' instead of 'y'; 1 row contradicts" in caplog.text
    assert "No row of the training set has the label 'z'" in caplog.text


def test_labels_of_a_test_table_are_complete_or_lacking_whichever_row_is_empty(prepare_table, tmp_path):
    for place in (0, 2):
        rows = [{"text": f"so good {n}", "label": "" if n == place else "pos"} for n in range(50)]
        write_csv(tmp_path / "test.csv", rows)
        with pytest.raises(ValueError, match=rf"test\.csv, line {place + 2}: the label is empty, and 49 of 50 rows"):
            prepare_table(test="test.csv")


def test_an_id_is_never_the_text_of_nothing(prepare_table, tmp_path):
    rows = [{"text": f"so {n}", "label": "xy"[n % 2], "id": float(n)} for n in range(30)]  # pandas, beside a NaN
    write_json_lines(tmp_path / "numbers.jsonl", rows)
    split = prepare_table(train="numbers.jsonl", id_column="id").split("train")
    assert all(record["id"] == str(record["line"] - 1) for record in split.records())
    for empty in (None, float("nan"), " "):
        write_json_lines(tmp_path / "numbers.jsonl", [*rows[:3], {**rows[3], "id": empty}, *rows[4:]])
        with pytest.raises(ValueError, match=r"line 4: the id in the column 'id' is empty\. Fill it in, or leave"):
            prepare_table(train="numbers.jsonl", id_column="id")


def test_rows_with_a_fault_are_counted_where_the_first_is_named(prepare_table):
    """So that nobody corrects a row a start."""
    rows = [{"text": "" if number % 10 == 3 else f"text {number}", "label": number % 2} for number in range(60)]
    with pytest.raises(ValueError, match=r"line 5: the column 'text' is empty\..* 6 of 60 rows have a fault\."):
        prepare_table("classification", rows=rows)


def test_a_column_that_holds_no_labels_is_named_as_such_where_nothing_can_be_cut_off(prepare_table):
    rows = [{"text": f"text {number}", "label": number * 1.5} for number in range(60)]
    with pytest.raises(ValueError, match=r"has 60 different values in 60 rows.* Name another --label-column"):
        prepare_table("classification", rows=rows)


def test_labels_that_stand_for_nothing_or_for_the_same_in_two_ways_are_named(prepare_table, caplog):
    rows = [{"text": f"so {n}", "label": ("0", "1", "NaN")[n % 3]} for n in range(60)]
    prepare_table(rows=rows)
    assert "my.csv, line 4: the label is the text 'NaN', which counts as a label of its own" in caplog.text
    rows = [{"text": f"so {n}", "label": (1, 0, True)[n % 3], "as": []} for n in range(60)]  # a list: JSON Lines
    prepare_table(rows=rows)
    assert "my.jsonl, line 3: the label 'true' differs from '1' (" in caplog.text


def sides(prepared, column):
    """What the rows of a prepared table have in a column, by split."""
    with open(prepared.folder.parent / "my.csv", newline="") as file:
        values = [row[column] for row in csv.DictReader(file)]
    splits = (prepared.split(name) for name in ("train", "valid"))
    return [{values[record["line"] - 2] for record in split.records()} for split in splits]


def test_rows_with_one_text_of_a_pair_or_one_group_stay_together(prepare_table, caplog):
    rows = [
        {"text": f"question {n // 5}", "pair": f"sentence {n}", "label": ("yes", "no")[n % 5 > 0], "who": n % 50}
        for n in range(300)
    ]
    train, valid = sides(prepare_table("pair", rows=rows), "text")
    assert train and valid and not train & valid
    assert "300 of 300 rows have the same 'text' as another row" in caplog.text and "'pair'" not in caplog.text
    both = [{**row, "pair": f"sentence {n % 7}"} for n, row in enumerate(rows)]
    prepare_table("pair", rows=both)
    assert "300 of 300 rows have the same 'pair'" in caplog.text and "--group-column pair keeps them" in caplog.text
    train, valid = sides(prepare_table("pair", rows=rows, group_column="who"), "who")
    assert train and valid and not train & valid
    caplog.clear()
    few = [{**row, "text": f"question {n if n > 9 else 0}"} for n, row in enumerate(rows)]
    prepare_table("pair", rows=few)
    assert "10 of 300 rows have the same 'text'" in caplog.text and "--group-column text keeps them" in caplog.text
    with pytest.raises(ValueError, match=r"none is left for the development set.* 2 groups: another --group-column"):
        prepare_table("pair", rows=rows, group_column="label")


def test_settings_follow_the_options_alone():
    found = benchmark_of("custom").settings(
        max_length=64, options=CustomOptions(kind="pair", text_pair_column="b", labels=("n", "y"))
    )
    assert found["kind"] == "classification"
    assert (found["text_pair_column"], found["labels"], found["valid_share"]) == ("b", ["n", "y"], 0.1)
    assert benchmark_of("custom").settings(max_length=64, options=CustomOptions(valid="dev.csv"))["valid_share"] is None


def test_labels_that_differ_in_spelling_only_are_warned_of_and_suggested(prepare_table, tmp_path, caplog):
    rows = [{"text": f"row {n}", "label": ("Pos", "pos", "1", "1.0")[n % 4]} for n in range(40)]
    with caplog.at_level(logging.WARNING):
        assert prepare_table(rows=rows).settings["labels"] == ["1", "1.0", "Pos", "pos"]
    for other, one, line in (("pos", "Pos", 3), ("1.0", "1", 5)):
        assert re.search(rf"my\.csv, line {line}: the label '{other}' differs from '{one}' .*line", caplog.text)
    write_csv(tmp_path / "dev.csv", [{"text": "x", "label": "NEG"}])
    said = (
        r"dev\.csv, line 2: no row of the training table has the label 'NEG'; it has neg, none, pos\. Is 'neg' meant\?"
    )
    with pytest.raises(ValueError, match=said):
        prepare_table(valid="dev.csv")


def test_groups_tags_and_columns_that_differ_by_what_nobody_sees_are_named(prepare_table, tmp_path, caplog):
    rows = [
        {"text": f"row {n}", "label": n % 2, "by": ("Sa\u011fl\u0131k", "SA\u011eLIK", f"x{n}")[n % 3]}
        for n in range(60)
    ]
    prepare_table(rows=rows, group_column="by")
    assert "the group of 'by' 'SA\u011eLIK' differs from 'Sa\u011fl\u0131k'" in caplog.text
    tags = [{"tokens": ["a", str(n)], "tags": [f"B-PER{chr(0x200B) * (n % 2)}", "O"]} for n in range(40)]
    prepare_table("tagging", rows=tags)
    assert "the label 'PER\\u200b' differs from 'PER'" in caplog.text and "(U+200B)" in caplog.text
    (tmp_path / "test.csv").write_text("text,label\u200b\na,1\n", encoding="utf-8")
    said = r"test\.csv, line 2: the column 'label\\u200b' differs from 'label' of --label-column only in spelling"
    with pytest.raises(ValueError, match=said):
        prepare_table(test="test.csv")
    with pytest.raises(
        ValueError, match=r"there is no column 'label'.* Is 'label\\u200b' meant, which differs only in"
    ):
        prepare_table(train="test.csv")


def test_words_and_tags_come_from_lists_or_from_columns_in_any_scheme(prepare_table, tmp_path):
    rows = [
        {"tokens": ["New", "York", "is", "big", str(n)], "tags": ["B-LOC", "I-LOC", "O", "O", "B-N"]} for n in range(40)
    ]
    from_lists = prepare_table("tagging", rows=rows)
    assert from_lists.settings["labels"] == ["O", "B-LOC", "I-LOC", "B-N", "I-N"]
    text = "".join(f"New X B-LOC\nYork X E-LOC\nis X O\nbig X O\n{n} X S-N\n\n" for n in range(40))
    (tmp_path / "my.conll.gz").write_bytes(gzip.compress(text.encode()))
    from_columns = prepare_table("tagging", train="my.conll.gz")
    (tmp_path / "named.txt").write_text("tag,word\n".replace(",", " ") + re.sub(r"(\S+) X (\S+)", r"\2 \1", text))
    names = {"text_column": "word", "label_column": ("tag",)}
    from_names = prepare_table("tagging", train="named.txt", **names)
    with pytest.raises(ValueError, match=r"my\.conll\.gz: --label-column 9, but the first line has 3 columns"):
        prepare_table("tagging", train="my.conll.gz", label_column=("9",))
    for other in (from_columns, from_names):
        assert other.settings["labels"] == from_lists.settings["labels"]
        for name in ("train", "valid"):
            wanted, found = from_lists.split(name), other.split(name)
            assert found.array("tags").tolist() == wanted.array("tags").tolist()
            assert [each["words"] for each in found.records()] == [each["words"] for each in wanted.records()]
    plain = [{**row, "tags": ["NNP", "NNP", "VBZ", "JJ", "CD"]} for row in rows]
    assert prepare_table("tagging", rows=plain).settings["labels"] == ["CD", "JJ", "NNP", "VBZ"]
    given = ("O", "B-N", "I-N", "B-LOC", "I-LOC")
    assert prepare_table("tagging", rows=rows, labels=given).settings["labels"] == list(given)


def test_tags_of_other_splits_must_be_those_of_training(prepare_table, tmp_path):
    for name, tag, message in (("d", "B-Y", "has the label 'Y'; it has FINE"), ("e", "NN", "the tag 'NN' is neither")):
        write_json_lines(tmp_path / f"{name}.jsonl", [{"tokens": ["a"], "tags": [tag]}])
        with pytest.raises(ValueError, match=rf"{name}\.jsonl, line 1.*: .*{message}"):
            prepare_table("tagging", valid=f"{name}.jsonl")
    (tmp_path / "test.txt").write_text("a\nb\n\nc\n")
    prepared = prepare_table("tagging", test="test.txt")
    assert len(prepared.split("test")) == 2 and "tags" not in prepared.split("test").facts["arrays"]
    (tmp_path / "my.csv").write_text("tokens,tags\na,O\n")
    said = r"my\.csv, line 2: the column 'tokens' must hold a list of words.*, or write columns with a word per line"
    with pytest.raises(ValueError, match=said):
        prepare_table("tagging", train="my.csv")


@pytest.mark.parametrize("name", ["label", "id", "text"])
def test_half_a_character_is_named(prepare_table, tmp_path, name):
    row = {"text": "a", "label": "x", "id": "1"} | {name: "\ud83d"}
    (tmp_path / "raw.jsonl").write_text(json.dumps(row))
    with pytest.raises(ValueError, match=f"line 1: .*'{name}' holds half of a surrogate pair"):
        prepare_table(train="raw.jsonl", id_column="id")


def test_an_answer_may_be_in_a_column_called_text(prepare_table):
    rows = [{"context": f"so bad {n}", "question": "?", "text": "bad"} for n in range(30)]
    assert prepare_table("question-answering", rows=rows, label_column=("text",)).splits == ("train", "valid")


def test_a_table_is_found_in_any_format_and_by_url(prepare_table, tmp_path, monkeypatch):
    pyarrow = pytest.importorskip("pyarrow")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    prepared = [prepare_table()]
    with open(tmp_path / "my.csv", newline="", encoding="utf-8") as file:
        table = pyarrow.Table.from_pylist(list(csv.DictReader(file)))
    (tmp_path / "set").mkdir()
    for name in ("my.arrow", "set/data-00000-of-00001.arrow"):
        with pyarrow.ipc.new_stream(str(tmp_path / name), table.schema) as writer:
            writer.write_table(table, max_chunksize=7)
    (tmp_path / "set" / "state.json").write_text('{"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}')
    files = fsspec.filesystem("memory")
    files.pipe("/tables/my.csv", (tmp_path / "my.csv").read_bytes())
    try:
        for name in ("my.arrow", "set", "memory://tables/my.csv", f"file://{tmp_path}/my.csv"):
            prepared.append(prepare_table(train=name))
        for said, name in (("check the address", "memory://tables/none.csv"), ("--train .* does not", "none.csv")):
            with pytest.raises(FileNotFoundError, match=said):
                prepare_table(train=name)
    finally:
        files.rm("/tables", recursive=True)
    for other in prepared[1:]:
        for split in ("train", "valid"):
            expected, found = prepared[0].split(split), other.split(split)
            assert [*map(list, found.sequences)] == [*map(list, expected.sequences)]
            assert found.columns["label"].tolist() == expected.columns["label"].tolist()


def write_parquet(path, rows, **features):
    """A file with features as the library `datasets` writes them."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    parquet.write_table(pyarrow.Table.from_pylist(rows).replace_schema_metadata(metadata), path)
    return path


def classes(*names):
    return {"names": list(names), "_type": "ClassLabel"}


def test_names_of_a_file_are_the_labels_and_minus_one_is_none(prepare_table, tmp_path, caplog):
    rows = [{"text": f"row {n}", "label": (2, 0, 1, -1)[n % 4]} for n in range(40)]
    write_parquet(tmp_path / "train.parquet", rows, label=classes("yes", "maybe", "no", "never"))
    write_parquet(
        tmp_path / "test.parquet", [{"text": "a", "label": -1}] * 3, label=classes("yes", "maybe", "no", "never")
    )
    prepared = prepare_table(train="train.parquet", test="test.parquet")
    assert prepared.settings["labels"] == ["yes", "maybe", "no", "never"], "in the file's order"
    numbers = [
        *np.asarray(prepared.split("train").columns["label"]),
        *np.asarray(prepared.split("valid").columns["label"]),
    ]
    assert sorted(numbers) == [0] * 10 + [1] * 10 + [2] * 10
    assert "label" not in prepared.split("test").columns and len(prepared.split("test")) == 3
    assert "row 4: the label is -1, which means no label: 10 of 40 rows of the table have no label" in caplog.text
    assert "test.parquet: every row has the label -1" in caplog.text
    assert "are labels from 0 on: yes, maybe, no, never (the schema of train.parquet)" in caplog.text
    with pytest.raises(ValueError, match=r"test\.parquet: every row has the label -1.* name another table by --valid"):
        prepare_table(train="train.parquet", valid="test.parquet")
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("text,label\n" + "".join(f"row {n} {name},{n % 3}\n" for n in range(30)))
    with pytest.raises(ValueError, match="the label 'no' is none of --labels 0 1 2"):
        prepare_table(train="train.parquet", labels=("0", "1", "2"))
    with pytest.raises(ValueError, match="or name the numbers of the training table by --label-names"):
        prepare_table(train="a.csv", valid="train.parquet")
    named = prepare_table(train="a.csv", valid="b.csv", label_names=("x", "y", "z"), labels=("z", "y", "x"))
    assert named.settings["labels"] == ["z", "y", "x"] and named.split("valid").columns["label"][0] == 2


def test_numbers_of_several_labels_and_of_tags_have_names(prepare_table, tmp_path, caplog):
    lists = [{"text": f"row {n}", "label": ([0, 1], [2], [], [0], [-1])[n % 5]} for n in range(50)]
    feature = {"feature": classes("joy", "fear", "rage"), "_type": "List"}
    write_parquet(tmp_path / "many.parquet", lists, label=feature)
    prepared = prepare_table("multi-label", train="many.parquet")
    assert prepared.settings["labels"] == ["joy", "fear", "rage"]
    columns = np.concatenate([np.asarray(prepared.split(name).columns["labels"]) for name in ("train", "valid")])
    assert len(columns) == 40 and columns.sum(axis=0).tolist() == [20, 10, 10]
    two = [{"text": f"row {n}", "label": ([0, 1], [1], [0], [])[n % 4]} for n in range(40)]
    with pytest.raises(
        ValueError, match=r"line 2: \[1\] .* is not a vector of 2 numbers.* give --label-names joy fear"
    ):
        prepare_table("multi-label", rows=two, labels=("joy", "fear"))
    vectors = [{"text": f"row {n}", "label": ([0, 1], [1, 0])[n % 2]} for n in range(40)]
    prepare_table("multi-label", rows=vectors, labels=("joy", "fear"))
    assert "lists such as [0, 1] are read as vectors of 0 and 1 for the labels joy, fear" in caplog.text
    both = prepare_table("multi-label", rows=two, label_names=("joy", "fear"))
    assert both.settings["labels"] == ["joy", "fear"]
    assert np.asarray(both.split("train").columns["labels"]).sum() > len(both.split("train")) * 0.9
    tags = [{"tokens": ["Anna", "Berg", f"x{n}"], "ner_tags": [3, 4, 0]} for n in range(40)]
    names = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    write_parquet(tmp_path / "ner.parquet", tags, ner_tags={"feature": classes(*names), "_type": "Sequence"})
    for options in ({"train": "ner.parquet"}, {"rows": tags, "label_names": names}):
        found = prepare_table("tagging", **options)
        assert found.settings["labels"] == list(names)
        assert found.split("train").array("tags").tolist()[:3] == [3, 4, 0]
    for given in ({}, {"labels": names}):
        with pytest.raises(
            ValueError, match=r"line 1: the tags \(ner_tags\) are numbers, such as 3.*--label-names O B-PER"
        ):
            prepare_table("tagging", rows=tags, **given)
    text = [{**row, "ner_tags": [str(tag) for tag in row["ner_tags"]]} for row in tags]
    with pytest.raises(ValueError, match="are numbers, such as '3'"):
        prepare_table("tagging", rows=text)
    assert prepare_table("tagging", rows=text, label_names=names).settings["labels"] == list(names)
    assert prepare_table("tagging", rows=tags, scheme="plain").settings["labels"] == ["0", "3", "4"]


def test_rows_of_minus_one_in_all_columns_of_labels_have_none(prepare_table, tmp_path):
    rows = [{"text": f"row {n}", "toxic": n % 2, "insult": n % 3 == 0} for n in range(40)]
    columns = {"label_column": ("toxic", "insult")}
    for name, marks in (("some", (-1, 1)), ("all", (-1, -1))):
        write_csv(
            tmp_path / f"{name}.csv", [{"text": f"test {n}", "toxic": m, "insult": m} for n, m in enumerate(marks)]
        )
    assert len(prepare_table("multi-label", rows=rows, test="some.csv", **columns).split("test")) == 1
    assert "labels" not in prepare_table("multi-label", rows=rows, test="all.csv", **columns).split("test").columns
    write_csv(tmp_path / "half.csv", [{"text": "a", "toxic": -1, "insult": 0}])
    with pytest.raises(ValueError, match=r"must hold 1 or 0, found '-1'.* write -1 into all columns of a row"):
        prepare_table("multi-label", rows=rows, test="half.csv", **columns)


def test_a_test_table_of_minus_one_alone_has_no_numbers_unless_numbers_below_0_are_learned(prepare_table, tmp_path):
    write_csv(tmp_path / "test.csv", [{"text": f"test {n}", "label": "-1.0"} for n in range(3)])
    write_csv(tmp_path / "some.csv", [{"text": f"test {n}", "label": -n} for n in range(3)])
    for least, test, has_numbers in ((0, "test.csv", False), (-2, "test.csv", True), (0, "some.csv", True)):
        rows = [{"text": f"row {n}", "label": least + n % 5} for n in range(40)]
        prepared = prepare_table("regression", rows=rows, test=test)
        assert len(prepared.split("test")) == 3 and ("label" in prepared.split("test").columns) == has_numbers
    with pytest.raises(ValueError, match=r"every row has the label -1.* name another table by --valid"):
        prepare_table("regression", rows=rows, valid="test.csv")


def test_another_scheme_or_other_names_of_labels_are_refused_at_a_second_start(prepare_table, tmp_path, tokenizer):
    rows = [{"tokens": ["a", str(n)], "tags": ["PER", "O"]} for n in range(40)]
    prepared = prepare_table("tagging", rows=rows, scheme="plain")
    for scheme, said in (("plain", ""), (None, "--scheme was plain"), ("io", "--scheme was plain and is io now")):
        options = CustomOptions(kind="tagging", train="my.jsonl", scheme=scheme)
        wanted = DataSettings(task="custom", raw=tmp_path, tokenizer=tokenizer, max_length=64, options=options)
        if said:
            with pytest.raises(ValueError, match=said):
                check_same(prepared, wanted)
        else:
            check_same(prepared, wanted)
    numbers = [{"text": f"row {n}", "label": n % 2} for n in range(40)]
    prepared = prepare_table(rows=numbers, label_names=("a", "b"))
    options = CustomOptions(train="my.csv")
    with pytest.raises(ValueError, match="--label-names was a, b"):
        check_same(
            prepared, DataSettings(task="custom", raw=tmp_path, tokenizer=tokenizer, max_length=64, options=options)
        )
