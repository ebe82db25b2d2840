import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roberta_plugin.data.binarize.parts import (
    Counts,
    Job,
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
from roberta_plugin.data.text_inputs import LineRules
from roberta_plugin.data.text_inputs_files import TextInput, find_inputs
from roberta_plugin.data.tokenizers.byte_level_bpe import BYTE_CHARACTERS, ByteLevelBpe


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


@pytest.fixture
def job(tmp_path):
    tokenizer = ByteLevelBpe(BYTE_CHARACTERS, [], use_fast_engine=False)
    return Job(
        tokenizer=tokenizer,
        to_model=np.arange(100, 356).astype(np.uint16),
        eos_id=2,
        unk_id=3,
        rules=LineRules(),
        blank_line_after_files=False,
        folder=tmp_path,
        part_bytes=2**20,
    )


def test_items_end_with_eos(job):
    ids, sizes = encode_items(job, ["ab", "", "c"])
    assert ids.tolist() == [197, 198, 2, 2, 199, 2]
    assert sizes.tolist() == [3, 1, 2]
    assert (ids.dtype, sizes.dtype) == (np.uint16, np.int32)


def test_a_large_compressed_text_becomes_several_parts_that_are_not_made_again(job, tmp_path):
    import gzip

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
    path = tmp_path / "text.txt"
    path.write_bytes(b"one\ntwo\n")
    task = Task(0, (Span(find_inputs([path])[0]),))
    encode_task(job, task, on_read=lambda num_bytes: None)
    path.write_bytes(b"one\ntoo\n")
    with pytest.raises(ValueError, match=r"text\.txt has changed .* made .*000000_000000\.part of it: delete"):
        encode_task(job, task, on_read=lambda num_bytes: None)
