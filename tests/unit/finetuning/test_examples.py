"""Encoded examples: cells of tables, model inputs, datasets of batches."""

import json
import logging
import math
import pickle
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
import torch

from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.finetuning.examples import Example, label_of, warn_of_duplicates, warn_of_overlap
from roberta_plugin.finetuning.examples_dataset import ExamplesDataset
from roberta_plugin.finetuning.layouts.texts import Encoder, join
from roberta_plugin.finetuning.records import flag_in, flags_in, number_in, parse_cell, parse_json, texts_in, values_in
from roberta_plugin.tables import Row
from tests.tiny_benchmarks import words_tokenizer, write_prepared


def examples(*rows, name="my.csv"):
    """Of texts and labels from line 2 on."""
    return [Example(Path(name), line, str(line), (text,), target) for line, (text, target) in enumerate(rows, start=2)]


def test_a_label_is_the_same_in_every_format_and_an_empty_one_or_a_list_is_none():
    assert {label_of(value, "label", "here") for value in (1, 1.0, "1", " 1 ")} == {"1"}
    numbers = (True, False, 2.5, -3, 1e20)
    assert [label_of(each, "label", "here") for each in numbers] == ["true", "false", "2.5", "-3", "1e+20"]
    for value in (None, "", "  ", math.nan):
        with pytest.raises(ValueError, match="here: the label in the column 'label' is empty"):
            label_of(value, "label", "here")
    with pytest.raises(ValueError, match=r"must hold a label, found \['a'\]"):
        label_of(["a"], "label", "here")


def test_an_empty_text_is_named():
    with pytest.raises(ValueError, match=r"my\.csv, line 7: the column 'text' is empty"):
        Row(Path("my.csv"), 7, {"text": "  "}).text("text", option="--text-column")
    assert Row(Path("my.csv"), 7, {"text": " a "}).text("text", option="--text-column").strip() == "a"


def test_rows_that_repeat_or_contradict_earlier_ones_and_texts_in_two_splits_are_named(caplog):
    rows = examples(("a", "x"), ("b", "x"), ("a", "x"), ("b", "y"), ("c", "y"))
    with caplog.at_level(logging.WARNING):
        warn_of_duplicates(rows)
        warn_of_overlap(rows[:2], examples(("c", "x"), ("b", "x"), name="dev.csv"), split="valid")
    same, other, shared = caplog.messages
    assert "my.csv, line 4: the row repeats line 2; 1 row repeats an earlier one and counts twice" in same
    assert "my.csv, line 5: the text is the same as in line 3, with 'y' instead of 'x'; 1 row contradicts" in other
    assert "dev.csv, line 3: the text is also in" in shared and "1 of 2 texts of the split valid" in shared
    caplog.clear()
    warn_of_duplicates(examples(("a", "x"), ("a", "x"), ("a", "x"), name="my.parquet"))
    assert "my.parquet, row 3: the row repeats row 2; 2 rows repeat" in caplog.text
    caplog.clear()
    warn_of_duplicates(rows[:2])
    warn_of_overlap(rows[:1], rows[1:2], split="valid")
    assert not caplog.messages


PAD = 1


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return write_prepared(tmp_path_factory.mktemp("set") / "set", num_examples=150)


def dataset_of(prepared, **options):
    return ExamplesDataset(prepared.split("train"), pad_id=PAD, vocab_size=263, seed=3, **options)


@pytest.mark.parametrize("pack", [False, True])
def test_every_example_is_once_in_an_epoch_with_all_that_belongs_to_it(prepared, pack):
    dataset, split = dataset_of(prepared, pack=pack, pad_to_multiple=4), prepared.split("train")
    seen = []
    for addresses in dataset.batches(1, max_sentences=8):
        batch = dataset.__getitems__(addresses)
        net_input, first = batch["net_input"], batch["offsets"].tolist()
        rows = []
        for place, example in enumerate(batch["id"].tolist()):
            sequences = [split.sequences[i].tolist() for i in range(*split.offsets[example : example + 2])]
            assert first[place + 1] - first[place] == len(sequences)
            rows += sequences
            assert batch["columns"]["label"][place] == split.columns["label"][example]
            assert batch["columns"]["weight"][place] == split.columns["weight"][example]
            seen.append(example)
        assert net_input["src_lengths"].tolist() == [len(row) for row in rows]
        assert batch["ntokens"] == sum(len(row) for row in rows)
        assert batch["npositions"] == net_input["src_tokens"].numel()
        assert net_input["src_tokens"].size(1) % 4 == 0
        if pack:
            cu_seqlens = [*net_input["packing"]["cu_seqlens"].tolist(), len(net_input["src_tokens"][0])]
            (found,) = net_input["src_tokens"].tolist()
            positions = net_input["packing"]["positions"][0].tolist()
            for row, start, stop in zip(rows, cu_seqlens, cu_seqlens[1:], strict=False):
                assert found[start:stop] == row
                assert positions[start:stop] == list(range(len(row)))
            assert found[cu_seqlens[-2] :] == [PAD] * (cu_seqlens[-1] - cu_seqlens[-2])
            assert net_input["packing"]["max_seqlen"] >= max(map(len, rows))
        else:
            for row, found in zip(rows, net_input["src_tokens"].tolist(), strict=True):
                assert found == row + [PAD] * (len(found) - len(row))
            assert net_input["has_padding"] == bool(net_input["src_tokens"].eq(PAD).any())
    assert sorted(seen) == list(range(150))


def test_orders_change_with_the_epoch_and_resume_anywhere(prepared):
    dataset = dataset_of(prepared)
    epochs = [[b.indices.tolist() for b in dataset.batches(epoch, max_sentences=8)] for epoch in (1, 2)]
    assert {tuple(sorted(b)) for b in epochs[0]} != {tuple(sorted(b)) for b in epochs[1]}
    rest = dataset.batches(2, first_block=16, max_sentences=8)
    assert [b.indices.tolist() for b in rest] == epochs[1][2:]


def test_examples_of_similar_length_meet(prepared):
    dataset = dataset_of(prepared)
    batches = [dataset.__getitems__(b) for b in dataset.batches(1, max_sentences=8)]
    random = np.random.default_rng(0).permutation(150)
    plain = [dataset.__getitems__([(1, int(i)) for i in random[start : start + 8]]) for start in range(0, 150, 8)]
    padding, plain_padding = (
        1 - sum(b["ntokens"] for b in some) / sum(b["npositions"] for b in some) for some in (batches, plain)
    )
    assert padding < 0.8 * plain_padding


@pytest.mark.parametrize("multiple", [1, 16])
@pytest.mark.parametrize("pack", [False, True])
def test_batches_keep_to_max_tokens(prepared, pack, multiple):
    dataset = dataset_of(prepared, pack=pack, pad_to_multiple=multiple)
    sizes = [dataset.__getitems__(b)["npositions"] for b in dataset.batches(1, max_tokens=200)]
    assert 140 < max(sizes) <= 200
    with pytest.raises(ValueError, match="--max-tokens"):
        dataset.batches(1, max_tokens=20)


def test_no_sequence_of_a_packed_row_is_longer_than_the_model_is_told(prepared):
    dataset = dataset_of(prepared, pack=True, pad_to_multiple=512, max_length=24)
    packing = dataset.__getitems__(dataset.batches(1, max_sentences=1)[0])["net_input"]["packing"]
    assert packing["cu_seqlens"][-1] == 512
    assert packing["max_seqlen"] == 24 >= packing["cu_seqlens"].diff().max()


def test_batches_and_dataset_reach_the_workers(prepared):
    dataset = dataset_of(prepared)
    batch = dataset.batches(1, max_sentences=8)[3]
    copied, addresses = pickle.loads(pickle.dumps((dataset, batch)))
    one, other = dataset.__getitems__(batch), copied.__getitems__(addresses)
    assert torch.equal(one["net_input"]["src_tokens"], other["net_input"]["src_tokens"])
    joined = dataset.collater([dataset[address] for address in batch])
    assert torch.equal(one["net_input"]["src_tokens"], joined["net_input"]["src_tokens"])


def test_ids_outside_the_vocabulary_are_named(tmp_path):
    prepared = write_prepared(tmp_path / "set", num_examples=4, num_options=1)
    start = int(prepared.split("train").sequences.starts[3])
    np.memmap(tmp_path / "set" / "train.bin", dtype=np.uint16, mode="r+")[start + 1] = 999
    with pytest.raises(ValueError, match=r"token id 999 in item 3"):
        dataset_of(prepared).__getitems__([(1, 3)])


@pytest.mark.parametrize("pack", [False, True])
def test_an_example_above_the_limit_has_a_batch_of_its_own_and_the_others_keep_to_it(prepared, pack):
    """Otherwise one document of hundreds of windows would let every batch of an evaluation be as large as itself."""
    dataset = dataset_of(prepared, pack=pack, most_counted=60)
    batches = [dataset.__getitems__(addresses) for addresses in dataset.batches(1, max_tokens=60)]
    assert sorted(example for batch in batches for example in batch["id"].tolist()) == list(range(150))
    is_large = [batch["npositions"] > 60 for batch in batches]
    assert 0 < sum(is_large) < len(batches)
    assert all(len(batch["id"]) == 1 for batch, large in zip(batches, is_large, strict=True) if large)
    assert pack <= any(len(batch["id"]) > 1 for batch in batches)


WORDS = ["it's", 'a "b"', "c, d", "\u092e"]


def test_lists_of_json_are_lists():
    for ensure_ascii in (True, False):
        text = json.dumps(WORDS, ensure_ascii=ensure_ascii)
        assert values_in(text, separator=",") == values_in(text) == texts_in(text, "here") == WORDS
    assert values_in("[0, 1.5, true, null, -1]") == [0, 1.5, True, None, -1]
    assert parse_cell(' {"text": ["a"]} ') == {"text": ["a"]} and parse_cell('"a, b"') == "a, b"


ARRAY = np.array(WORDS)
SQUAD = {"text": np.array(["a b"], dtype=object), "answer_start": np.array([515], dtype=np.int32)}
PYTHON = [WORDS, tuple(WORDS), set(WORDS), ["a"], {"a": 1}, [True, None], (), set(), frozenset("a"), {"choices": ["a"]}]
NUMPY = [ARRAY, ARRAY.astype(object), list(ARRAY), SQUAD, np.array(["x" * 50] * 9), np.array([0, 1]), np.array([1.0])]
NUMPY += [
    list(np.array([3])),
    np.array([-1, 0, -2.5]),
    np.array([True, False]),
    np.arange(2000),
    np.eye(2),
    list(np.array([True])),
]


@pytest.mark.parametrize(
    ("values", "said"),
    [(PYTHON, "is in the notation of Python: parse it with ast"), (NUMPY, "is printed by numpy, wh")],
)
def test_lists_as_python_and_numpy_print_them_are_refused_with_the_way_to_convert_them(values, said):
    """numpy prints ['a' 'b'], which is ['ab'] in Python, and leaves out entries of long arrays."""
    for text in [write(value) for value in values for write in (str, repr)]:
        if parse_json(text) is not None:  # a vector of one number
            continue
        for read in (parse_cell, values_in, texts_in):
            with pytest.raises(ValueError, match=said) as error:
                read(text, *(["t.csv, line 2"] if read is texts_in else []))
            assert "lines=True" in str(error.value) and "Parquet" in str(error.value)


def test_what_is_no_list_is_divided_or_refused_and_never_called():
    assert values_in(" a, b c ,", separator=",") == ["a", "b c"] and values_in("a;b", separator=";") == ["a", "b"]
    assert values_in("(a), (b)", separator=",") == ["(a)", "(b)"] and values_in('"a, b"', separator=",") == ["a", "b"]
    assert values_in("[]", separator=",") == [] and values_in("a, b") is None and values_in(7, separator=",") is None
    said = r'is not a list in JSON\. Write \["one", "two"\], or'
    lists = ("[a, b]", "{a,b}", "[1-2]", "[1 - 2]", '{"a": 1}', "[f'a']", "[open('x')]", "[nan, 1]")
    for text in (*lists, "[" * 9999 + "]" * 9999):
        with pytest.raises(ValueError, match=said):
            values_in(text, separator=",")
    for text in ("[Music]", "[...]", "(Reuters)", "[1] In 1990 5 people [2]", "[see 'a' 'b']", "'a'", "[1, 2]"):
        assert texts_in(text, "here") is None


def test_a_separator_within_brackets_cuts_nothing():
    """Neither lists as torch, pandas and R write them, nor labels with a comma."""
    written = (str(torch.tensor([0, 1, 0])), "Index(['a', 'b'], dtype='object')", 'c("a", "b")', "(a, b)")
    said = r'^"," cuts .* within brackets\. Write a list .*: \["one", "two \(a, b\)"\]'
    for text in (*written, "Food, Sports (football, tennis)"):
        with pytest.raises(ValueError, match=said):
            values_in(text, separator=",")
        assert len(values_in(text, separator=";")) == 1
    for text in ("a), b)", ":), :(", "f(x), [y]"):
        assert values_in(text, separator=",") == text.split(", ")


def test_numbers_are_those_of_json_and_nothing_is_guessed():
    known = {"1e-3": 1e-3, " -2 ": -2, ".5": 0.5, "5.": 5, 1: 1, 1.5: 1.5, Decimal("2.5"): 2.5, "+3E2": 300}
    assert {text: number_in(text) for text in known} == known
    others = ("1,5", "1.234,5", "1_000", "nan", "inf", "50%", "\u0661", "0x1", "", "1 2", "1e999", 10**400)
    assert all(math.isnan(number_in(value)) for value in (*others, True, None, [1]))


def test_yes_and_no_are_read_alike_from_every_program():
    assert [flag_in(value) for value in (True, 1, 1.0, "1", "1.0", "True", "true ")] == [True] * 7
    assert [flag_in(value) for value in (False, 0, "0.0", "FALSE")] == [False] * 4
    assert [flag_in(value) for value in ("yes", 2, None, "")] == [None] * 4
    assert flags_in(["0", "1.0", True]) == [False, True, True] and flags_in(["1"]) is None and flags_in([0, 2]) is None


VOCABULARY = Vocabulary([])
A, B = 5, 7


def ids(value, count):
    return np.full(count, value, dtype=np.int32)


def test_one_text_and_two_have_the_specials_of_the_paper():
    assert join(VOCABULARY, ids(A, 2), max_length=9).tolist() == [0, A, A, 2]
    assert join(VOCABULARY, ids(A, 2), ids(B, 1), max_length=9).tolist() == [0, A, A, 2, 2, B, 2]
    assert join(VOCABULARY, ids(A, 9), max_length=5).tolist() == [0, A, A, A, 2]
    assert join(VOCABULARY, ids(A, 0), ids(B, 1), max_length=9).tolist() == [0, 2, 2, B, 2]


@pytest.mark.parametrize("max_length", [6, 7, 9, 12, 30])
def test_the_longer_text_is_cut_first(max_length):
    num_cut = 0
    for num_a in range(12):
        for num_b in range(12):
            keep_a, keep_b = num_a, num_b  # one token at a time, the second text's where both are equal
            while keep_a + keep_b > max_length - 4:
                if keep_a > keep_b:
                    keep_a -= 1
                else:
                    keep_b -= 1
                num_cut += 1
            found = join(VOCABULARY, ids(A, num_a), ids(B, num_b), max_length=max_length)
            expected = [0, *[A] * keep_a, 2, 2, *[B] * keep_b, 2]
            assert found.tolist() == expected
    assert (num_cut > 0) == (max_length < 26)


def test_many_texts_give_the_ids_of_each():
    encoder = Encoder(*words_tokenizer())
    back = encoder.vocabulary.model_to_tokenizer(encoder.tokenizer)
    texts = ["good bad", "", "a line\nand another", "good", "bad \n"]
    for text, found in zip(texts, encoder.ids_of_all(texts), strict=True):
        assert found.tolist() == encoder.ids(text).tolist()
        assert encoder.tokenizer.decode(back[found].tolist()) == text
    assert encoder.ids_of_all([]) == []
