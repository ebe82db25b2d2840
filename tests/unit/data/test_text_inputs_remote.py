"""Text by URL: passwords and signatures are kept nowhere, and what is no text is refused."""

import http.server
import json
import threading

import pytest

from roberta_plugin.cli import main
from roberta_plugin.data.text_inputs_remote import without_secrets
from roberta_plugin.data.vocabulary import Row, Vocabulary
from roberta_plugin.json_files import read_json, sha256_of_json, write_json
from roberta_plugin.pretraining.settings import PretrainSettings
from roberta_plugin.pretraining.texts import steps_of_text
from tests.tiny_tokenizers import byte_level_bpe

TEXT = b"".join(b"A line of text, number %d.\n\n" % number for number in range(200))
PAGE = b"<!DOCTYPE html>\n<html><body>Please log in</body></html>\n"


class Handler(http.server.BaseHTTPRequestHandler):
    """text.txt, and answers that are no text; the version of the text is `version`."""

    version = '"1"'

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        name = self.path.partition("?")[0].lstrip("/")
        content, status = TEXT, 404 if name == "missing.txt" else 206 if name == "part.txt" else 200
        content = PAGE if name == "page.txt" else content
        self.send_response(status)
        self.send_header("ETag", self.version)
        self.send_header("Content-Type", "text/html" if name == "typed.txt" else "text/plain")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.content = content

    def do_GET(self):
        self.do_HEAD()
        self.wfile.write(self.content)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    handler = type("Handler", (Handler,), {})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        running.handle_error = lambda *_: None
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{running.server_port}", handler
        running.shutdown()


@pytest.fixture
def tokenizer(tmp_path):
    (tmp_path / "tokenizer").mkdir()
    made = byte_level_bpe()
    made.save(tmp_path / "tokenizer")
    Vocabulary([Row(symbol, 1) for symbol in made.symbols]).save(tmp_path / "tokenizer" / "dict.txt")
    return tmp_path / "tokenizer"


@pytest.mark.parametrize(
    ("url", "shown"),
    {
        "https://me:pw@host/a.txt": "https://host/a.txt",
        "simplecache::https://me:p%40w@host/a.txt": "simplecache::https://host/a.txt",
        "https://host/a.txt?X-Amz-Signature=1&X-Amz-Date=2": "https://host/a.txt",
        "zip://a.csv::ftp://me:p@w@host/b.zip": "zip://a.csv::ftp://host/b.zip",
        "No file https://host/a?token=1: check": "No file https://host/a: check",
        "s3://bucket/a?.txt": "s3://bucket/a?.txt",
        "/data/me@host?a=b": "/data/me@host?a=b",
    }.items(),
)
def test_user_and_signature_are_left_out_of_urls(url, shown):
    assert without_secrets(url) == shown


def test_the_rest_of_a_query_is_hashed_so_that_other_files_are_other_urls():
    one, other = (without_secrets(f"https://h/a?file={number}&sig=x::zip") for number in (1, 2))
    assert one != other and "file" not in one and one.endswith("::zip")
    assert without_secrets(one) == one
    assert without_secrets("https://h/a?file=1&sig=other::zip") == one


@pytest.mark.parametrize(
    "way", ["http://me:TOPSECRET@HOST/text.txt", "simplecache::http://HOST/text.txt?sig=TOPSECRET"]
)
def test_neither_files_nor_messages_have_the_secrets_of_a_url(way, server, tokenizer, tmp_path, capsys):
    url = way.replace("HOST", server[0])
    given = PretrainSettings(data=[url], output_dir=tmp_path / "run", tokenizer=tokenizer)
    steps_of_text(given)
    binarize = ["binarize", "--train", url, "--tokenizer", str(tokenizer), "--output-dir", str(tmp_path / "bin")]
    assert main(binarize) == main(binarize) == 0
    binarize[2] = url.replace("text.txt", "missing.txt")
    assert main(binarize) == 2
    assert "missing.txt" in capsys.readouterr().err
    binarize[2:3] = [url, url]
    assert main(binarize) == 2
    out = capsys.readouterr()
    assert "given twice" in out.err and "TOPSECRET" not in out.out + out.err
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"text.json", "manifest.json"} <= {path.name for path in files}
    assert not [path for path in files if b"TOPSECRET" in path.read_bytes()]


def test_folders_that_kept_the_whole_url_go_on(server, tokenizer, tmp_path):
    url = f"http://me:TOPSECRET@{server[0]}/text.txt?file=1"
    given = PretrainSettings(data=[url], output_dir=tmp_path / "run", tokenizer=tokenizer)
    steps_of_text(given)
    kept = read_json(tmp_path / "run" / "text.json", keys=(), remedy="")
    write_json(tmp_path / "run" / "text.json", {**kept, "DATA": kept["DATA"].replace(without_secrets(url), url)})
    steps_of_text(given)
    binarize = ["binarize", "--train", url, "--tokenizer", str(tokenizer), "--output-dir", str(tmp_path / "bin")]
    manifest = tmp_path / "bin" / "manifest.json"
    recorded = {}

    def remember(plan):
        recorded.update(plan)
        return sha256_of_json(plan)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("roberta_plugin.data.binarize.pipeline.sha256_of_json", remember)
        assert main(binarize) == 0
    recorded["inputs"][0][0] = url
    content = json.loads(manifest.read_text())
    content["splits"]["train"]["plan_sha256"] = sha256_of_json(recorded)
    write_json(manifest, content)
    assert main(binarize) == 0


def test_another_version_of_a_url_is_refused_by_a_second_start(server, tokenizer, tmp_path):
    address, handler = server
    given = PretrainSettings(data=[f"http://{address}/text.txt"], output_dir=tmp_path / "run", tokenizer=tokenizer)
    steps_of_text(given)
    steps_of_text(given)
    handler.version = '"2"'
    with pytest.raises(ValueError, match=r"text\.txt has changed since"):
        steps_of_text(given)


def test_a_file_beside_a_url_that_changes_under_its_name_and_size_is_refused(server, tokenizer, tmp_path):
    beside = tmp_path / "beside.txt"
    beside.write_bytes(TEXT)
    data = [f"http://{server[0]}/text.txt", str(beside)]
    given = PretrainSettings(data=data, output_dir=tmp_path / "run", tokenizer=tokenizer)
    steps_of_text(given)
    (tmp_path / "run" / "data-bin").mkdir()
    (tmp_path / "run" / "data-bin" / "manifest.json").touch()  # of the copies, which are as they were
    beside.touch()
    steps_of_text(given)
    beside.write_bytes(TEXT.replace(b"line", b"word"))
    with pytest.raises(ValueError, match=r"beside\.txt has changed since"):
        steps_of_text(given)


@pytest.mark.parametrize(
    ("name", "message"),
    {
        "page.txt": "answers with a web page in HTML",
        "typed.txt": "answers with a web page in HTML",
        "part.txt": r"its server sent a part of the file \(206\)",
    }.items(),
)
def test_a_web_page_and_a_part_that_was_not_asked_for_are_refused(name, message, server, tokenizer, tmp_path):
    given = PretrainSettings(data=[f"http://{server[0]}/{name}"], output_dir=tmp_path / "run", tokenizer=tokenizer)
    with pytest.raises((ValueError, OSError), match=message):
        steps_of_text(given)
    assert not (tmp_path / "run").exists()
