"""Extractive summaries: official files, the oracle's sentences, preparation."""

import gzip
import hashlib
import json
import logging
import lzma
from collections import namedtuple

import numpy as np
import pytest

from roberta_plugin.extensions.summaries import kind as summary
from roberta_plugin.extensions.summaries.benchmarks import examples, files, separate_sentences
from roberta_plugin.extensions.summaries.documents import oracle, words
from roberta_plugin.extensions.summaries.layout import sentences_of
from roberta_plugin.extensions.summaries.options import SummariesOptions
from roberta_plugin.finetuning.preparation import find_faults, remarks
from tests.tiny_benchmarks import prepared_of, words_tokenizer
from tests.tiny_summaries import NUM_SENTENCES, write_prepared, write_raw


def plain_f(given, right):
    hits = len(given & right)
    precision = hits / len(given) if given else 0.0
    recall = hits / len(right) if right else 0.0
    return 2.0 * ((precision * recall) / (precision + recall + 1e-8))


def plain_oracle(sentences, summary, most):
    """Every step computes both scores of every candidate from nothing."""

    def grams(tokens, order):
        return {tuple(tokens[start : start + order]) for start in range(len(tokens) - order + 1)}

    right = words(" ".join(summary))
    chosen, best = [], 0.0
    for _ in range(most):
        scores = {}
        for number in range(len(sentences)):
            if number not in chosen:
                score = 0.0
                for order in (1, 2):
                    given = set().union(*(grams(words(sentences[each]), order) for each in [*chosen, number]))
                    score += plain_f(given, grams(right, order))
                scores[number] = score
        number = max(scores, key=scores.get, default=None)  # the first of equals
        if number is None or scores[number] <= best:
            break
        best = scores[number]
        chosen.append(number)
    return sorted(chosen)


def test_the_example_of_the_docstring_and_nothing_is_chosen_without_a_common_word():
    assert oracle(["a dog", "the cat sat down", "the cat"], ["the cat sat"]) == [1]
    assert words("It's 3.5%.") == ["it", "s", "3", "5"]
    assert oracle(["a b", "c"], ["d"]) == oracle(["a"], []) == oracle([], ["a"]) == oracle(["..."], ["..."]) == []


def test_made_up_documents_have_the_oracle_of_the_plain_program():
    rng = np.random.default_rng(0)
    sizes = set()
    for _ in range(60):
        sentences = [" ".join(rng.choice(list("abcdefgh"), rng.integers(0, 7))) for _ in range(rng.integers(1, 9))]
        summary = [" ".join(rng.choice(list("abcdefghij"), rng.integers(1, 9))) for _ in range(2)]
        most = int(rng.integers(1, 5))
        found = oracle(sentences, summary, most=most)
        assert found == plain_oracle(sentences, summary, most)
        sizes.add(len(found))
    assert len(sizes) > 2


def test_real_articles_have_the_oracle_of_the_plain_program_and_it_is_the_summary(shared_data):
    """Whose sentences are the article's own: without a limit, greedy ROUGE finds most of them."""
    path = shared_data / "summaries" / "bbc_news_summary.dev.jsonl.xz"
    with lzma.open(path, "rt") as lines:
        records = [json.loads(next(lines)) for _ in range(8)]
    documents = list(zip(range(8), examples("summaries", "valid", [path], SummariesOptions()), strict=False))
    found = right = both = 0
    for number, document in documents:
        assert oracle(document.texts, document.target) == plain_oracle(document.texts, document.target, 3)
        chosen = {document.texts[each] for each in oracle(document.texts, document.target, most=30)}
        wanted = {each for each in document.texts if each in records[number]["summary"]}
        found, right, both = found + len(chosen), right + len(wanted), both + len(chosen & wanted)
    assert 2 * both / (found + right) > 0.9


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return write_prepared(tmp_path_factory.mktemp("summaries"))


def test_every_sentence_is_where_its_window_and_position_say(prepared):
    split, (tokenizer, vocabulary) = prepared.split("train"), words_tokenizer()
    window, position, first = (split.array(name) for name in ("window", "position", "first_sentence"))
    assert split.columns["sentences"].tolist() == np.diff(first).tolist() == [NUM_SENTENCES] * len(split)
    assert (np.diff(split.offsets) > 1).any(), "documents of more than one window"
    back = vocabulary.model_to_tokenizer(tokenizer)
    for number, record in enumerate(split.records()):
        for place, text in enumerate(record["sentences"]):
            at = first[number] + place
            ids = split.sequences[int(split.offsets[number] + window[at])][position[at] :]
            stop = int(np.flatnonzero(ids == vocabulary.eos_id)[0])
            assert ids[0] == vocabulary.bos_id
            assert tokenizer.decode(back[ids[1:stop]].tolist()) == text
    assert find_faults(prepared, split) == []


def test_the_sentences_of_the_summary_are_labelled(prepared):
    split = prepared.split("valid")
    labels, first = split.array("label"), split.array("first_sentence")
    for number, record in enumerate(split.records()):
        is_chosen = labels[first[number] : first[number + 1]]
        chosen = [text for text, label in zip(record["sentences"], is_chosen, strict=True) if label]
        assert sorted(chosen) == sorted(record["summary"])


def test_what_is_left_out_and_cut_is_counted(tmp_path, caplog):
    raw = write_raw(tmp_path / "raw", sizes={"train": 3})
    with (raw / "train.jsonl").open("a") as file:
        file.write(json.dumps({"id": "far", "text": ["good"], "summary": "bad"}) + "\n")
    folder = tmp_path / "stories" / "train"
    folder.mkdir(parents=True)
    (folder / "0.story").write_text("One. Two.\n\n@highlight\n\nOne\n")
    (folder / "1.story").write_text("\n\n@highlight\n\nOne\n")
    (folder / "2.story").write_text("One.\n")
    with caplog.at_level(logging.INFO):
        prepared = write_prepared(tmp_path, raw=raw, options=SummariesOptions(sentence_length=5))
        assert prepared.split("train").sequences.sizes.max() <= 64
        assert "1 documents share no word with their summary" in caplog.text
        (of_sentences,) = remarks(prepared)
        assert of_sentences.startswith("train: 24 of 25 sentences are longer than 5 tokens and were cut")
        prepared_of("cnn_dailymail", folder.parent, tmp_path / "out")
    assert "2 documents without text or with an empty" in caplog.text
    (folder / "0.story").unlink()
    with pytest.raises(ValueError, match="The split train holds no document"):
        prepared_of("cnn_dailymail", folder.parent, tmp_path / "none")


def test_what_cannot_be_learned_evaluated_or_held_in_memory_is_said(tmp_path, caplog, monkeypatch):
    raw = write_raw(tmp_path / "raw", sizes={"train": 3, "valid": 2})
    lines = [json.dumps({"text": "good", **summary}) for summary in ({"summary": "good"}, {}, {})]
    (raw / "test.jsonl").write_text("\n".join(lines))
    monkeypatch.setattr(summary, "_MANY_WINDOWS", 1)
    with caplog.at_level(logging.WARNING):
        write_prepared(tmp_path, raw=raw)
    assert "test: 2 of 3 documents have no summary, so the split is predicted and not evaluated" in caplog.text
    assert caplog.text.count("has 2 windows, which are trained at once and may not fit into the memory") == 3
    (raw / "train.jsonl").write_text(json.dumps({"text": "good", "summary": "bad"}) + "\n")
    with pytest.raises(ValueError, match="train: none of its 1 documents shares a word with its summary, so there is"):
        write_prepared(tmp_path / "again", raw=raw)


STORY = (
    "First words here. A second sentence.\n\nA new paragraph\n\n@highlight\n\nIt is {}\n\n@highlight\n\nSo it goes\n"
)
OPTIONS = SummariesOptions()


def write_lines(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


Document = namedtuple("Document", ("id", "texts", "target"))


def read(raw, task="summaries", split="train", options=OPTIONS):
    return [Document(*each[2:5]) for each in examples(task, split, files(task, raw, options)[split], options)]


def test_a_text_is_split_into_sentences_and_a_list_is_kept(tmp_path):
    text = "It rained. We stayed.\n\nThen  it\tstopped."
    write_lines(
        tmp_path / "train.jsonl",
        {"id": "a", "text": text, "summary": "Then it stopped.It rained."},
        {"id": 7, "text": ["It rained. We stayed.", "Why?"], "summary": ["Why?"]},
    )
    first, second = read(tmp_path)
    assert first == ("a", ("It rained.", "We stayed.", "Then it stopped."), ("Then it stopped.", "It rained."))
    assert second == ("7", ("It rained. We stayed.", "Why?"), ("Why?",))


def test_sentences_that_are_run_together_are_parted_and_numbers_and_names_are_not():
    found = sentences_of(separate_sentences('It fell to 3.5%.The U.S.A. rose."Why?" he said.'))
    assert found == ["It fell to 3.5%.", "The U.S.A. rose.", '"Why?" he said.']
    assert separate_sentences("\u0434\u0430.\u041d\u0435\u0442") == "\u0434\u0430.\n\u041d\u0435\u0442"


def test_compressed_files_fields_and_names_of_files(tmp_path):
    line = json.dumps({"doc": "It rained.", "abstract": "Rain.", "name": "x"}) + "\n"
    (tmp_path / "mine.jsonl.xz").write_bytes(lzma.compress(line.encode()))
    (tmp_path / "dev.jsonl.gz").write_bytes(gzip.compress(line.strip().encode()))
    options = SummariesOptions(train="mine.jsonl.xz", text_field="doc", summary_field="abstract", id_field="name")
    found = {split: path.name for split, (path,) in files("summaries", tmp_path, options).items()}
    assert found == {"train": "mine.jsonl.xz", "valid": "dev.jsonl.gz"}
    for split in found:
        assert read(tmp_path, split=split, options=options) == [("x", ("It rained.",), ("Rain.",))]


def test_a_test_document_may_have_no_summary_and_an_id_is_the_number_of_the_line(tmp_path):
    lacking = [{}, *({"summary": value} for value in (None, "", " ", []))]
    write_lines(tmp_path / "test.jsonl", *({"text": "It rained.", **summary} for summary in lacking))
    assert read(tmp_path, split="test") == [(str(line), ("It rained.",), None) for line in range(1, 6)]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            {"id": 1, "summary": "x"},
            r"line 2: there is no column 'text'; there are 'id', 'summary'. .* by --text-field",
        ),
        ({"id": 1, "text": "x"}, r"line 2 has no 'summary': add the summary, or name its field by --summary-field"),
        ({"id": 1, "text": " ", "summary": "x"}, r"line 2: text is empty"),
        ({"id": 1, "text": [], "summary": "x"}, r"line 2: text has no sentence"),
        ({"id": 1, "text": ["a", 3], "summary": "x"}, r"line 2: text, sentence 2 must be a text, found 3"),
        ({"id": "a", "text": "x", "summary": "x"}, r"line 2: the id 'a' occurs in .*line 1 already"),
        ([1], r"line 2: expected a JSON object, found \[1\]"),
    ],
)
def test_a_bad_line_is_named(tmp_path, record, message):
    write_lines(tmp_path / "train.jsonl", {"id": "a", "text": "x", "summary": "x"}, record)
    with pytest.raises(ValueError, match=message):
        read(tmp_path)


RECORDS = [
    {"id": "a", "text": "It rained, and rained. We stayed.", "summary": "It rained."},
    {"id": "b", "text": "Why?", "summary": "Why?"},
]


def write_parquet(path, records):
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    parquet.write_table(pyarrow.Table.from_pylist(records), path)


def test_a_table_in_any_form_holds_the_same_documents(tmp_path):
    write_lines(tmp_path / "train.jsonl", *RECORDS)
    write_parquet(tmp_path / "valid.parquet", RECORDS)
    (tmp_path / "test.csv").write_text(
        "id,text,summary\n" + "".join('{id},"{text}",{summary}\n'.format(**record) for record in RECORDS)
    )
    expected = [("a", ("It rained, and rained.", "We stayed."), ("It rained.",)), ("b", ("Why?",), ("Why?",))]
    for split in ("train", "valid", "test"):
        assert read(tmp_path, split=split) == expected
    (tmp_path / "test.csv").write_text("id,text,summary\na,Why?,\n")
    assert read(tmp_path, split="test") == [("a", ("Why?",), None)]
    (tmp_path / "mine.csv").write_text("id,text,summary\na,Why?,So.\nb,Why?,\n")
    with pytest.raises(ValueError, match=r"mine.csv, line 3: summary is empty. Fill it in"):
        read(tmp_path, options=SummariesOptions(train="mine.csv"))


def test_cnn_dailymail_in_hugging_faces_form_is_that_of_the_stories(tmp_path):
    """Columns article, highlights and id; Parquet in parts; a line of the highlights is a sentence of the summary."""
    (tmp_path / "stories" / "train").mkdir(parents=True)
    records = []
    for number in range(3):
        story = STORY.format(number)
        (tmp_path / "stories" / "train" / f"{number}.story").write_text(story)
        article, *highlights = story.split("@highlight")
        lines = "\n".join(each.strip() for each in highlights)
        records.append({"article": article.strip(), "highlights": lines, "id": str(number)})
    expected = read(tmp_path / "stories", "cnn_dailymail")
    assert expected[0].target == ("It is 0", "So it goes")
    write_parquet(tmp_path / "train-00000-of-00002.parquet", records[:2])
    write_parquet(tmp_path / "train-00001-of-00002.parquet", records[2:])
    write_lines(tmp_path / "validation.jsonl", *records)
    for split in ("train", "valid"):
        assert read(tmp_path, "cnn_dailymail", split) == expected
    write_parquet(tmp_path / "train-00001-of-00002.parquet", records[:1])
    write_lines(tmp_path / "test.jsonl", {"article": "", "highlights": "x", "id": "1"}, {"text": "a", "id": "2"})
    write_lines(tmp_path / "validation.jsonl", {"article": "a", "id": "1"})
    for split, message in (
        ("train", r"00001-of-00002.parquet, row 1: the id '0' .*00000-of-00002.parquet, row 1 already"),
        ("test", r"test.jsonl, line 2: there is no column 'article'; there are 'text', 'id'. .* of the task"),
        ("valid", r"line 1 has no 'highlights': add the summary, or use the task summaries and"),
    ):
        with pytest.raises(ValueError, match=message):
            read(tmp_path, "cnn_dailymail", split)
    write_lines(tmp_path / "test.jsonl", {"article": "", "highlights": "x", "id": "1"})
    assert read(tmp_path, "cnn_dailymail", "test") == [("1", (), ("x",))], "prepare leaves it out, and counts it"
    write_lines(tmp_path / "test.jsonl", {"article": "a", "highlights": "", "id": "1"})
    assert read(tmp_path, "cnn_dailymail", "test") == [("1", ("a",), ())], "so that the others are evaluated"


def test_nothing_to_read_is_said(tmp_path):
    for task in ("summaries", "cnn_dailymail"):
        with pytest.raises(FileNotFoundError, match=f"has no data for {task}: looked for"):
            files(task, tmp_path, OPTIONS)
    with pytest.raises(FileNotFoundError, match=r"--train .*x.jsonl does not exist: check the path"):
        files("summaries", tmp_path, SummariesOptions(train="x.jsonl"))


def test_stories_in_a_folder_for_each_split(tmp_path):
    for split in ("train", "val"):
        (tmp_path / split).mkdir()
        (tmp_path / split / "0a.story").write_text(STORY.format(split))
    found = files("cnn_dailymail", tmp_path, OPTIONS)
    assert list(found) == ["train", "valid"]
    (story,) = read(tmp_path, "cnn_dailymail", "valid")
    assert story.id == "0a"
    assert story.texts == ("First words here.", "A second sentence.", "A new paragraph")
    assert story.target == ("It is val", "So it goes")


def test_stories_by_lists_of_addresses(tmp_path):
    """As distributed: the stories of both newspapers in a folder each, and lists of addresses beside them."""
    addresses = [f"http://paper{number % 2}/{number}" for number in range(4)]
    for number, address in enumerate(addresses):
        folder = tmp_path / f"paper{number % 2}" / "stories"
        folder.mkdir(parents=True, exist_ok=True)
        name = hashlib.sha1(address.encode()).hexdigest()
        (folder / f"{name}.story").write_text(STORY.format(number))
    lists = tmp_path / "url_lists"
    lists.mkdir()
    (lists / "all_train.txt").write_text("\n".join(addresses[:3]) + "\n")
    (lists / "all_val.txt").write_text(addresses[3])
    (lists / "cnn_wayback_training_urls.txt").write_text(addresses[3])  # all_* counts
    assert [story.target[0] for story in read(tmp_path, "cnn_dailymail")] == ["It is 0", "It is 1", "It is 2"]
    assert [story.target[0] for story in read(tmp_path, "cnn_dailymail", "valid")] == ["It is 3"]
    (lists / "all_val.txt").write_text("http://none")
    with pytest.raises(FileNotFoundError, match=r"all_val.txt, line 1: the story of http://none would be [0-9a-f]{40}"):
        files("cnn_dailymail", tmp_path, OPTIONS)
