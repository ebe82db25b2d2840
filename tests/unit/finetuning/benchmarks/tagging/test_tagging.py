"""Tagging: files of CoNLL, labels, WNUT 2017, preparation."""

import dataclasses
import gzip
import json
import logging
import lzma
import re
from pathlib import Path

import numpy as np
import pytest

from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.finetuning.benchmarks import benchmark_of
from roberta_plugin.finetuning.benchmarks.tagging import labels_of, shown
from roberta_plugin.finetuning.examples import Example
from roberta_plugin.finetuning.examples_dataset import TaggingDataset
from roberta_plugin.finetuning.kinds.entities import Sentences, entities_of, entity_labels, read_file, types_of
from roberta_plugin.finetuning.kinds.outputs import RawOutputs
from roberta_plugin.finetuning.layouts.texts import Encoder
from roberta_plugin.finetuning.layouts.words import IGNORED
from roberta_plugin.finetuning.options import TaggingOptions
from roberta_plugin.finetuning.preparation import DataSettings, check_same, remarks
from roberta_plugin.finetuning.prepared import Prepared
from tests.real_data import unpack
from tests.tiny_benchmarks import words_tokenizer
from tests.tiny_tagging import write_columns, write_prepared, write_raw


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


CONLL = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O

Peter NNP B-NP B-PER
-DOCSTART- -X- -X- O

Blackburn NNP I-NP I-PER
"""


def read(tmp_path, text, *, name="train.txt", needs_tags=True, **options):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_file(path, columns=(options.get("tokens_column"), options.get("tags_column")), needs_tags=needs_tags)


def files_of(task, raw, **named):
    return benchmark_of(task).files(raw, TaggingOptions(**named))


def test_columns_of_conll_2003_with_documents(tmp_path):
    found = read(tmp_path, CONLL)
    assert [(each.texts, each.target, each.group, each.line) for each in found] == [
        (("EU", "rejects"), ("B-ORG", "O"), "0", 3),
        (("Peter",), ("B-PER",), "0", 6),
        (("Blackburn",), ("I-PER",), "1", 9),
    ]
    assert found[0].place_of_word(1) == f"{tmp_path / 'train.txt'}, line 4"


@pytest.mark.parametrize(
    "text",
    [
        b"New York\tO\na\tB-X\n\t\n\nb\tI-X\n",  # WNUT-17 ends a sentence with a tab
        b"\xef\xbb\xbfNew York\tO\r\na\tB-X\r\n\r\n \r\nb\tI-X",
        b"New York\tO\ra\tB-X\r\rb\tI-X\r",
    ],
)
@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_tabs_byte_order_marks_line_ends_and_blank_lines(tmp_path, text, suffix):
    pack = {".gz": gzip.compress, ".xz": lzma.compress}.get(suffix, bytes)
    found = read(tmp_path, pack(text), name=f"train.txt{suffix}")
    assert [(each.texts, each.target) for each in found] == [(("New York", "a"), ("O", "B-X")), (("b",), ("I-X",))]
    assert {each.group for each in found} == {""}


def test_other_white_space_and_invisible_characters_are_part_of_a_word(tmp_path):
    words = ["watched\u200bwas", "Dubbz\ufeff", "a\u00a0b", "c\u2028d", "e\x85", "\u200b"]
    found = read(tmp_path, "".join(f"{word}  O\n" for word in words))
    assert found[0].texts == tuple(words)


def test_a_word_may_be_empty_between_tabs(tmp_path):
    assert read(tmp_path, "a\tO\n\tB-X\n")[0].texts == ("a", "")


def test_columns_are_chosen_by_number_or_by_name(tmp_path):
    text = "word pos tag\nEU NNP B-ORG\n\nBonn NNP B-LOC\n"
    for options in ({"tokens_column": "word", "tags_column": "pos"}, {"tags_column": "pos"}):
        assert [each.target for each in read(tmp_path, text, **options)] == [("NNP",), ("NNP",)]
    found = read(tmp_path, text.split("\n", 1)[1], tokens_column="3", tags_column="1")
    assert (found[0].texts, found[0].target) == (("B-ORG",), ("EU",))


def test_json_lines(tmp_path):
    lines = [
        {"tokens": ["New", "", "York"], "tags": ["B-X", "O", "O"], "document": "a"},
        {"words": ["x"], "ner_tags": ["O"], "document": "a"},
        {"tokens": [], "tags": [], "document": "b"},
    ]
    found = read(tmp_path, "\n\n".join(map(json.dumps, lines)), name="train.jsonl")
    assert [(each.texts, each.target, each.group) for each in found] == [
        (("New", "", "York"), ("B-X", "O", "O"), "0"),
        (("x",), ("O",), "0"),
        ((), (), "1"),
    ]
    assert found[1].place_of_word(0).endswith("train.jsonl, line 3, word 1")
    mine = read(tmp_path, '{"w": ["a"], "t": ["O"]}', name="t.json", tokens_column="w", tags_column="t")
    assert mine[0].texts == ("a",)


def test_a_test_file_may_lack_tags(tmp_path):
    assert read(tmp_path, "a\nb\n\nc\n", needs_tags=False)[0].target is None
    assert read(tmp_path, '{"tokens": ["a"]}', name="t.jsonl", needs_tags=False)[0].target is None
    with pytest.raises(ValueError, match=r"train\.txt, line 1: there are no tags, which only a test file may lack"):
        read(tmp_path, "a\nb\n")


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a O\nb B-X x\n", {}, "line 2 has 3 columns, and the first line 2: 'b B-X x'"),
        (
            "# id 1\na O\n",
            {},
            "line 2 has 2 columns, and the first line 3: 'a O'. Correct the line, and remove comments",
        ),
        ("a\tO\nb\t\n", {}, "line 2: the tag of 'b' is empty"),
        ("a O\n", {"tags_column": "3"}, "--tags-column 3, but the first line has 2 columns"),
        ("a O\n", {"tags_column": "ner"}, "--tags-column ner, but the first line names the columns a, O"),
        ("a O\n", {"tags_column": "1"}, "words and tags are both in column 1"),
        ("\n \n", {}, "holds no words"),
        (b"a O\r\r\xff O\n", {}, "line 3: byte 0xff is not UTF-8"),
        ("a O\n".encode("utf-16-le"), {}, "line 1: it holds byte 0x00"),
        ("a O\n", {"tags_column": "\u00b2"}, "--tags-column \u00b2, but the first line names the columns a, O"),
    ],
)
def test_what_is_wrong_with_columns_is_named(tmp_path, text, options, message):
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path / 'train.txt'}") + ".*" + re.escape(message)):
        read(tmp_path, text, **options)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: it is not valid JSON"),
        ("[" * 100_000, "line 2: it is not valid JSON"),
        ("[1]", "line 2: expected a JSON object, found [1]"),
        ('{"text": "a"}', "line 2 lacks the field tokens"),
        ('{"tokens": "a", "tags": ["O"]}', "line 2: tokens must be a list, found 'a'"),
        ('{"tokens": ["a", "b"], "tags": ["O"]}', "line 2 has 2 words and 1 tags"),
        ('{"tokens": ["a"], "tags": [0]}', "line 2: tags holds numbers: write the names"),
        ('{"tokens": ["\\ud83d"], "tags": ["O"]}', "line 2: tokens, entry 1, holds half of a surrogate pair"),
        ('{"tokens": ["a"]}', "line 2, word 1: there are no tags"),
    ],
)
def test_what_is_wrong_with_json_lines_is_named(tmp_path, line, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        read(tmp_path, '{"tokens": ["a"], "tags": ["O"]}\n' + line, name="train.jsonl")


def test_files_are_found_by_their_usual_names_or_by_options(tmp_path):
    for name in ("eng.train", "eng.testb", "mine.bio"):
        (tmp_path / name).write_text("a O\n")
    assert files_of("conll2003", tmp_path) == {"train": [tmp_path / "eng.train"], "test": [tmp_path / "eng.testb"]}
    assert files_of("tagging", tmp_path, valid="mine.bio") == {"valid": [tmp_path / "mine.bio"]}
    (tmp_path / "dev.conll.zst").touch()
    assert files_of("tagging", tmp_path) == {"valid": [tmp_path / "dev.conll.zst"]}
    with pytest.raises(FileNotFoundError, match=r"no data for wnut17: looked for train: wnut17train\.conll; valid: "):
        files_of("wnut17", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"--test .* does not exist"):
        files_of("tagging", tmp_path, test="none")


def official(path):
    """Words and tags of each sentence, read line by line."""
    sentences = [[]]
    for line in path.read_bytes().decode().split("\n"):
        if line.strip():
            sentences[-1].append(tuple(line.split("\t")))
        elif sentences[-1]:
            sentences.append([])
    return [sentence for sentence in sentences if sentence]


def test_all_entities_survive_words_tokens_and_windows(shared_data, tmp_path):
    raw = unpack(shared_data, "ner", tmp_path) / "ner" / "wnut17"
    bpe = shared_data / "gpt2_bpe"
    tools = {"tokenizer": load_tokenizer(bpe), "vocabulary": Vocabulary.load(bpe / "dict.txt"), "max_length": 48}
    options = TaggingOptions(doc_stride=16, strict=True)
    benchmark_of("wnut17").prepare(raw, tmp_path / "prepared", **tools, options=options)
    prepared = Prepared.open(tmp_path / "prepared")
    assert prepared.splits == ("train", "valid")
    for name, file, num_entities in (("train", "wnut17train.conll", 1975), ("valid", "emerging.dev.conll", 836)):
        split = prepared.split(name)
        sentences = official(raw / file)
        assert len(split) > len(sentences), "no sentence was cut"
        labels = np.asarray(split.array("token_labels"))
        certain = np.where(labels[:, None] == np.arange(13), 9.0, 0.0).astype(np.float32)
        outputs = RawOutputs(token_logits=np.split(certain, np.cumsum(split.sequences.sizes)[:-1]))
        found = benchmark_of("wnut17").score(prepared, name, [outputs], folder=tmp_path, options=TaggingOptions())
        assert (found["f1"], found["accuracy"]) == (100.0, 100.0)
        blocks = (tmp_path / f"{name}.predictions.conll").read_text().split("\n\n")[:-1]
        assert len(blocks) == len(sentences)
        count = 0
        for block, sentence in zip(blocks, sentences, strict=True):
            rows = [line.split(" ") for line in block.split("\n")]
            assert [row[0] for row in rows] == [shown(word) for word, _ in sentence]
            right = entities_of([tag for _, tag in sentence])
            assert entities_of([row[2] for row in rows]) == right
            count += len(right)
        assert count == num_entities


LABELS = ["O", "B-FINE", "I-FINE", "B-POOR", "I-POOR"]


@pytest.fixture(scope="module", params=["first", "all"])
def prepared(request, tmp_path_factory):
    return write_prepared(tmp_path_factory.mktemp("tagging"), label_pieces=request.param)


def test_the_tags_of_the_words_are_at_their_first_tokens(prepared, tmp_path):
    is_all = prepared.settings["label_pieces"] == "all"
    assert prepared.settings["labels"] == LABELS
    encoder = Encoder(*words_tokenizer())
    for name in prepared.splits:
        split = prepared.split(name)
        sentences = Sentences(split)
        raw = read_file(prepared.folder.parent / "raw" / f"{name}.txt", needs_tags=True)
        assert len(split) > len(raw), "no sentence was cut: the test shows little"
        words = [word for each in raw for word in each.texts]
        tags = [tag for each in raw for tag in each.target]
        assert [word for record in split.records() for word in record["words"]] == words
        assert [LABELS[label] for label in sentences.tags] == tags
        assert np.diff(sentences.offsets).tolist() == [len(each.texts) for each in raw]
        assert np.flatnonzero(sentences.is_first).tolist() == sentences.offsets[:-1].tolist()
        learned = np.split(np.asarray(split.array("token_labels")), np.cumsum(split.sequences.sizes)[:-1])
        seen = 0
        for word, window, position, label in zip(
            words, sentences.windows, sentences.positions, sentences.tags, strict=True
        ):
            ids = split.sequences[window]
            spaced = encoder.ids(f" {word}").tolist(), encoder.ids(word).tolist()
            assert any(
                ids[position : position + len(found)].tolist() == found[: len(ids) - 1 - position] for found in spaced
            )
            assert learned[window][position] == label
            seen += 1
        assert seen == len(words)
        num_learned = sum(int((each != IGNORED).sum()) for each in learned)
        num_tokens = sum(len(encoder.ids(" ".join(each.texts))) for each in raw)
        assert num_learned == (num_tokens if is_all else len(words))


def test_batches_have_the_labels_of_their_tokens_padded_or_packed(prepared):
    split = prepared.split("train")
    sizes = split.sequences.sizes
    learned = np.split(np.asarray(split.array("token_labels")), np.cumsum(sizes)[:-1])
    for pack in (False, True):
        dataset = TaggingDataset(split, pad_id=1, vocab_size=1000, seed=1, pad_to_multiple=8, pack=pack, max_length=24)
        for indices in (np.array([3, 0, 11]), np.array([5])):
            batch = dataset.make_batch(np.ones(len(indices), dtype=np.int64), indices)
            labels, tokens = batch["token_labels"], batch["net_input"]["src_tokens"]
            assert labels.shape == tokens.shape and tokens.shape[1] % 8 == 0
            flat, ids = labels.ravel(), tokens.ravel()
            starts = np.cumsum([0, *sizes[indices[:-1]]]) if pack else np.arange(len(indices)) * tokens.shape[1]
            for start, window in zip(starts.tolist(), indices.tolist(), strict=True):
                assert flat[start : start + sizes[window]].tolist() == learned[window].tolist()
                assert ids[start : start + sizes[window]].tolist() == split.sequences[window].tolist()
            assert batch["num_labels"] == (flat != IGNORED).sum() == sum((learned[i] != IGNORED).sum() for i in indices)


def document(path):
    lines = []
    for number in range(3):
        lines += ["-DOCSTART- -X- O", ""]
        for _ in range(2 + number):
            lines += ["xyz N O", "good N B-X", "bad N I-X", ""]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines))


def test_a_document_is_read_at_once_and_its_sentences_stay_apart(tmp_path):
    document(tmp_path / "raw" / "train.txt")
    prepared = write_prepared(tmp_path, raw=tmp_path / "raw", max_length=18, context="document")
    split = prepared.split("train")
    sentences = Sentences(split)
    assert len(np.unique(sentences.offsets)) == 10, "9 sentences"
    encoder = Encoder(*words_tokenizer())
    whole = encoder.ids(" ".join(["xyz good bad"] * 2)).tolist()
    assert split.sequences[0].tolist() == [0, *whole, 2]
    assert len(split) > 3
    assert sentences.is_first.sum() == 9
    with pytest.raises(ValueError, match=r"line 1: --context document needs -DOCSTART- lines"):
        write_prepared(tmp_path / "b", context="document")


def test_empty_sentences_and_words_without_tokens_are_kept(tmp_path):
    (tmp_path / "raw").mkdir()
    lines = [
        {"tokens": ["good", "", "\u00a0", "bad"], "tags": ["B-X", "I-X", "O", "B-X"]},
        {"tokens": [], "tags": []},
        {"tokens": [""], "tags": ["B-X"]},
    ]
    (tmp_path / "raw" / "train.jsonl").write_text("\n".join(map(json.dumps, lines)))
    split = write_prepared(tmp_path, raw=tmp_path / "raw").split("train")
    sentences = Sentences(split)
    assert [record["words"] for record in split.records()] == [each["tokens"] for each in lines]
    assert [len(sequence) for sequence in (split.sequences[index] for index in range(3))] == [4, 2, 2]
    assert sentences.positions.tolist() == [1, 0, 0, 2, 0]
    assert sentences.windows.tolist() == [0, 0, 0, 0, 2]
    assert sentences.offsets.tolist() == [0, 4, 4, 5]
    rows = sentences.rows([np.full((4, 3), 1 / 3), np.full((2, 3), 1 / 3), np.full((2, 3), 1 / 3)])
    assert rows[[1, 2, 4]].tolist() == [[1, 0, 0]] * 3 and (rows[[0, 3]] == 1 / 3).all()
    assert split.array("token_labels").tolist() == [IGNORED, 1, 1, IGNORED, *[IGNORED] * 4]


def test_a_folder_prepared_with_another_column_is_not_used_in_silence(tmp_path):
    raw = write_raw(tmp_path / "raw", sizes={"train": 3})
    prepared = write_prepared(tmp_path, raw=raw)
    wanted = DataSettings(task=prepared.task, raw=raw, max_length=24, options=TaggingOptions(doc_stride=8))
    check_same(prepared, wanted)
    others = TaggingOptions(doc_stride=8, tags_column="2", scheme="plain")
    with pytest.raises(
        ValueError, match=r"--tags-column was not given and is 2 now; --scheme was not given and is plain now"
    ):
        check_same(prepared, dataclasses.replace(wanted, options=others))


def test_texts_that_do_not_fit_and_types_without_entities_are_counted(tmp_path):
    raw = tmp_path / "raw"
    write_columns(raw / "train.txt", [(["good", "x" * 40], ["B-X", "O"]), (["bad"], ["B-Y"])])
    write_columns(raw / "valid.txt", [(["good"], ["B-X"])])
    cut, lacking = remarks(write_prepared(tmp_path, raw=raw))
    assert cut == "train: 1 of 2 texts are longer than 24 tokens and were divided into windows (longest 44)"
    assert lacking.startswith("valid: no example has the label 'Y', so it is not measured")


def test_words_before_the_first_mark_are_a_document(tmp_path):
    lines = "good B-X\n\nbad O\n\n-DOCSTART- O\n\ngood O\n"
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "train.txt").write_text(lines)
    prepared = write_prepared(tmp_path, raw=tmp_path / "raw", context="document")
    (tmp_path / "raw" / "train.txt").write_text("-DOCSTART- O\n\n" + lines)
    marked = write_prepared(tmp_path / "marked", raw=tmp_path / "raw", context="document")
    assert len(prepared.split("train")) == 2, "one window for each document"
    assert [ids.tolist() for ids in prepared.split("train").sequences] == [
        ids.tolist() for ids in marked.split("train").sequences
    ]
