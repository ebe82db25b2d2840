"""Whole binarizations: files, resumes and refusals, and what is suspicious about a result."""

import gzip
import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from roberta_plugin.data.binarize.parts import Counts, read_head, read_part, write_part_file
from roberta_plugin.data.binarize.pipeline import (
    BinarizeSettings,
    DictionarySettings,
    binarize,
    build_vocabulary,
    refuse_nonsense,
    warnings_about,
)
from roberta_plugin.data.mmap_tokens import MmapTokens, SharedFiles
from roberta_plugin.data.text_inputs import BadLineError, InputSettings, LineRules
from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.tokenizers.byte_level_bpe import ByteLevelBpe
from roberta_plugin.data.vocabulary import MASK, SPECIALS, Row, Vocabulary
from tests.conftest import files_up_to
from tests.refusals import refused
from tests.tiny_tokenizers import byte_level_bpe

TEXT = "the cat\n\n  sat on\nthe mat\n"
LINES = "".join(f"line {number} of the text\n" for number in range(400))


def tokenizer_of(merges=(("t", "h"), ("th", "e"))):
    return byte_level_bpe(merges, use_fast_engine=False)


def vocabulary_of(tokenizer, without=()):
    return Vocabulary([Row(symbol, 1) for symbol in tokenizer.symbols if int(symbol) not in without])


@pytest.fixture
def make(tmp_path):
    """`binarize` of a text with what is the same in most tests."""

    def call(text=TEXT, **options):
        path = tmp_path / options.pop("name", "text.txt")
        if not path.exists() or path.read_bytes() != (text.encode() if isinstance(text, str) else text):
            path.write_bytes(text.encode() if isinstance(text, str) else text)
        tokenizer = options.pop("tokenizer", tokenizer_of())
        where = {"split": "train", "destination": tmp_path / "data"}
        what = {**where, "tokenizer": tokenizer, "vocabulary": vocabulary_of(tokenizer)}
        inputs = options.pop("inputs", [path])
        what |= {name: options.pop(name) for name in list(options) if name in what}
        return binarize(inputs, **what, settings=BinarizeSettings(**{"workers": 1, **options}), progress=False)

    return call


def texts_of(folder, split="train"):
    tokens = MmapTokens(folder / split)
    tokenizer = load_tokenizer(folder)
    back = Vocabulary.load(folder / "dict.txt").model_to_tokenizer(tokenizer)
    assert all(tokens[index][-1] == 2 for index in range(len(tokens)))
    return [tokenizer.decode(back[tokens[index][:-1]].tolist()) for index in range(len(tokens))]


def snapshot(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_writes_a_data_bin_that_needs_nothing_else(make, tmp_path):
    manifest = make()
    folder = tmp_path / "data"
    files = ["dict.txt", "encoder.json", "manifest.json", "train.bin", "train.idx", "vocab.bpe"]
    assert sorted(path.name for path in folder.iterdir()) == files
    assert texts_of(folder) == ["the cat", "", "sat on", "the mat"]
    assert MmapTokens(folder / "train")[1].tolist() == [2]
    assert json.loads((folder / "manifest.json").read_text()) == manifest


def test_manifest_tells_inputs_counts_and_hashes(make, tmp_path):
    manifest = make(vocabulary=vocabulary_of(tokenizer_of(), without=[ord("c"), ord("m")]))
    split = manifest["splits"]["train"]
    assert split["inputs"] == [
        {"path": str(tmp_path / "text.txt"), "bytes": len(TEXT), "sha256": hashlib.sha256(TEXT.encode()).hexdigest()}
        | {"format": "text"}
    ]
    tokens = MmapTokens(tmp_path / "data" / "train")
    expected = {"text_bytes": len(TEXT), "items": 4, "blank_lines": 1, "tokens": tokens.num_tokens}
    assert split["counts"] == {**expected, "unknown": 2, "bad_lines": 0}
    assert (tokens.tokens == 3).sum() == 2
    for name, record in split["outputs"].items():
        assert record["sha256"] == hashlib.sha256((tmp_path / "data" / name).read_bytes()).hexdigest()
    assert manifest["num_symbols"] == 4 + 258 - 2
    assert manifest["tokenizer"]["kind"] == "byte_level_bpe"


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("part_bytes", [700, 10**6])
def test_same_files_for_any_number_of_workers(make, tmp_path, workers, part_bytes):
    text = "".join(f"line {number} of the text\r\n" + "\n" * (number % 7 == 0) for number in range(300))
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.txt").write_text(text)
    (tmp_path / "more" / "b.txt.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "more" / "c.jsonl").write_text(json.dumps({"text": text}) + "\n")
    (tmp_path / "more" / "d.txt").write_text("")
    make(inputs=[str(tmp_path / "more" / "*")], destination=tmp_path / "one", part_bytes=part_bytes)
    make(inputs=[str(tmp_path / "more" / "*")], destination=tmp_path / "two", part_bytes=part_bytes, workers=workers)
    assert snapshot(tmp_path / "one") == snapshot(tmp_path / "two")
    lines = [line.strip() for line in text.replace("\r\n", "\n").split("\n")[:-1]]
    assert texts_of(tmp_path / "two") == [*lines, *lines, *(line for line in lines if line), ""]


def test_several_splits_share_a_folder(make, tmp_path):
    make()
    manifest = make("valid text\n", split="valid", name="valid.txt")
    assert sorted(manifest["splits"]) == ["train", "valid"]
    assert texts_of(tmp_path / "data", "valid") == ["valid text"]
    assert len(texts_of(tmp_path / "data")) == 4


def test_options_of_lines(make, tmp_path):
    make("  a\n\t\nb", rules=LineRules(keep_spaces=True), blank_line_after_files=True)
    assert texts_of(tmp_path / "data") == ["  a", "", "b", ""]
    manifest = make(b"a\n\xff\nb\n", rules=LineRules(skip_bad_lines=True), overwrite=True)
    assert texts_of(tmp_path / "data") == ["a", "b"]
    assert manifest["splits"]["train"]["counts"]["bad_lines"] == 1


def test_no_text_at_all(make, tmp_path):
    for text in ("", "\n\n"):
        refused("There is no text for the split train, only blank lines or nothing", make, text)
    assert not list((tmp_path / "data").glob("train*"))


def test_the_same_call_again_does_nothing_and_overwrite_makes_a_damaged_split_again(make, tmp_path):
    path, first = tmp_path / "data" / "train.bin", make()
    times, content = times_of(tmp_path / "data"), path.read_bytes()
    assert make() == first
    assert times_of(tmp_path / "data") == times
    path.write_bytes(b"\0" * len(content))
    make()
    assert path.read_bytes() != content
    make(overwrite=True)
    assert path.read_bytes() == content


def times_of(folder, pattern="*"):
    return {path.name: path.stat().st_mtime_ns for path in folder.glob(pattern)}


def test_workers_that_load_the_tokenizer_themselves_give_the_same(make, tmp_path, monkeypatch):
    """As where forking is unsafe: on macOS."""
    make(destination=tmp_path / "forked", workers=2, part_bytes=10)
    monkeypatch.setattr("roberta_plugin.data.binarize.workers.sys.platform", "darwin")
    monkeypatch.setattr("sys.argv", ["roberta"])
    make(destination=tmp_path / "spawned", workers=2, part_bytes=10)
    assert snapshot(tmp_path / "spawned") == snapshot(tmp_path / "forked")


def test_another_corpus_is_kept_unless_told_otherwise(make, tmp_path):
    make()
    before = snapshot(tmp_path / "data")
    message = r"train\.bin of another .*text of train was .* 1 file and is .*--overw"
    refused(message, make, "other text\n", name="other.txt", error=FileExistsError)
    assert snapshot(tmp_path / "data") == before
    make("other text\n", name="other.txt", overwrite=True)
    assert texts_of(tmp_path / "data") == ["other text"]


def test_a_corpus_of_fairseq_is_kept(make, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.idx").write_bytes(b"theirs")
    refused(r"train\.idx of another corpus", make, error=FileExistsError)
    assert snapshot(tmp_path / "data") == {"train.idx": b"theirs"}


def test_another_vocabulary_or_tokenizer_is_refused(make, tmp_path):
    make()
    before = snapshot(tmp_path / "data")
    other = tokenizer_of((("h", "e"), ("t", "he")))
    refused("another tokenizer", make, split="valid", tokenizer=other)
    few = vocabulary_of(tokenizer_of(), without=[5])
    refused(r"dict\.txt is another vocabulary", make, split="valid", vocabulary=few, overwrite=True)
    (tmp_path / "data" / "manifest.json").unlink()
    refused(r"data has the files of another tokenizer", make, split="valid", tokenizer=other)
    del before["manifest.json"]
    assert snapshot(tmp_path / "data") == before


def test_the_tokenizers_own_folder_may_be_the_destination(make, tmp_path):
    """As they are, and not as we would write them."""
    tokenizer = tokenizer_of()
    (tmp_path / "data").mkdir()
    tokenizer.save(tmp_path / "data")
    ids = json.loads((tmp_path / "data" / "encoder.json").read_text())
    (tmp_path / "data" / "encoder.json").write_text(json.dumps(ids, indent=1))
    vocabulary_of(tokenizer).save(tmp_path / "data" / "dict.txt")
    before = snapshot(tmp_path / "data")
    make(tokenizer=load_tokenizer(tmp_path / "data"))
    assert {name: (tmp_path / "data" / name).read_bytes() for name in before} == before
    assert texts_of(tmp_path / "data") == ["the cat", "", "sat on", "the mat"]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_bad_line_or_archive_changes_nothing_and_can_be_mended(make, tmp_path, workers):
    good = "".join(f"line {number}\n" for number in range(200))
    bad = {"part_bytes": 100, "workers": workers, "error": BadLineError}
    refused(r"text\.txt, line 201", make, good.encode() + b"\xff\n", **bad)
    assert not (tmp_path / "data" / "train.bin").exists()
    message = r"unfinished train .*text of train was .* and is .*; --part-bytes was 100 "
    refused(message, make, good, error=FileExistsError)
    cut = gzip.compress(good.encode())[:-20]
    refused(r"cut\.gz cannot be decompressed", make, cut, name="cut.gz", overwrite=True)
    make(good, overwrite=True)
    assert len(texts_of(tmp_path / "data")) == 200
    assert not (tmp_path / "data" / "train.parts").exists()


@pytest.fixture
def stopped(make, tmp_path):
    """Stop a run at a bad second file; `goes_on` gives it a good one, with the size and time of before."""

    def goes_on(text=LINES, *, second=b"x", **options):
        paths = [tmp_path / "first.txt", tmp_path / "second.txt"]
        for path, content in zip(paths, (text.encode(), second), strict=True):
            path.write_bytes(content)
            os.utime(path, ns=(10**18, 10**18))
        return make(inputs=paths, part_bytes=500, **options)

    refused("second", goes_on, second=b"\xff", error=BadLineError)
    return goes_on


def test_finished_parts_are_used_again(stopped, tmp_path):
    parts = sorted((tmp_path / "data" / "train.parts").glob("*.part"))
    assert len(parts) > 10
    for path in parts[:5]:  # a part that is made again would lose this mark
        counts, digest = read_head(path)
        counts, arrays = replace(counts, bad_lines=7), read_part(path, np.dtype(np.uint16))
        with open(path, "wb") as file:
            write_part_file(file, counts, digest, arrays)
    assert stopped()["splits"]["train"]["counts"]["bad_lines"] == 35
    assert texts_of(tmp_path / "data") == [*LINES.split("\n")[:-1], "x"]


def test_a_changed_input_with_the_old_size_and_time_is_not_mixed_with_its_old_parts(stopped):
    refused(r"first\.txt has changed .*delete .*train\.parts", stopped, LINES.replace("line 7 ", "lime 7 "))


DAMAGES = {
    "cut": lambda data: data[: len(data) // 2],
    "zero": lambda data: bytes(len(data)),
    "flip": lambda data: data[:-5] + bytes([data[-5] ^ 1]) + data[-4:],
}


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_part_or_plan_is_named_and_not_made_a_bin_of(stopped, tmp_path, how):
    parts = tmp_path / "data" / "train.parts"
    path, plan = sorted(parts.glob("*.part"))[3], parts / "plan.json"
    path.write_bytes(DAMAGES[how](path.read_bytes()))
    refused(rf"{path.name} is damaged: delete .*train\.parts", stopped)
    plan.write_bytes(DAMAGES[how](plan.read_bytes()))
    refused(r"unfinished train .*--overwrite", stopped, error=FileExistsError)
    stopped(overwrite=True)
    assert texts_of(tmp_path / "data") == [*LINES.split("\n")[:-1], "x"]


def test_a_second_run_of_another_text_at_the_same_time_is_refused(make, tmp_path):
    (tmp_path / "data" / "train.parts").mkdir(parents=True)
    (tmp_path / "data" / "train.parts" / "plan.json").write_text("{}")
    code = (
        "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print('', flush=True); input()"
    )
    command, pipe = [sys.executable, "-c", code, str(tmp_path / "data" / ".train.lock")], subprocess.PIPE
    other = subprocess.Popen(command, stdin=pipe, stdout=pipe)
    try:
        other.stdout.readline()
        refused("Another process is writing", make, error=OSError)
    finally:
        other.kill()
        other.wait()
        other.communicate()
    shutil.rmtree(tmp_path / "data" / "train.parts")
    make()  # what is left of a process that was killed does not matter
    assert len(texts_of(tmp_path / "data")) == 4
    assert not (tmp_path / "data" / ".train.lock").exists()


def test_runs_of_several_splits_at_once_are_all_in_the_manifest(make, tmp_path):
    """Each run waits, before it starts and before it writes the manifest, until all are so far."""
    splits = [f"split{number}" for number in range(4)]
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(len(splits))
    runs = [context.Process(target=together, args=(make, split, barrier)) for split in splits]
    for run in runs:
        run.start()
    for run in runs:
        run.join(60)
    assert [run.exitcode for run in runs] == [0] * len(runs)
    manifest = json.loads((tmp_path / "data" / "manifest.json").read_text())
    assert sorted(manifest["splits"]) == splits
    for split in splits:
        assert texts_of(tmp_path / "data", split) == [split]
    assert not list((tmp_path / "data").glob(".*"))


def together(make, split, barrier):
    """Publishing files takes long enough that all runs meet, unless the folder's lock keeps them apart."""
    publish = SharedFiles.publish

    def slow_publish(files, prefix):
        publish(files, prefix)
        time.sleep(0.3)

    SharedFiles.publish = slow_publish
    barrier.wait(60)
    make(f"{split}\n", split=split, name=f"{split}.txt")


def test_leftovers_of_killed_runs_are_removed(make, tmp_path):
    folder = tmp_path / "data"
    for done in (False, True):  # by a run that writes the split, and by one that finds it made
        folder.mkdir(exist_ok=True)
        (folder / "train.parts").mkdir(exist_ok=True)
        names = (".train.bin.0a1b2c3d.tmp", ".train.idx.0a1b2c3d.tmp", ".manifest.json.ff.tmp", "train.parts/x.part")
        for name in (*names, ".train.lock", "valid.txt"):
            (folder / name).write_bytes(b"rest")
        make()
        names = ("dict.txt", "encoder.json", "manifest.json", "train.bin", "train.idx", "valid.txt", "vocab.bpe")
        assert sorted(path.name for path in folder.glob("*")) == [*names], done
    for name in (".train.lock", ".folder.lock"):  # of a run that was killed after its last file
        (folder / name).touch()
    make()
    assert not list(folder.glob(".*"))


def test_the_same_text_by_another_path_or_touched_is_the_same_corpus(make, tmp_path, monkeypatch):
    made = make()
    times = times_of(tmp_path / "data", "train.*")
    os.utime(tmp_path / "text.txt")
    make()
    (tmp_path / "moved").mkdir()
    (tmp_path / "text.txt").rename(tmp_path / "moved" / "text.txt")
    again = make(inputs=[tmp_path / "moved" / "text.txt"])
    assert again["splits"]["train"]["outputs"] == made["splits"]["train"]["outputs"]
    monkeypatch.chdir(tmp_path / "moved")
    make(inputs=["text.txt"], part_bytes=3)
    assert times_of(tmp_path / "data", "train.*") == times
    (tmp_path / "moved" / "text.txt").write_text(TEXT.replace("cat", "dog"))  # of the same length
    refused(r"train\.bin of another corpus", make, inputs=["text.txt"], error=FileExistsError)
    given = {"inputs": ["text.txt"], "rules": LineRules(keep_spaces=True), "error": FileExistsError}
    refused("other options: --keep-spaces was False and is True now", make, **given)


def test_text_of_a_pipe(make, tmp_path):
    make(destination=tmp_path / "file", part_bytes=7)
    for workers in (1, 2):
        os.mkfifo(tmp_path / f"pipe{workers}")
        writer = threading.Thread(target=(tmp_path / f"pipe{workers}").write_text, args=(TEXT,))
        writer.start()
        options = {"destination": tmp_path / "piped", "workers": workers, "overwrite": workers == 2}
        manifest = make(inputs=[tmp_path / f"pipe{workers}"], **options)
        writer.join()
        for name in ("train.bin", "train.idx"):
            assert (tmp_path / "piped" / name).read_bytes() == (tmp_path / "file" / name).read_bytes()
    (record,) = manifest["splits"]["train"]["inputs"]
    assert (record["bytes"], record["sha256"]) == (len(TEXT), hashlib.sha256(TEXT.encode()).hexdigest())


def test_a_dictionary_has_as_many_symbols_as_asked_for_and_equally_frequent_ones_by_name(tmp_path):
    (tmp_path / "text.txt").write_text("th z\n")
    settings = DictionarySettings(nwords=len(SPECIALS) + 2, padding_factor=1)
    options = {"tokenizer": tokenizer_of(), "settings": settings, "reading": InputSettings(), "progress": False}
    made = build_vocabulary([tmp_path / "text.txt"], **options)
    assert made.symbols == [*SPECIALS, "122", "256", MASK], "z and th; the space, 32, is behind them as text"


def test_no_dictionary_is_made_of_a_pipe_which_is_read_once():
    options = {"tokenizer": tokenizer_of(), "settings": DictionarySettings(), "reading": InputSettings()}
    refused("is a pipe, but .*write it to a file, or give --dict", build_vocabulary, ["-"], **options)


def test_a_dictionary_of_other_text_is_refused_and_nothing_written(make, tmp_path):
    few = vocabulary_of(tokenizer_of(), without=[*range(ord("a"), ord("z") + 1), 256, 257])
    refused(r"8\d\.\d% of the tokens of train are unknown.*--max-unknown", make, vocabulary=few)
    assert not list((tmp_path / "data").iterdir())
    make(vocabulary=few, max_unknown=1)
    empty = {"vocabulary": Vocabulary([]), "destination": tmp_path / "none"}
    refused("empty, or belongs to another tokenizer", make, **empty)
    assert not (tmp_path / "none").exists()


def test_a_file_that_is_no_text_is_refused_though_bad_lines_may_be_left_out(make):
    message, rules = r"\d% of the lines of train are not UTF-8.*--format", LineRules(skip_bad_lines=True)
    refused(message, make, b"good\n" + b"\xff\xfa\n" * 3, rules=rules)


def test_a_full_disk_keeps_what_was_there_and_the_run_goes_on_later(make, tmp_path):
    """No file may grow beyond 20 kB: what a full disk does, at the same place."""
    make("before\n", split="valid", name="valid.txt")
    before = snapshot(tmp_path / "data")
    text = "".join(f"line {number} of the text\n" for number in range(3000))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    message = r"data cannot be written: File too large.*run the same command again"
    with files_up_to(20_000):
        refused(message, make, inputs=text_in_pieces(tmp_path, text), part_bytes=8000, error=OSError)
    after = {path.name for path in (tmp_path / "data").iterdir()}
    assert after == {*before, "train.parts"}
    assert {name: (tmp_path / "data" / name).read_bytes() for name in before} == before
    assert list((tmp_path / "data" / "train.parts").glob("*.part"))
    make(inputs=text_in_pieces(tmp_path, text), part_bytes=8000)
    assert texts_of(tmp_path / "data") == text.split("\n")[:-1]


def text_in_pieces(tmp_path, text):
    """The text in files below the limit, written once."""
    folder = tmp_path / "pieces"
    folder.mkdir(exist_ok=True)
    lines = text.splitlines(keepends=True)
    for number in range(0, len(lines), 500):
        path = folder / f"{number:06d}"
        if not path.exists():
            path.write_text("".join(lines[number : number + 500]))
    return sorted(folder.iterdir())


class Deadly(ByteLevelBpe):
    """Kills the process that encodes a certain line, as the system does when memory runs out."""

    def encode_lines(self, lines):
        if "kill" in lines:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().encode_lines(lines)


def test_a_killed_worker_is_told(make):
    base = tokenizer_of()
    deadly = Deadly(base.pieces, base.merges, use_fast_engine=False)
    refused(r"A worker process was killed.*fewer --workers", make, "fine\nkill\n", tokenizer=deadly, error=OSError)


def test_options_that_make_no_sense(make):
    for options, message in (
        ({"workers": 0}, "--workers"),
        ({"split": "../x"}, "split"),
        ({"part_bytes": 0}, "--part"),
    ):
        refused(message, make, **options)


def test_large_vocabularies_take_wider_ids(make, tmp_path):
    rows = [Row(symbol, 1) for symbol in tokenizer_of().symbols]
    wide = Vocabulary([*rows, *(Row(f"more{number}", 0) for number in range(66_000))])
    make(vocabulary=wide)
    assert MmapTokens(tmp_path / "data" / "train").dtype == np.uint32
    assert texts_of(tmp_path / "data")[0] == "the cat"


GOOD = {"text_bytes": 10**6, "items": 100, "blank_lines": 10, "tokens": 250_100, "unknown": 0, "bad_lines": 0}


def warnings(*, num_inputs=1, text_format="text", **counts):
    record = {"path": "a", "bytes": 5, "sha256": "x", "format": text_format}
    inputs = [{**record, "sha256": str(number)} for number in range(num_inputs)]
    return warnings_about({"splits": {"train": {"counts": {**GOOD, **counts}, "inputs": inputs}}}, "train")


def test_ordinary_text_gives_no_warning():
    assert warnings() == []
    assert warnings(unknown=2500, bad_lines=5) == []
    assert warnings(num_inputs=9) == []
    assert warnings(num_inputs=9, blank_lines=0, text_format="jsonl") == []


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"unknown": 13_000}, "5.2% of its tokens are unknown"),
        ({"bad_lines": 20}, "16.7% of its lines were bad"),
        ({"tokens": 5000}, "gave only 5,000 tokens"),
        ({"num_inputs": 2, "blank_lines": 0}, "2 files have no blank line"),
        ({"blank_lines": 0}, "it has no blank line between documents, so all text is 1 document"),
    ],
)
def test_what_is_suspicious_is_said(counts, message):
    (found,) = warnings(**counts)
    assert message in found


def test_most_of_it_unknown_or_bad_is_refused():
    for counts, most, message in (
        ({"unknown": 126_000}, 0.5, r"50\.4% of the tokens of train are unknown"),
        ({"bad_lines": 101}, 1, r"50\.2% of the lines of train are not UTF-8"),
    ):
        refused(message, refuse_nonsense, "train", Counts(**{**GOOD, **counts}), max_unknown=most)
    for unknown, most in ((124_000, 0.5), (250_000, 1)):
        refuse_nonsense("train", Counts(**{**GOOD, "unknown": unknown}), max_unknown=most)
