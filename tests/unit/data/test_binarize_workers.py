import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest

from roberta_plugin.data.binarize_parts import Job, Span, Task, is_done
from roberta_plugin.data.binarize_workers import run_tasks
from roberta_plugin.data.text_inputs import BadLineError, LineRules
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
    return [str(path) for path in paths]


def run(job, tasks, paths, **options):
    settings = {"paths_to_hash": paths, "total_bytes": 10, "workers": 2, "progress": False}
    return run_tasks(job, tasks, **{**settings, **options})


def test_does_all_tasks_and_hashes_all_files(job, tmp_path):
    contents = [f"text {number}\n".encode() for number in range(5)]
    paths = write(tmp_path, contents)
    tasks = [Task(number, (Span(path),)) for number, path in enumerate(paths)]
    assert run(job, tasks, paths) == [hashlib.sha256(content).hexdigest() for content in contents]
    assert all(is_done(tmp_path, task) for task in tasks)


def test_no_tasks_left_still_hashes(job, tmp_path):
    paths = write(tmp_path, [b"text"])
    assert run(job, [], paths) == [hashlib.sha256(b"text").hexdigest()]


def test_the_first_error_is_raised_and_stops_the_other_workers(job, tmp_path):
    # Thousands of parts: minutes of work, if the error of the second file did not stop the first.
    paths = write(tmp_path, [b"a line of text\n" * 10_000_000, b"\xff\n"])
    tasks = [Task(number, (Span(path),)) for number, path in enumerate(paths)]
    with pytest.raises(BadLineError, match=r"1\.txt, line 1"):
        run(job, tasks, paths)
    assert not is_done(tmp_path, tasks[0])


def test_a_worker_needs_neither_torch_nor_fairseq():
    """As the console command starts: sys.argv[0] is `roberta`."""
    code = (
        "import sys, json; sys.argv = ['roberta']; import roberta_plugin.data.binarize; "
        "from roberta_plugin.data.tokenizers import load_tokenizer; "
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    modules = set(json.loads(done.stdout))
    assert "numpy" in modules
    assert not modules & {"torch", "fairseq", "transformers", "matplotlib"}
