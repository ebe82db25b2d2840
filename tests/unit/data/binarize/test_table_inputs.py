"""`roberta binarize` of Parquet, Arrow, the folders of `datasets`, CSV and URLs: the .bin of the equal JSON Lines."""

import functools
import hashlib
import http.server
import json
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import fsspec
import pytest

from roberta_plugin.cli import main
from roberta_plugin.data.binarize import parts as binarize_parts
from roberta_plugin.data.binarize import pipeline
from roberta_plugin.data.binarize.parts import plan_tasks
from roberta_plugin.data.text_inputs import InputSettings, LineRules, read_blocks
from roberta_plugin.data.text_inputs_remote import without_secrets
from roberta_plugin.data.vocabulary import Row, Vocabulary
from tests.tiny_tokenizers import byte_level_bpe

pyarrow = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402

TEXTS = [f"document {number}\n" * (number % 5) + f"ends {random.Random(number).random()}" for number in range(1000)]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    byte_level_bpe([("t", "h")]).save(folder)
    Vocabulary([Row(str(index), 1) for index in range(257)]).save(folder / "dict.txt")
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """The same texts in all formats, two files each."""
    folder = tmp_path_factory.mktemp("corpus")
    for number, texts in enumerate((TEXTS[:700], TEXTS[700:])):
        (folder / f"{number}.jsonl").write_text("".join(json.dumps({"body": text}) + "\n" for text in texts))
        table = pyarrow.table({"id": range(len(texts)), "body": texts})
        parquet.write_table(table, folder / f"{number}.parquet", row_group_size=70)
        parquet.write_table(table, folder / f"{number}.one.parquet", row_group_size=1)
        parquet.write_table(table, folder / f"{number}.whole.parquet")
        for ending, new, rows in (("arrow", "new_stream", 90), ("ipc", "new_file", 90)):
            with getattr(pyarrow.ipc, new)(str(folder / f"{number}.{ending}"), table.schema) as writer:
                writer.write_table(table, max_chunksize=rows)
        quoted = (text.replace('"', '""') for text in texts)
        (folder / f"{number}.csv").write_text("body\n" + "".join(f'"{text}"\n' for text in quoted))
    return folder


def arguments_of(folder, tokenizer, *options):
    given = ["--tokenizer", tokenizer, "--output-dir", folder, "--text-column", "body", "--no-progress", *options]
    return [str(each) for each in given]


def binarized(folder, tokenizer, inputs, *options):
    """The .bin and .idx."""
    assert main(["binarize", "--train", *map(str, inputs), *arguments_of(folder, tokenizer, *options)]) == 0
    return [(folder / f"train.{ending}").read_bytes() for ending in ("bin", "idx")]


@pytest.fixture(scope="module")
def expected(corpus, tokenizer, tmp_path_factory):
    """What the JSON Lines give, with the option's old name."""
    return binarized(tmp_path_factory.mktemp("expected"), tokenizer, [corpus / "*.jsonl"], "--json-field", "body")


@pytest.mark.parametrize("kind", ["[01].parquet", "*.one.parquet", "*.whole.parquet", "*.arrow", "*.ipc", "*.csv"])
def test_same_bytes_as_from_json_lines_for_any_number_of_workers(corpus, tokenizer, expected, tmp_path, kind):
    for workers in (1, 3):
        options = ("--workers", workers, *(("--part-bytes", 9000) if workers > 1 else ()))
        assert binarized(tmp_path / f"{workers}", tokenizer, [corpus / kind], *options) == expected
    manifest = json.loads((tmp_path / "1" / "manifest.json").read_text())["splits"]["train"]
    assert manifest["rules"]["json_field"] == "body"  # the name of the option in manifests of earlier versions
    assert all(len(record["sha256"]) == 64 for record in manifest["inputs"])


def test_a_part_is_whole_row_groups_and_a_large_one_may_be_shared(corpus):
    settings = InputSettings(rules=LineRules(text_column="body"))

    def tasks(name, part_bytes):
        sources = settings.sources([corpus / name])
        return [
            [(span.start, span.end) for span in task.spans] + [task.may_share] * task.may_share
            for task in plan_tasks(sources, [source.size for source in sources], part_bytes)
        ]

    cut = tasks("0.parquet", 9000)
    assert [part[0][0] for part in cut[1:]] == [part[0][1] for part in cut[:-1]]
    assert (cut[0][0][0], cut[-1][0][1], len(cut) > 3) == (0, 700 // 70, True)
    assert tasks("0.whole.parquet", 9000) == [[(0, 1), True]]
    assert tasks("0.whole.parquet", 10**6) == [[(0, None)]]
    assert len(tasks("0.one.parquet", 9000)) < 20  # 700 row groups of one row


COMMAND = """
import functools, os, sys
from roberta_plugin.cli import main
from roberta_plugin.data.binarize import parts
parts.read_blocks = functools.partial(parts.read_blocks, block_bytes=1000)
write, count = parts.write_part, [0]
def slow(path, job, blocks):
    if count[0] == 3:
        os.kill(os.getppid(), 9)
        os.kill(os.getpid(), 9)
    count[0] += 1
    write(path, job, blocks)
parts.write_part = slow
main(sys.argv[1:])
"""


@pytest.mark.parametrize("name", ["0.whole.parquet", "0.csv", "by URL"])
def test_a_killed_run_goes_on_with_its_parts(corpus, tokenizer, tmp_path, name, monkeypatch, request):
    text = corpus / name if name != "by URL" else f"{request.getfixturevalue('server')[0]}/0.jsonl"
    arguments = arguments_of(tmp_path / "data", tokenizer, "--part-bytes", 9000)
    arguments = ["binarize", "--train", str(text), *arguments]
    process = subprocess.run([sys.executable, "-c", COMMAND, *arguments, "--workers", "1"], check=False)
    assert process.returncode == -signal.SIGKILL
    folder = tmp_path / "data" / "train.parts"
    parts = {path: path.stat().st_mtime_ns for path in folder.glob("*.part")}
    assert len(parts) == 3
    kept: dict[object, int] = {}

    def rmtree(path, **options):
        kept.update((part, part.stat().st_mtime_ns) for part in parts)
        remove(path, **options)

    remove = shutil.rmtree
    monkeypatch.setattr(pipeline.shutil, "rmtree", rmtree)
    monkeypatch.setattr(binarize_parts, "read_blocks", functools.partial(read_blocks, block_bytes=1000))
    assert main([*arguments, "--workers", "2"]) == 0
    assert kept == parts
    monkeypatch.undo()
    whole = binarized(tmp_path / "whole", tokenizer, [corpus / "0.jsonl"])
    assert [(tmp_path / "data" / f"train.{ending}").read_bytes() for ending in ("bin", "idx")] == whole


class Server(http.server.SimpleHTTPRequestHandler):
    """Serves files as `python -m http.server` does; with ranges, if `knows_ranges`."""

    knows_ranges = True
    version = '"1"'

    def log_message(self, *_):
        pass

    def end_headers(self):
        self.send_header("ETag", self.version)
        super().end_headers()

    def do_GET(self):
        chosen = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        path = Path(self.translate_path(self.path))
        if not (self.knows_ranges and chosen and path.is_file()):
            super().do_GET()
            return
        data = path.read_bytes()
        part = data[int(chosen[1]) : int(chosen[2]) + 1]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {chosen[1]}-{int(chosen[1]) + len(part) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(part)))
        super().end_headers()
        self.wfile.write(part)


@pytest.fixture
def server(corpus, monkeypatch):
    """The address of the corpus, and the class of the server."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    handler = type("Handler", (Server,), {})
    where = functools.partial(handler, directory=str(corpus))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), where) as running:
        running.handle_error = lambda *_: None  # a client that leaves early is no fault of the test's
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}", handler
        running.shutdown()


@pytest.mark.parametrize("ending", ["parquet", "jsonl", "csv", "ipc", "arrow"])
def test_files_by_http_give_the_same_bytes(corpus, tokenizer, expected, server, tmp_path, ending):
    address, handler = server
    handler.knows_ranges = ending in ("parquet", "ipc", "arrow")
    urls = [f"{address}/{number}.{ending}?download=true" for number in (0, 1)]
    contents = [(corpus / f"{number}.{ending}").read_bytes() for number in (0, 1)]
    assert binarized(tmp_path / "a", tokenizer, urls, "--workers", 2) == expected
    inputs = json.loads((tmp_path / "a" / "manifest.json").read_text())["splits"]["train"]["inputs"]
    is_hashed = ending in ("jsonl", "csv")  # which are read as a whole
    digests = [hashlib.sha256(content).hexdigest() if is_hashed else "" for content in contents]
    assert [record["path"] for record in inputs] == [without_secrets(url) for url in urls]
    assert [record["bytes"] for record in inputs] == list(map(len, contents))
    assert [record["sha256"] for record in inputs] == digests
    made = (tmp_path / "a" / "train.bin").stat().st_mtime_ns
    binarized(tmp_path / "a", tokenizer, urls)
    assert (tmp_path / "a" / "train.bin").stat().st_mtime_ns == made  # the same version: nothing to do
    handler.version = '"2"'
    assert main(["binarize", "--train", *urls, *arguments_of(tmp_path / "a", tokenizer)]) == 2


def test_urls_that_cannot_be_read_are_one_sentence(tokenizer, server, tmp_path, capsys, monkeypatch):
    address, handler = server
    handler.knows_ranges = False
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setitem(sys.modules, "s3fs", None)
    for url, message in {
        f"{address}/missing.jsonl": f"No text file {address}/missing.jsonl: check the address, and your access to it.",
        f"http://127.0.0.1:{port}/a.jsonl": "a.jsonl cannot be read (ClientConnectorError",
        f"{address}/0.one.parquet": "0.one.parquet cannot be read (ValueError: The HTTP server doesn't appear to support range",
        "s3://bucket/a.jsonl": "s3:// needs a package that is missing here (Install s3fs to access S3): pip install s3fs.",
        "nothing://a.jsonl": "nothing://a.jsonl cannot be read (ValueError: Protocol not known: nothing)",
        "memory://none/*.jsonl": "No text file memory://none/*.jsonl: check",
    }.items():
        assert main(["binarize", "--train", url, *arguments_of(tmp_path / "a", tokenizer)]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert len(error.splitlines()) == 1
        assert not (tmp_path / "a" / "train.bin").exists()


def test_other_file_systems_and_their_patterns(corpus, tokenizer, expected, tmp_path):
    files = fsspec.filesystem("memory")
    try:
        for path in corpus.iterdir():
            files.pipe(f"/texts/{path.name}", path.read_bytes())
        state = {"_data_files": [{"filename": "0.arrow"}, {"filename": "1.arrow"}]}
        files.pipe("/texts/state.json", json.dumps(state).encode())
        assert binarized(tmp_path / "folder", tokenizer, ["memory://texts"]) == expected
        for number, pattern in enumerate(("[01].parquet", "*.jsonl")):
            assert binarized(tmp_path / str(number), tokenizer, [f"memory://texts/{pattern}"]) == expected
        assert binarized(tmp_path / "local", tokenizer, [f"file://{corpus}/[01].parquet"]) == expected
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
            for number in (0, 1):
                archive.write(corpus / f"{number}.jsonl", f"{number}.jsonl")
        assert binarized(tmp_path / "zip", tokenizer, [f"zip://*.jsonl::{tmp_path / 'a.zip'}"]) == expected
    finally:
        files.rm("/texts", recursive=True)
