"""Worker processes: the same parts for any number of them, errors that stop all, and texts shared by idle ones."""

import gzip
import hashlib
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from roberta_plugin.data.binarize.parts import Job, Sharing, Span, Task, finished_parts, is_done, plan_tasks, read_part
from roberta_plugin.data.binarize.workers import start_workers
from roberta_plugin.data.text_inputs import BadLineError, LineRules
from roberta_plugin.data.text_inputs_files import find_inputs
from roberta_plugin.data.tokenizers.byte_level_bpe import BYTE_CHARACTERS, ByteLevelBpe
from tests.conftest import REPOSITORY


@pytest.fixture
def job(tmp_path):
    return Job(
        tokenizer=ByteLevelBpe(BYTE_CHARACTERS, [], use_fast_engine=False),
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


def run(job, tasks, sources, *, workers=2):
    with start_workers(job, tasks, workers=workers, progress=False) as pool:
        digests = pool.encode(tasks, sources, num_bytes=10, meanwhile=lambda: None)
    return [digests[source.path] for source in sources]


def test_does_all_tasks_and_hashes_all_files(job, tmp_path):
    contents = [f"text {number}\n".encode() for number in range(5)]
    paths = write(tmp_path, contents)
    tasks = [Task(number, (Span(source),)) for number, source in enumerate(paths)]
    assert run(job, tasks, paths) == [(len(content), hashlib.sha256(content).hexdigest()) for content in contents]
    assert all(is_done(tmp_path, task) for task in tasks)


def test_no_tasks_left_still_hashes(job, tmp_path):
    paths = write(tmp_path, [b"text"])
    assert run(job, [], paths) == [(4, hashlib.sha256(b"text").hexdigest())]


def test_the_first_error_is_raised_and_stops_the_other_workers(job, tmp_path):
    # Thousands of parts: minutes of work, if the error of the second file did not stop the first.
    paths = write(tmp_path, [b"a line of text\n" * 10_000_000, b"\xff\n"])
    tasks = [Task(number, (Span(source),)) for number, source in enumerate(paths)]
    with pytest.raises(BadLineError, match=r"1\.txt, line 1"):
        run(job, tasks, paths)
    assert not is_done(tmp_path, tasks[0])


def test_idle_workers_take_parts_of_an_archive_and_the_parts_are_the_same(job, tmp_path):
    """Each part names the process that wrote it."""
    text = b"".join(b"line %d of a text in an archive\n" % number for number in range(100_000))
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(text, 1))
    sources = find_inputs([tmp_path / "a.txt.gz"])
    tasks = plan_tasks(sources, [1], 100)
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


def test_damage_in_an_archive_reaches_those_who_wait_for_parts(job, tmp_path):
    text = "".join(f"{number * 7919 % 99991}\n" for number in range(300_000)).encode()
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(text, 1)[:-100])
    sources = find_inputs([tmp_path / "a.txt.gz"])
    with pytest.raises(ValueError, match=r"a\.txt\.gz cannot be decompressed"):
        run(replace(job, part_bytes=2**18), plan_tasks(sources, [1], 100), [], workers=3)


def test_a_bad_line_in_a_shared_part_is_named(job, tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"good\n" * 300_000 + b"\xff\n", 1))
    sources = find_inputs([tmp_path / "a.txt.gz"])
    with pytest.raises(BadLineError, match=r"a\.txt\.gz, line 300001: byte 0xff"):
        run(replace(job, part_bytes=2**18), plan_tasks(sources, [1], 100), [], workers=3)


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
    with pytest.raises(OSError, match=r"No further thread could be started: raise the limit .* fewer --workers"):
        run(job, [Task(0, (Span(sources[0]),))], sources)


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
