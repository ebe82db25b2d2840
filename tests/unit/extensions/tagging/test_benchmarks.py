"""Tagging: files of CoNLL, labels, WNUT 2017, preparation, recipe, scores, prediction files."""

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
from roberta_plugin.experiments.evaluation import EvaluateSettings
from roberta_plugin.experiments.evaluation import evaluate as evaluate_splits
from roberta_plugin.experiments.evaluation_report import write_report
from roberta_plugin.extensions.tagging.benchmarks import shown, tags_and_labels
from roberta_plugin.extensions.tagging.entities import (
    Sentences,
    TagCounts,
    best_valid,
    entities_of,
    entity_labels,
    invalid_places,
    types_of,
)
from roberta_plugin.extensions.tagging.files import read_file
from roberta_plugin.extensions.tagging.layout import IGNORED
from roberta_plugin.extensions.tagging.options import TaggingOptions
from roberta_plugin.finetuning.benchmarks import benchmark_of
from roberta_plugin.finetuning.examples import Example
from roberta_plugin.finetuning.kinds.outputs import RawOutputs, write_outputs
from roberta_plugin.finetuning.layouts.texts import Encoder
from roberta_plugin.finetuning.preparation import DataSettings, check_same, remarks
from roberta_plugin.finetuning.prepared import Prepared
from tests.real_data import unpack
from tests.tiny_benchmarks import words_tokenizer
from tests.tiny_tagging import write_columns, write_prepared, write_raw


def convert(*lines, task="tagging", further=None, **options):
    """The labels of the model for these tags of sentences, and the numbers of each word of each split."""
    splits = {}
    for name, sentences in {"train": lines, **(further or {})}.items():
        splits[name], line = [], 1
        for tags in map(str.split, sentences):
            splits[name].append(Example(Path("f.txt"), line, "", tuple("w" * len(tags)), tuple(tags)))
            line += len(tags) + 1
    splits, labels = tags_and_labels(task, splits, TaggingOptions(**options))
    kind = benchmark_of(task).kind_for({"labels": labels})
    return labels, {name: [kind.numbers_of_tags(each) for each in sentences] for name, sentences in splits.items()}


def test_labels_are_numbered_by_a_rule():
    assert entity_labels(["LOC", "PER"]) == ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    assert types_of(entity_labels(["LOC", "PER"])) == ["LOC", "PER"]
    assert types_of(["DT", "NN", "VB"]) is types_of(["O", "I-LOC", "B-LOC"]) is None
    assert convert("NN VB , NN", scheme="plain") == ([",", "NN", "VB"], {"train": [[1, 2, 0, 1]]}), "as they are"


@pytest.mark.parametrize("tags", ["B-X I-X B-X O B-Y", "I-X I-X B-X O I-Y", "B-X E-X S-X O S-Y", "B-X L-X U-X O U-Y"])
def test_every_scheme_becomes_the_same_labels(tags):
    assert convert(tags, strict=True) == (["O", "B-X", "I-X", "B-Y", "I-Y"], {"train": [[1, 2, 1, 0, 3]]})


def test_types_of_any_split_have_labels_and_those_that_train_lacks_are_named(caplog):
    labels, numbers = convert("B-X", further={"valid": ["B-A"], "test": ["O"]})
    assert labels == ["O", "B-A", "I-A", "B-X", "I-X"]
    assert numbers["valid"] == [[1]]
    assert "valid has the types A, which no entity of train has" in caplog.text
    assert len(convert("O B-PER", task="conll2003")[0]) == 9, "official sets have all their labels"
    assert len(convert("O", task="wnut17")[0]) == 13
    assert convert("B-X", types="Z,X")[0] == ["O", "B-Z", "I-Z", "B-X", "I-X"]


def test_types_and_plain_tags_that_look_alike_are_named(caplog):
    convert("B-PER I-PER O B-Per", further={"valid": ["O B-PER\u200b"]})
    assert "f.txt, line 4: the type 'Per' differs from 'PER' (f.txt, line 1) only in spelling" in caplog.text
    assert "f.txt, line 2: the type 'PER\\u200b' differs from 'PER'" in caplog.text
    convert("NN nn", scheme="plain")
    assert "f.txt, line 2: the tag 'nn' differs from 'NN'" in caplog.text


def test_invalid_sequences_are_named_and_read_as_conlleval_reads_them(caplog):
    tags = "B-X O B-X", "O I-X I-X"
    assert convert(*tags)[1] == {"train": [[1, 0, 1], [0, 1, 2]]}
    assert "train: 1 tag is invalid in IOB2" in caplog.text
    assert "f.txt, line 6: I-X, read as B-X" in caplog.text
    with pytest.raises(ValueError, match=r"f\.txt, line 6: I-X, read as B-X: the tag is invalid in IOB2 after"):
        convert(*tags, strict=True)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        convert("I-X I-X", "I-X B-X", strict=True)
    assert not caplog.records, "IOB1"
    convert("B-X I-X O B-X", *["O B-X"] * 20, *["O I-X"] * 8, scheme="iob2")
    assert "8 tags are invalid" in caplog.text and "and 3 more" in caplog.text
    assert caplog.text.count("read as B-X") == 5


@pytest.mark.parametrize(
    ("tags", "options", "message"),
    [
        ("O B-X NN", {}, r"f\.txt, line 3: the tag 'NN' is neither.*, as 'B-X' is.*--tags-column.*--scheme plain"),
        ("O NN", {"task": "conll2003"}, r"f\.txt, line 2: the tag 'NN' is neither.*--tags-column"),
        ("O B-PER", {"task": "wnut17"}, r"f\.txt, line 2: the type of 'B-PER' is none of corporation, creative-work"),
        ("B-X O B-Y", {"types": "X, Z"}, r"line 3: the type of 'B-Y' is none of X, Z"),
    ],
)
def test_tags_that_cannot_be_used_are_named(tags, options, message):
    with pytest.raises(ValueError, match=message):
        convert(tags, **options)


CONLL = "-DOCSTART- -X- -X- O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\nPeter NNP B-NP B-PER\n"
CONLL += "-DOCSTART- -X- -X- O\n\nBlackburn NNP I-NP I-PER\n"


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


def test_other_white_space_and_invisible_characters_are_part_of_a_word_which_may_be_empty_between_tabs(tmp_path):
    words = ["watched\u200bwas", "Dubbz\ufeff", "a\u00a0b", "c\u2028d", "e\x85", "\u200b"]
    assert read(tmp_path, "".join(f"{word}  O\n" for word in words))[0].texts == tuple(words)
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
    with pytest.raises(ValueError, match=r"train\.txt, line 1: there are no tags, and only a test file may omit them"):
        read(tmp_path, "a\nb\n")


FIRST = '{"tokens": ["a"], "tags": ["O"]}\n'


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a O\nb B-X x\n", {}, "line 2 has 3 columns, and the first line 2: 'b B-X x'"),
        ("a O\n# id 1\n", {}, "line 2 has 3 columns, and the first line 2: '# id 1'. Correct the line. Columns are"),
        ("a\tO\nb\t\n", {}, "line 2: the tag of 'b' is empty"),
        ("a O\n", {"tags_column": "3"}, "--tags-column 3, but the first line has 2 columns"),
        ("a O\n", {"tags_column": "ner"}, "--tags-column ner, but the first line names the columns a, O"),
        ("a O\n", {"tags_column": "1"}, "words and tags are both in column 1"),
        ("\n \n", {}, "holds no words"),
        (b"a O\r\r\xff O\n", {}, "line 3: byte 0xff is not UTF-8"),
        ("a O\n".encode("utf-16-le"), {}, "line 1: it holds byte 0x00"),
        ("a O\n", {"tags_column": "\u00b2"}, "--tags-column \u00b2, but the first line names the columns a, O"),
        (FIRST + "{", {}, "line 2: it is not valid JSON"),
        (FIRST + "[" * 100_000, {}, "line 2: it is not valid JSON"),
        (FIRST + "[1]", {}, "line 2: expected a JSON object, found [1]"),
        (FIRST + '{"text": "a"}', {}, "line 2 has no field tokens"),
        (FIRST + '{"tokens": "a", "tags": ["O"]}', {}, "line 2: tokens must be a list, found 'a'"),
        (FIRST + '{"tokens": ["a", "b"], "tags": ["O"]}', {}, "line 2 has 2 words and 1 tags"),
        (
            FIRST + '{"tokens": ["a"], "tags": [0]}',
            {},
            "line 2: the tags (--tags-column) are numbers, such as 0, and neither",
        ),
        (FIRST + '{"tokens": ["\\ud83d"], "tags": ["O"]}', {}, "line 2: tokens, entry 1, holds half of a surrogate pa"),
        (FIRST + '{"tokens": ["a"]}', {}, "line 2, word 1: there are no tags"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, options, message):
    name = "train.jsonl" if isinstance(text, str) and text.startswith("{") else "train.txt"
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path / name}") + ".*" + re.escape(message)):
        read(tmp_path, text, name=name, **options)


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
        at = zip(words, sentences.windows, sentences.positions, sentences.tags, strict=True)
        for word, window, position, label in at:
            rest = split.sequences[window][position:-1].tolist()
            spaced = encoder.ids(f" {word}").tolist(), encoder.ids(word).tolist()
            assert any(rest[: len(found)] == found[: len(rest)] for found in spaced)
            assert learned[window][position] == label
        num_learned = sum(int((each != IGNORED).sum()) for each in learned)
        num_tokens = sum(len(encoder.ids(" ".join(each.texts))) for each in raw)
        assert num_learned == (num_tokens if is_all else len(words))


def test_a_document_is_read_at_once_and_its_sentences_stay_apart(tmp_path):
    sentence = "xyz N O\ngood N B-X\nbad N I-X\n\n"
    documents = ["-DOCSTART- -X- O\n\n" + sentence * number for number in (2, 3, 4)]
    (tmp_path / "raw").mkdir()
    for first in (documents[0], documents[0].partition("\n\n")[2]):  # words before the first mark are a document, too
        (tmp_path / "raw" / "train.txt").write_text(first + documents[1] + documents[2])
        folder = tmp_path / str(len(first))
        split = write_prepared(folder, raw=tmp_path / "raw", max_length=18, context="document").split("train")
        sentences = Sentences(split)
        assert len(np.unique(sentences.offsets)) == 10, "9 sentences"
        whole = Encoder(*words_tokenizer()).ids(" ".join(["xyz good bad"] * 2)).tolist()
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
    said = r"--tags-column was not given and is 2 now; --scheme was not given and is plain now"
    with pytest.raises(ValueError, match=said):
        check_same(prepared, dataclasses.replace(wanted, options=others))


def test_texts_that_do_not_fit_and_types_without_entities_are_counted(tmp_path):
    raw = tmp_path / "raw"
    write_columns(raw / "train.txt", [(["good", "x" * 40], ["B-X", "O"]), (["bad"], ["B-Y"])])
    write_columns(raw / "valid.txt", [(["good"], ["B-X"])])
    cut, lacking = remarks(write_prepared(tmp_path, raw=raw))
    assert cut == "train: 1 of 2 texts are longer than 24 tokens and were divided into windows (longest 44)"
    assert lacking.startswith("valid: no example has the label 'Y', so it is not measured")


@pytest.fixture(scope="module")
def tagged(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tagging")
    raw = write_raw(folder / "raw")
    (raw / "test.txt").write_text("good\n\nbad\nxyz\n")
    return write_prepared(folder, raw=raw)


def outputs(tagged, split="valid", *, seed=0, right=0.0):
    """Random logits of all tokens; `right` is added to those of the right tags."""
    part, rng = tagged.split(split), np.random.default_rng(seed)
    labels = np.asarray(part.array("token_labels"))
    logits = rng.normal(size=(len(labels), len(tagged.settings["labels"])), scale=2).astype(np.float32)
    logits[np.flatnonzero(labels >= 0), labels[labels >= 0]] += right
    return RawOutputs(token_logits=np.split(logits, np.cumsum(part.sequences.sizes)[:-1]))


def score(tagged, split, *members, folder=None, **options):
    return benchmark_of("tagging").score(tagged, split, members, folder=folder, options=TaggingOptions(**options))


def columns(path):
    blocks = path.read_text().split("\n\n")
    assert blocks.pop() == ""
    return [[line.split(" ") for line in block.split("\n")] for block in blocks]


def test_right_logits_score_100_and_random_ones_do_not(tagged, tmp_path):
    perfect = score(tagged, "valid", outputs(tagged, right=50.0))
    assert {perfect[name] for name in perfect} == {100.0}
    found = score(tagged, "valid", outputs(tagged), folder=tmp_path)
    assert 0 < found["f1"] < 50
    assert set(found) == {"accuracy"} | {
        f"{name}{end}" for name in ("f1", "precision", "recall") for end in ("", "_FINE", "_POOR")
    }
    sentences = columns(tmp_path / "valid.predictions.conll")
    assert sum(map(len, sentences)) == len(Sentences(tagged.split("valid")))
    right = sum(gold == given for lines in sentences for _, gold, given in lines)
    assert found["accuracy"] == 100 * right / sum(map(len, sentences))
    report = (tmp_path / "valid.report.txt").read_text()
    assert f"FB1: {found['f1']:6.2f}" in report
    assert f"             FINE: precision: {found['precision_FINE']:6.2f}%" in report


def test_a_type_without_entities_in_a_split_is_not_measured(tmp_path):
    raw = write_raw(tmp_path / "raw")
    (raw / "valid.txt").write_text("good NN B-FINE\n\nxyz NN O\nbad NN O\n")
    tagged = write_prepared(tmp_path, raw=raw)
    write_outputs(tmp_path / "outputs", outputs(tagged, right=50.0), tagged.split("valid"))
    run = {"checkpoints": [tmp_path / "none.pt"], "stored": [tmp_path / "outputs"], "output_dir": tmp_path}
    settings = EvaluateSettings(data=tagged.folder, splits=["valid"], **run)
    table = write_report(evaluate_splits(settings), tmp_path)
    results = (tmp_path / "results.md").read_text()
    assert "| f1_FINE | 100.0 |" in results and "_POOR |" not in results
    for text in (table, results):
        assert "valid: no example has the label 'POOR', so it is not measured\n" in text


def test_valid_sequences_on_request(tagged, tmp_path):
    def invalid(**options):
        score(tagged, "valid", outputs(tagged), folder=tmp_path, **options)
        lines = columns(tmp_path / "valid.predictions.conll")
        return sum(len(invalid_places([line[2] for line in sentence], "iob2")) for sentence in lines)

    assert invalid() > 10
    assert invalid(valid_sequences=True) == 0


def test_an_ensemble_averages_the_probabilities_of_words(tagged):
    members = [outputs(tagged, seed=seed, right=2.0) for seed in range(3)]
    sentences = Sentences(tagged.split("valid"))
    mean = 0
    for member in members:
        rows = []
        for window, position in zip(sentences.windows, sentences.positions, strict=True):
            logits = member.token_logits[window][position].astype(np.float64)
            rows.append(np.exp(logits) / np.exp(logits).sum())
        mean = mean + np.array(rows) / 3
    valid = best_valid(mean, sentences.offsets, tagged.settings["labels"])
    for chosen, options in ((mean.argmax(1), {}), (valid, {"valid_sequences": True})):
        expected = TagCounts(sentences.tags, chosen, sentences.is_first, ["FINE", "POOR"]).metrics()
        assert score(tagged, "valid", *members, **options) == pytest.approx(expected)
    assert score(tagged, "valid", *members)["f1"] > score(tagged, "valid", members[0])["f1"]


@pytest.mark.parametrize("tags", [["NN", "VB"], ["S-X", "O"]])
def test_plain_tags_have_an_accuracy(tmp_path, tags):
    raw = tmp_path / "raw"
    write_columns(raw / "train.txt", [(["good", "xyz"], tags)] * 4)
    tagged = write_prepared(tmp_path, raw=raw, scheme="plain")
    assert benchmark_of("tagging").recipe(tagged).metric["value"] == "accuracy"
    found = score(tagged, "train", outputs(tagged, "train", right=50.0), folder=tmp_path, valid_sequences=True)
    assert found == {"accuracy": 100.0}
    assert not (tmp_path / "train.report.txt").exists()


def test_words_have_no_white_space_in_a_column():
    assert [shown(word) for word in ("New York", "", "a\u00a0b\n", "\u200b")] == ["New_York", "_", "a_b_", "\u200b"]


def test_files_of_universal_dependencies_and_saved_data_sets_are_found(tmp_path):
    for name in ("tr_imst-ud-train.conllu", "tr_imst-ud-dev.conllu.gz", "test.parquet", "README.md"):
        (tmp_path / name).touch()
    assert {split: path.name for split, (path,) in files_of("tagging", tmp_path).items()} == {
        "train": "tr_imst-ud-train.conllu",
        "valid": "tr_imst-ud-dev.conllu.gz",
        "test": "test.parquet",
    }
    (tmp_path / "dev").mkdir()
    with pytest.raises(
        FileNotFoundError, match=r"looked for train, valid \(or dev, validation\) and test, .*\.conllu.*\.parquet"
    ):
        files_of("tagging", tmp_path / "dev")
    for name in ("train-00000-of-00002", "train-00001-of-00002", "validation-00000-of-00001"):
        (tmp_path / "dev" / f"{name}.parquet").touch()
    found = {split: path.name for split, (path,) in files_of("tagging", tmp_path / "dev").items()}
    assert found == {"train": "train-[0-9]*-of-[0-9]*.parquet", "valid": "validation-00000-of-00001.parquet"}, (
        "of the hub"
    )
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "state.json").touch()
    assert files_of("tagging", tmp_path)["train"] == [tmp_path / "train"], "a folder of datasets"
    (tmp_path / "de_gsd-ud-dev.conllu").touch()
    with pytest.raises(ValueError, match=r"several files with such a name: de_gsd-ud-dev\.conllu, tr_imst"):
        files_of("tagging", tmp_path)
