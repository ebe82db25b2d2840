"""A tokenizer in Hugging Face's files, as `tokenizers` writes them: read as any other, or refused in one sentence."""

import json
import shutil

import pytest
from tokenizers import ByteLevelBPETokenizer, Tokenizer, models, pre_tokenizers

from roberta_plugin.cli import main
from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.vocabulary import MASK, SPECIALS, Row, Vocabulary
from tests.refusals import refused
from tests.tiny_benchmarks import write_tokenizer
from tests.tiny_tokenizers import train_tokenizer

TEXT = "the cat sat on the mat, and the dog sat on the cat"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folders "two" with vocab.json and merges.txt, and "one" with tokenizer.json."""
    folder = tmp_path_factory.mktemp("trained")
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator([TEXT] * 9, vocab_size=280, special_tokens=[*SPECIALS, MASK], show_progress=False)
    for name in ("one", "two"):
        (folder / name).mkdir()
    tokenizer.save_model(str(folder / "two"))
    tokenizer.save(str(folder / "one" / "tokenizer.json"))
    return folder


def ids_of(folder, text=TEXT):
    tokenizer, vocabulary = load_tokenizer(folder), Vocabulary.from_tokenizer(folder)
    return vocabulary.tokenizer_to_model(tokenizer)[tokenizer.encode(text)].tolist()


def test_the_commands_take_the_folder_and_write_what_fairseq_needs(trained, tmp_path, capsys):
    (tmp_path / "text.txt").write_text(f"{TEXT}\n\n{TEXT}\n")
    wanted = Tokenizer.from_file(str(trained / "one" / "tokenizer.json")).encode(TEXT).ids
    for name in ("one", "two"):
        out = tmp_path / name
        words = ["--tokenizer", str(trained / name), "--train", str(tmp_path / "text.txt"), "--output-dir", str(out)]
        assert main(["binarize", *words, "--no-progress"]) == 0
        assert {path.name for path in out.iterdir()} >= {"dict.txt", "encoder.json", "vocab.bpe", "train.bin"}
        assert ids_of(trained / name) == ids_of(out) == wanted
        assert Vocabulary.load(out / "dict.txt").symbols == Vocabulary.from_tokenizer(trained / name).symbols
        assert load_tokenizer(out).description() == load_tokenizer(trained / name).description()
        capsys.readouterr()
        assert main(["tokenizer", "show", str(trained / name), TEXT]) == 0
        _, *rows, figures = capsys.readouterr().out.splitlines()
        assert [int(line.split()[1]) for line in rows] == wanted and "tokens per word" in figures


def rewritten(change, name="vocab.json"):
    def write(folder):
        (folder / name).write_text(json.dumps(change(json.loads((folder / name).read_text()))))

    return write


def numbered(pieces):
    return {piece: number for number, piece in enumerate(pieces)}


def without_merges(file):
    return {**file, "model": {name: value for name, value in file["model"].items() if name != "merges"}}


def fairseqs_dictionary(folder):
    """As of a training with bpe=hf_byte_bpe, whose numbers are those of vocab.json."""
    Vocabulary([Row(str(number), 1) for number in range(5, 280)]).save(folder / "dict.txt")


DAMAGED = [
    ("two", lambda folder: (folder / "vocab.json").write_text('{"a": 1'), r"vocab\.json is not valid JSON.*copy the"),
    ("one", lambda folder: (folder / "tokenizer.json").write_text("{"), r"tokenizer\.json is not valid JSON.*copy the"),
    ("two", lambda folder: (folder / "merges.txt").write_text("a b c\n"), r"merges\.txt: the merge 'a b c' is not a p"),
    ("two", lambda folder: (folder / "merges.txt").write_text("q z\n"), r"merge 1, 'q z': 'qz' has no id: pieces and"),
    ("two", lambda folder: (folder / "merges.txt").unlink(), r"or tokenizer\.json; or vocab\.json and merges\.txt"),
    ("two", rewritten(lambda ids: numbered(list(ids)[1:])), r"they have none, 0, 1, 2: train it with special_tokens="),
    ("two", rewritten(lambda ids: numbered([*list(ids)[5:], *list(ids)[:5]])), r"they have 27., 27., 27., 27.: train"),
    (
        "two",
        rewritten(lambda ids: {**ids, "the": 10**9}),
        r"the id 1000000000, and has only \d+ symbols: copy the file",
    ),
    ("two", rewritten(lambda ids: {**ids, "the": 9}), r"the id 9 is not a whole number of one piece alone"),
    ("two", rewritten(lambda ids: {**ids, "the": "9"}), r"the id '9' is not a whole number of one piece alone"),
    (
        "two",
        rewritten(lambda ids: {**ids, **{f"a{one}": 300 + one for one in range(60_000)}, "again": 60_299}),
        r"the id 60299 is not a whole number of one piece alone",  # at once, not after 60,000 x 60,000 steps
    ),
    (
        "two",
        rewritten(lambda ids: {k: v for k, v in ids.items() if k != "\u0120"}),
        r"has no id, and RoBERTa's BPE kno",
    ),
    (
        "one",
        rewritten(without_merges, "tokenizer.json"),
        r"tokenizer\.json is not complete \(KeyError: 'merges'\): copy",
    ),
    ("two", fairseqs_dictionary, r"dict\.txt does not have the symbols .* remove it .* copy vocab\.json to encoder\.j"),
    ("two", write_tokenizer, r"two tokenizers: encoder\.json and vocab\.bpe; and another one in Hugging Face's files"),
    (
        "one",
        lambda folder: Tokenizer(models.WordPiece({"[UNK]": 0})).save(str(folder / "tokenizer.json")),
        r"the model has the step WordPiece, and RoBERTa's have only BPE, Unigram.*`roberta tokenizer train`",
    ),
    (
        "one",
        rewritten(
            lambda file: {**file, "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}]}},
            "tokenizer.json",
        ),
        r"the normalizer has the step NFKC, and RoBERTa's have only NFC",
    ),
]


def test_what_cannot_be_read_is_one_sentence_that_names_file_and_remedy(trained, tmp_path, capsys):
    for number, (name, damage, message) in enumerate(DAMAGED):
        folder = tmp_path / str(number)
        shutil.copytree(trained / name, folder)
        damage(folder)
        assert str(folder) in refused(message, load_tokenizer, folder, error=(ValueError, FileNotFoundError))
    assert main(["tokenizer", "show", str(folder), TEXT]) == 2
    assert "the step NFKC" in capsys.readouterr().err


def test_few_gaps_no_mask_and_files_of_2020_keep_their_ids(trained, tmp_path):
    wanted = ids_of(trained / "two")
    of_2020 = rewritten(
        lambda file: {**file, "model": {name: file["model"][name] for name in ("vocab", "merges")}}, "tokenizer.json"
    )
    changes = {
        "gap": ("two", rewritten(lambda ids: {piece: number + (number > 5) for piece, number in ids.items()}), 1),
        "mask": ("two", rewritten(lambda ids: numbered(piece for piece in ids if piece != MASK)), -1),
        "2020": ("one", of_2020, 0),
    }
    for name, (kind, change, moved) in changes.items():
        shutil.copytree(trained / kind, tmp_path / name)
        change(tmp_path / name)
        assert ids_of(tmp_path / name) == [number + moved for number in wanted]
    without = Vocabulary.from_tokenizer(tmp_path / "mask")
    assert without.mask_id == len(without) - 1


def test_our_own_files_prevail_where_both_are_of_one_tokenizer(trained, tmp_path):
    """As in a folder of `roberta export --to onnx`, or one to which the other's files were copied."""
    load_tokenizer(trained / "two").save(tmp_path)
    Vocabulary.from_tokenizer(trained / "two").save(tmp_path / "dict.txt")
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(trained / "two" / name, tmp_path)
    assert ids_of(tmp_path) == ids_of(trained / "two")
    (tmp_path / "encoder.json").unlink()  # then dict.txt is that of Hugging Face's files, too
    assert ids_of(tmp_path) == ids_of(trained / "two")


def test_a_sentencepiece_model_and_a_tokenizer_json_of_another_are_refused(tmp_path):
    (tmp_path / "text.txt").write_text(f"{TEXT}\n" * 20)
    symbols = train_tokenizer("sentencepiece", [tmp_path / "text.txt"], vocab_size=30, folder=tmp_path).symbols
    (tmp_path / "dict.txt").unlink()
    steps = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace("\u2581", prepend_scheme="always")]
    for pieces in (symbols[3:], symbols[3:-1]):
        theirs = Tokenizer(models.Unigram([(piece, -1.0) for piece in [*SPECIALS, *pieces]], unk_id=3))
        theirs.pre_tokenizer = pre_tokenizers.Sequence(steps)
        theirs.save(str(tmp_path / "tokenizer.json"))
        if pieces == symbols[3:]:
            assert Vocabulary.from_tokenizer(tmp_path).symbols == [*SPECIALS, *pieces, MASK]
    message = r"tokenizer\.json: it has no .*, which is a piece of sentencepiece\.bpe\.model"
    refused(message, load_tokenizer, tmp_path)
