"""Worker processes: the same parts for any number of them, errors that stop all, and texts shared by idle ones."""

import gzip
import hashlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roberta_plugin.data.binarize.parts import (
    Counts,
    Job,
    Sharing,
    Span,
    Task,
    encode_items,
    encode_task,
    finished_parts,
    is_done,
    plan_tasks,
    read_head,
    read_part,
)
from roberta_plugin.data.binarize.plan import folder_lock, split_lock
from roberta_plugin.data.binarize.workers import start_workers
from roberta_plugin.data.text_inputs import BadLineError, LineRules
from roberta_plugin.data.text_inputs_files import TextInput, find_inputs
from roberta_plugin.data.tokenizers.byte_level_bpe import BYTE_CHARACTERS, ByteLevelBpe
from tests.conftest import REPOSITORY
from tests.refusals import refused
from tests.tiny_tokenizers import byte_level_bpe


@pytest.fixture
def job(tmp_path):
    return Job(
        tokenizer=byte_level_bpe(use_fast_engine=False),
        to_model=np.arange(4, 260).astype(np.uint16),
        eos_id=2,
        unk_id=3,
        rules=LineRules(),
        blank_line_after_files=False,
        folder=tmp_path,
        part_bytes=100,
    )


def write(tmp_path, contents):
    paths = [tmp_path / f"{number}.txt" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return find_inputs(paths)


def archive(tmp_path, text):
    """An archive as the only input, and its tasks."""
    (tmp_path / "a.txt.gz").write_bytes(text)
    return plan_tasks(find_inputs([tmp_path / "a.txt.gz"]), [1], 100)


def run(job, tasks, sources, *, workers=2):
    with start_workers(job, tasks, workers=workers, progress=False) as pool:
        digests = pool.encode(tasks, sources, num_bytes=10, meanwhile=lambda: None)
    return [digests[source.path] for source in sources]


def test_does_all_tasks_and_hashes_all_files(job, tmp_path):
    contents = [f"text {number}\n".encode() for number in range(5)]
    paths = write(tmp_path, contents)
    tasks = [Task(number, (Span(source),)) for number, source in enumerate(paths)]
    digests = [(len(content), hashlib.sha256(content).hexdigest()) for content in contents]
    assert run(job, tasks, paths) == digests
    assert all(is_done(tmp_path, task) for task in tasks)
    assert run(job, [], paths) == digests, "no tasks are left"


def test_the_first_error_is_raised_and_stops_the_other_workers(job, tmp_path):
    # Thousands of parts: minutes of work, if the error of the second file did not stop the first.
    paths = write(tmp_path, [b"a line of text\n" * 10_000_000, b"\xff\n"])
    tasks = [Task(number, (Span(source),)) for number, source in enumerate(paths)]
    refused(r"1\.txt, line 1", run, job, tasks, paths, error=BadLineError)
    assert not is_done(tmp_path, tasks[0])


def test_idle_workers_take_parts_of_an_archive_and_the_parts_are_the_same(job, tmp_path):
    """Each part names the process that wrote it."""
    lines = b"".join(b"line %d of a text in an archive\n" % number for number in range(100_000))
    tasks = archive(tmp_path, gzip.compress(lines, 1))
    parts = {}
    for workers in (1, 3):
        folder = tmp_path / f"{workers}.parts"
        folder.mkdir()
        named = Named(job.tokenizer.pieces, [])
        named.folder = folder
        run(replace(job, folder=folder, part_bytes=2**18, tokenizer=named), tasks, [], workers=workers)
        found = list(finished_parts(folder, tasks))
        assert len(found) == 4
        parts[workers] = [[array.tolist() for array in read_part(path, np.dtype(np.uint16))] for path in found]
        assert len(list(folder.glob("*.pid"))) == workers
    assert parts[1] == parts[3]
    assert sum(len(sizes) for sizes, _, _ in parts[1]) == 100_000


class Named(ByteLevelBpe):
    """Leaves a file for each process that encodes; slowly, so that no part is done before all workers are awake."""

    def encode_lines(self, lines):
        if len(lines) > 1:
            (self.folder / f"{os.getpid()}.pid").touch()
            time.sleep(0.2)
        return super().encode_lines(lines)

    def __reduce__(self):
        return object.__reduce_ex__(self, 2)


def test_damage_and_a_bad_line_in_an_archive_reach_those_who_wait_for_parts(job, tmp_path):
    numbers = "".join(f"{number * 7919 % 99991}\n" for number in range(300_000)).encode()
    large = replace(job, part_bytes=2**18)
    tasks = archive(tmp_path, gzip.compress(numbers, 1)[:-100])
    refused(r"a\.txt\.gz cannot be decompressed", run, large, tasks, [], workers=3)
    tasks = archive(tmp_path, gzip.compress(b"good\n" * 300_000 + b"\xff\n", 1))
    large = replace(large, folder=tmp_path / "more")
    large.folder.mkdir()
    refused(r"a\.txt\.gz, line 300001: byte 0xff", run, large, tasks, [], workers=3, error=BadLineError)


def test_ids_are_counted_by_all_workers(job, tmp_path):
    sources = write(tmp_path, [b"aab\n" * 1000, b"b\n" * 500])
    tasks = plan_tasks(sources, [4000, 1000], 700)
    with start_workers(job, tasks, workers=2, progress=False) as pool:
        counts = pool.count_ids(tasks, num_bytes=5000)
    assert {BYTE_CHARACTERS[index]: counts[index] for index in np.flatnonzero(counts)} == {"a": 2000, "b": 1500}


@pytest.mark.parametrize("name", ["_ExecutorManagerThread", "QueueFeederThread"])
def test_without_further_threads_a_sentence_says_so(job, tmp_path, monkeypatch, name):
    """The pool starts the second in the first, whose death nobody notices."""
    real = threading.Thread.start

    def start(thread):
        if name in (type(thread).__name__, thread.name):
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    sources = write(tmp_path, [b"text\n"])
    message = r"No further thread could be started: raise the limit .* fewer --workers"
    refused(message, run, job, [Task(0, (Span(sources[0]),))], sources, error=OSError)


def test_a_worker_needs_neither_torch_nor_fairseq():
    """As the console command starts: sys.argv[0] is `roberta`."""
    code = (
        "import sys, json; sys.argv = ['roberta']; import roberta_plugin.data.binarize.pipeline; "
        "from roberta_plugin.data.tokenizers import load_tokenizer; "
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    modules = set(json.loads(done.stdout))
    assert "numpy" in modules
    assert not modules & {"torch", "fairseq", "transformers", "matplotlib"}


def test_each_claim_gets_one_idle_worker_and_all_leave_with_the_last_reader():
    sharing = Sharing(multiprocessing.get_context(), num_readers=1)
    assert not sharing.claim()
    taken = []

    def work():
        while (part := sharing.take(lambda: False)) is not None:
            taken.append(part)

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    num_given = 0
    while num_given < 50:
        if sharing.claim():
            sharing.give(num_given if num_given % 5 else None)  # None: the reader failed after its claim
            num_given += 1
    sharing.end_reader()
    for worker in workers:
        worker.join(10)
    assert not any(worker.is_alive() for worker in workers)
    assert sorted(taken) == [number for number in range(50) if number % 5]
    assert not sharing.claim()


def test_idle_workers_leave_when_the_run_is_stopped():
    sharing = Sharing(multiprocessing.get_context(), num_readers=1)
    assert sharing.take(lambda: True) is None


@given(
    files=st.lists(st.tuples(st.sampled_from(["txt", "gz"]), st.integers(0, 50)), max_size=12),
    part_bytes=st.integers(1, 20),
)
def test_tasks_cover_each_file_once_and_in_order(files, part_bytes):
    paths = [f"{number}.{suffix}" for number, (suffix, _) in enumerate(files)]
    sizes = [size for _, size in files]
    sources = [TextInput(path, path, ".gz" * path.endswith("gz")) for path in paths]
    tasks = plan_tasks(sources, sizes, part_bytes)
    assert [task.number for task in tasks] == list(range(len(tasks)))
    spans = [span for task in tasks for span in task.spans]
    assert list(dict.fromkeys(span.source.path for span in spans)) == paths
    for path, size in zip(paths, sizes, strict=True):
        own = [span for span in spans if span.source.path == path]
        assert [span.is_last_of_file for span in own] == [False] * (len(own) - 1) + [True]
        if own[0].end is None:
            assert len(own) == 1
        else:
            edges = [own[0].start, *(span.end for span in own)]
            assert edges == [*range(0, size, part_bytes), size]
    for task in tasks:
        whole = sum(sizes[paths.index(span.source.path)] for span in task.spans)
        assert whole <= part_bytes or len(task.spans) == 1
        assert task.may_share == (len(task.spans) == 1 and task.spans[0].source.suffix == ".gz")


def test_items_end_with_eos(job):
    ids, sizes = encode_items(job, ["ab", "", "c"])
    assert ids.tolist() == [101, 102, 2, 2, 103, 2]
    assert sizes.tolist() == [3, 1, 2]
    assert (ids.dtype, sizes.dtype) == (np.uint16, np.int32)


def test_a_large_compressed_text_becomes_several_parts_that_are_not_made_again(job, tmp_path):
    job = replace(job, part_bytes=2**20)
    text = b"0123456789abcde\n" * 300_000  # 4.8 MB
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(text))
    task = Task(0, (Span(find_inputs([path])[0]),))
    assert not is_done(tmp_path, task)
    read = []
    encode_task(job, task, on_read=read.append)
    assert is_done(tmp_path, task)
    assert sum(read) == path.stat().st_size
    parts = list(finished_parts(tmp_path, [task]))
    assert len(parts) == 5
    total = Counts()
    for part in parts:
        counts, _ = read_head(part)
        sizes, ids, _ = read_part(part, np.dtype(np.uint16))
        assert (len(sizes), len(ids)) == (counts.items, counts.tokens)
        total += counts
    assert (total.items, total.tokens, total.text_bytes) == (300_000, 300_000 * 16, len(text))

    contents = [part.read_bytes() for part in parts]
    parts[3].unlink()
    (tmp_path / "000000.done").unlink()
    stamps = [part.stat().st_mtime_ns for part in parts if part.exists()]
    encode_task(job, task, on_read=read.append)
    assert [part.read_bytes() for part in parts] == contents
    assert [part.stat().st_mtime_ns for part in parts if part != parts[3]] == stamps


def test_a_part_of_other_text_is_not_taken(job, tmp_path):
    (source,) = write(tmp_path, [b"one\ntwo\n"])
    task = Task(0, (Span(source),))
    encode_task(job, task, on_read=lambda num_bytes: None)
    write(tmp_path, [b"one\ntoo\n"])
    message = r"0\.txt has changed .* made .*000000_000000\.part of it: delete"
    refused(message, encode_task, job, task, on_read=lambda num_bytes: None)


def add_one(folder, times):
    for _ in range(times):
        with folder_lock(folder):
            number = int((folder / "number").read_text())
            time.sleep(0.001)
            (folder / "number").write_text(str(number + 1))


def test_the_lock_of_the_folder_keeps_processes_apart_though_its_file_comes_and_goes(tmp_path):
    (tmp_path / "number").write_text("0")
    processes = [multiprocessing.get_context("fork").Process(target=add_one, args=(tmp_path, 50)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert (tmp_path / "number").read_text() == "200"
    assert [path.name for path in tmp_path.iterdir()] == ["number"]


def hold(folder, is_held, may_end):
    with split_lock(folder, "train"):
        is_held.set()
        may_end.wait(60)


def test_a_split_has_one_writer_and_others_are_free(tmp_path):
    context = multiprocessing.get_context("fork")
    is_held, may_end = context.Event(), context.Event()
    process = context.Process(target=hold, args=(tmp_path, is_held, may_end))
    process.start()
    assert is_held.wait(60)
    with pytest.raises(OSError, match=r"Another process is writing .*train: wait"), split_lock(tmp_path, "train"):
        pass
    with split_lock(tmp_path, "valid"):
        pass
    may_end.set()
    process.join(60)
    with split_lock(tmp_path, "train"):
        pass
    assert not list(tmp_path.iterdir())


def hold_with_a_child(folder, is_held):
    """As a binarization whose worker outlives it for a moment."""
    with split_lock(folder, "train"):
        child = os.fork()
        if child == 0:
            time.sleep(0.5)
            os._exit(0)
        is_held.set()
        os.kill(os.getpid(), signal.SIGKILL)


def test_the_lock_of_a_killed_run_is_free_once_its_workers_have_ended(tmp_path):
    context = multiprocessing.get_context("fork")
    is_held = context.Event()
    process = context.Process(target=hold_with_a_child, args=(tmp_path, is_held))
    process.start()
    assert is_held.wait(60)
    while process.exitcode is None:  # join waits for the worker too
        time.sleep(0.01)
    begun = time.monotonic()
    with split_lock(tmp_path, "train"):
        assert time.monotonic() - begun > 0.2, "nobody held it: the test shows less than it says"
    assert not list(tmp_path.iterdir())
