"""`binarize` writes the bytes of fairseq's own two steps: its BPE encoder, then fairseq-preprocess."""

import functools
import lzma
from pathlib import Path

import pytest

from roberta_plugin.cli import main
from roberta_plugin.data.binarize.pipeline import BinarizeSettings, binarize
from roberta_plugin.data.mmap_tokens import MmapTokens
from roberta_plugin.data.text_inputs import BadLineError, LineRules
from roberta_plugin.data.tokenizers.byte_level_bpe import ByteLevelBpe
from roberta_plugin.data.vocabulary import Vocabulary
from tests.conftest import REPOSITORY
from tests.forked_training import run_python
from tests.refusals import refused
from tests.tiny_corpus import command, environment, run

fairseq = pytest.importorskip("fairseq")
ENCODER = Path(fairseq.__file__).parent / "examples" / "roberta" / "multiprocessing_bpe_encoder.py"

ODD_LINES = [
    "",
    "  leading spaces, and trailing ones  ",
    "\ttab\tin\tthe middle\t",
    "windows line end\r",
    "lone carriage return\rsplits a line",
    "\r",
    "\u00a0no-break spaces at the ends\u00a0",
    "\x1cfile separators\x1f\x1d",
    "next line \u0085 line separator \u2028 paragraph separator \u2029 form feed \f vertical tab \v end\u2028",
    "",
    "   ",
    "",
    "\ufeffa byte order mark inside \ufeff and zero width \u200b spaces \u200b",
    "emoji \U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 flags \U0001f1e9\U0001f1ea e\u0301 \u4f60\u597d",
    "control \x01\x7f\x80 and no characters \uffff\U0010ffff \u0558",
    "<s> </s> <unk> <mask> <|endoftext|> 50256 it's WE'LL",
    "very long " * 12_000,
    "x" * 2000,
    "no line end at the end of the file",
]


@pytest.fixture(scope="module")
def texts(shared_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    (folder / "odd").write_bytes("\n".join(ODD_LINES).encode())
    (folder / "empty").write_bytes(b"")
    (folder / "blank").write_bytes(b"\n\r\n\n \n")
    real = b""
    for name in ("books", "wikipedia", "news"):
        with lzma.open(shared_data / "text" / f"{name}.valid.txt.xz") as file:
            real += file.read(60_000) + b"\n\n"
    (folder / "real").write_bytes(real)
    return folder


NAMES = ("real", "odd")


@pytest.fixture(scope="module")
def gpt2(shared_data):
    """GPT-2's tokenizer, which takes a second to read."""
    return ByteLevelBpe.load(shared_data / "gpt2_bpe")


def encode(text, output, bpe, *, workers):
    """Run fairseq's encoder on a text, in a fork that has imported fairseq."""
    program = f"import runpy; runpy.run_path({str(ENCODER)!r}, run_name='__main__')"
    files = ("--encoder-json", str(bpe / "encoder.json"), "--vocab-bpe", str(bpe / "vocab.bpe"))
    options = ("--inputs", str(text), "--outputs", str(output), "--keep-empty", "--workers", str(workers))
    return run_python(program, *files, *options, cwd=REPOSITORY, environment=environment(), fork_of="fairseq")


@pytest.fixture(scope="module")
def encoded(texts, shared_data, tmp_path_factory):
    """The texts as fairseq's encoder writes them: numbers of GPT-2's tokens."""
    folder = tmp_path_factory.mktemp("encoded")
    for name in NAMES:
        done = encode(texts / name, folder / name, shared_data / "gpt2_bpe", workers=2)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module", params=["all symbols", "few symbols"])
def case(request, encoded, shared_data, tmp_path_factory):
    """dict.txt, and what fairseq-preprocess makes with it."""
    folder = tmp_path_factory.mktemp("fairseq")
    dictionary = folder / "given.txt"
    lines = (shared_data / "gpt2_bpe" / "dict.txt").read_text().splitlines(keepends=True)
    dictionary.write_text("".join(lines if request.param == "all symbols" else lines[:3000]))
    files = [str(encoded / name) for name in NAMES]
    words = ["--only-source", "--srcdict", str(dictionary), "--destdir", str(folder), "--workers", "2"]
    done = run([*command("fairseq-preprocess"), *words, "--trainpref", files[0], "--validpref", files[1]])
    assert done.returncode == 0, done.stderr
    return dictionary, folder


def binarized(path, case, tokenizer, folder, *, split="train", **settings):
    vocabulary, chosen = Vocabulary.load(case[0]), BinarizeSettings(**settings)
    what = {"tokenizer": tokenizer, "vocabulary": vocabulary, "destination": folder, "settings": chosen}
    return binarize([path], split=split, **what, progress=False)


@pytest.mark.parametrize(
    ("case", "workers", "part_bytes", "fast"),
    [
        ("all symbols", 1, 2**24, True),
        ("all symbols", 2, 49_991, False),
        ("few symbols", 2, 49_991, True),
    ],
    indirect=["case"],
)
def test_same_bytes(case, texts, gpt2, shared_data, tmp_path, workers, part_bytes, fast):
    dictionary, theirs = case
    tokenizer = gpt2 if fast else ByteLevelBpe.load(shared_data / "gpt2_bpe", use_fast_engine=False)
    ours = functools.partial(binarized, case=case, tokenizer=tokenizer, folder=tmp_path / "ours")
    ours = functools.partial(ours, workers=workers, part_bytes=part_bytes)

    for name, split in zip(NAMES, ("train", "valid"), strict=True):
        manifest = ours(texts / name, split=split)
        for suffix in ("bin", "idx"):
            file = f"{split}.{suffix}"
            assert (tmp_path / "ours" / file).read_bytes() == (theirs / file).read_bytes(), file
    assert (tmp_path / "ours" / "dict.txt").read_bytes() == (theirs / "dict.txt").read_bytes()

    counts = {split: record["counts"] for split, record in manifest["splits"].items()}
    assert counts["train"]["tokens"] > 36_000
    assert counts["valid"]["items"] == len(ODD_LINES) + 1  # one lone carriage return
    assert (counts["train"]["unknown"] > 1000) == (len(Vocabulary.load(dictionary)) < 4000)
    for name in ("empty", "blank"):  # fairseq writes files without text
        refused("There is no text for the split test", ours, texts / name, split="test")


@pytest.mark.parametrize("case", ["all symbols"], indirect=True)
def test_small_parts_are_cut_where_no_character_or_line_end_is_broken(case, texts, gpt2, tmp_path):
    text = tmp_path / "text"
    text.write_bytes((texts / "odd").read_bytes()[:3000].replace(b"\n", b"\r\n") * 20)
    outputs = []
    for part_bytes in (997, 10**9):
        binarized(text, case, gpt2, tmp_path / str(part_bytes), part_bytes=part_bytes)
        outputs.append((tmp_path / str(part_bytes) / "train.bin").read_bytes())
    assert outputs[0] == outputs[1]  # cut at 60 places, also between the two bytes of a line end
    assert len(outputs[0]) > 10_000


@pytest.mark.parametrize("case", ["all symbols"], indirect=True)
def test_broken_utf8_stops_both_and_can_be_left_out(case, encoded, texts, gpt2, shared_data, tmp_path):
    theirs = case[1]
    bad = tmp_path / "bad"
    bad.write_bytes((texts / "real").read_bytes() + b"\xff broken\nhalf a character \xe4\xbd\n")
    done = encode(bad, tmp_path / "out", shared_data / "gpt2_bpe", workers=1)
    assert done.returncode != 0
    assert "UnicodeDecodeError" in done.stderr

    ours = functools.partial(binarized, bad, case, gpt2, tmp_path / "ours", part_bytes=50_003)
    line = (texts / "real").read_bytes().count(b"\n") + 1
    refused(rf"bad, line {line}: byte 0xff at column 0 .*--skip-bad-lines", ours, error=BadLineError)
    manifest = ours(rules=LineRules(skip_bad_lines=True), overwrite=True)
    assert manifest["splits"]["train"]["counts"]["bad_lines"] == 2
    assert (tmp_path / "ours" / "train.bin").read_bytes() == (theirs / "train.bin").read_bytes()


@pytest.mark.parametrize("case", ["few symbols"], indirect=True)
def test_fairseq_reads_our_files(case, texts, gpt2, tmp_path):
    indexed_dataset = pytest.importorskip("fairseq.data.indexed_dataset")
    binarized(texts / "odd", case, gpt2, tmp_path)
    theirs = indexed_dataset.MMapIndexedDataset(str(tmp_path / "train"))
    ours = MmapTokens(tmp_path / "train")
    assert len(theirs) == len(ours) == len(ODD_LINES) + 1
    assert all(theirs[index].tolist() == ours[index].tolist() for index in range(len(ours)))


FEW = ("--threshold", "3", "--nwords", "2000", "--padding-factor", "16")


@pytest.mark.parametrize("ours", [(), FEW], ids=["all symbols", "few symbols"])
def test_a_dictionary_of_the_training_text_has_the_same_bytes(encoded, texts, shared_data, tmp_path, ours):
    inputs = ("--trainpref", str(encoded / "real"), "--validpref", str(encoded / "odd"))
    theirs = [{"--threshold": "--thresholdsrc", "--nwords": "--nwordssrc"}.get(word, word) for word in ours]
    words = ["--only-source", "--destdir", str(tmp_path / "theirs"), *inputs, *theirs]
    done = run([*command("fairseq-preprocess"), *words])
    assert done.returncode == 0, done.stderr
    bpe = tmp_path / "bpe"
    bpe.mkdir()
    for name in ("encoder.json", "vocab.bpe"):
        (bpe / name).write_bytes((shared_data / "gpt2_bpe" / name).read_bytes())
    inputs = ("--train", str(texts / "real"), "--valid", str(texts / "odd"), "--workers", "2", "--part-bytes", "50000")
    assert main(["binarize", "--tokenizer", str(bpe), "--output-dir", str(tmp_path / "ours"), *inputs, *ours]) == 0
    for name in ("dict.txt", "train.bin", "train.idx", "valid.bin", "valid.idx"):
        assert (tmp_path / "ours" / name).read_bytes() == (tmp_path / "theirs" / name).read_bytes(), name
    num_rows = len((tmp_path / "ours" / "dict.txt").read_text().splitlines())
    assert num_rows == (2000 - 4 if ours else num_rows) > 1000
