import numpy as np
import pytest

from roberta_plugin.data.tokenizers.byte_level_bpe import BYTE_CHARACTERS
from roberta_plugin.data.vocabulary import Row, Vocabulary
from tests.refusals import refused
from tests.tiny_tokenizers import byte_level_bpe


def write(tmp_path, content):
    path = tmp_path / "dict.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


DICTS = {
    "plain": "a 5\nb 3\nmadeupword0000 0\n",
    "no line end": "a 5\nb 3",
    "windows line ends": "a 5\r\nb 3\r\n",
    "old line ends": "a 5\rb 3\r",
    "mask inside": "a 5\n<mask> 7\nb 3\n",
    "overwrite": "a 5\nb 3\na 9 #fairseq:overwrite\n<unk> 2 #fairseq:overwrite\n",
    "spaces in symbols": "a b 5\n\u00e9\U0001f600 4\nc  3   \n",
    "odd numbers": "a -1\nb 1_000\nc +3\n",
}


@pytest.mark.parametrize("content", DICTS.values(), ids=DICTS.keys())
def test_same_ids_symbols_counts_and_bytes_as_fairseq(tmp_path, content):
    fairseq_data = pytest.importorskip("fairseq.data")
    path = write(tmp_path, content)
    theirs, ours = fairseq_data.Dictionary.load(str(path)), Vocabulary.load(path)
    ours.save(tmp_path / "ours.txt")
    theirs.save(str(tmp_path / "theirs.txt"))
    without_marks = (tmp_path / "ours.txt").read_bytes().replace(b" #fairseq:overwrite", b"")
    assert without_marks == (tmp_path / "theirs.txt").read_bytes()

    assert ours.num_binarized == len(theirs)
    mask_id = theirs.add_symbol("<mask>")
    for vocabulary in (ours, Vocabulary.load(tmp_path / "ours.txt")):
        assert vocabulary.symbols == theirs.symbols and len(vocabulary) == len(theirs)
        assert vocabulary.counts.tolist() == theirs.count
    assert (ours.mask_id, ours.pad_id, ours.bos_id) == (mask_id, theirs.pad(), theirs.bos())
    assert (ours.eos_id, ours.unk_id) == (theirs.eos(), theirs.unk())
    for symbol in [*theirs.symbols, "absent", ""]:
        assert ours.index(symbol) == theirs.index(symbol)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a 5\nb\n", ["line 2", "'b'"]),
        (b"a 5\n\nb 3\n", ["line 2"]),
        (b"a 5\nb x\n", ["line 2", "'b x'"]),
        (b"a 5\na 3\n", ["line 2", "'a'", "#fairseq:overwrite"]),
        (b"a 5\n<s> 3\n", ["line 2", "'<s>'"]),
        (b"a 5\nb\xff 3\n", ["line 2", "0xff", "UTF-8"]),
        (b"a 5\nb #fairseq:overwrite\n", ["line 2"]),
        (b"", ["is empty: copy it again"]),  # fairseq reads it, and everything becomes <unk>
    ],
)
def test_refuses_a_bad_line_by_file_and_number(tmp_path, content, words):
    said = refused(r"dict\.txt", Vocabulary.load, write(tmp_path, content))
    assert [word for word in words if word not in said] == []


def test_says_how_to_get_a_missing_file(tmp_path):
    refused("roberta tokenizer train", Vocabulary.load, tmp_path / "dict.txt", error=FileNotFoundError)


def test_special_symbols_are_neither_masked_nor_drawn():
    vocabulary = Vocabulary([Row("a", 5), Row("madeupword0000", 0), Row("b", 3)])
    names = np.array(vocabulary.symbols)
    specials = {"<s>", "<pad>", "</s>", "<unk>", "<mask>", "madeupword0000"}
    assert set(names[vocabulary.never_masked()]) == specials
    assert set(names[vocabulary.never_drawn()]) == specials


def test_a_line_that_lost_its_symbol_is_never_drawn():
    vocabulary = Vocabulary([Row("a", 5), Row("a", 9, overwrites=True)])
    assert vocabulary.never_drawn()[[4, 5]].tolist() == [True, False]
    assert not vocabulary.never_masked()[[4, 5]].any()


SPACE = BYTE_CHARACTERS[32]
ROWS = [Row("257", 9), Row("97", 5), Row("madeupword0000", 0), Row("256", 3)]


def test_maps_tokenizer_ids_and_back_and_word_starts_follow_the_tokenizer():
    tokenizer, vocabulary = byte_level_bpe([(SPACE, "a"), ("a", "b")]), Vocabulary(ROWS)
    to_model = vocabulary.tokenizer_to_model(tokenizer)
    assert (to_model[257], to_model[97], to_model[256]) == (4, 5, 7)
    assert (to_model == vocabulary.unk_id).sum() == len(tokenizer.symbols) - 3
    assert vocabulary.model_to_tokenizer(tokenizer).tolist() == [-1, -1, -1, -1, 257, 97, -1, 256, -1]
    starts = Vocabulary([*ROWS, Row("32", 1)]).word_starts(tokenizer).tolist()
    assert starts == [True] * 4 + [False, False, True, True, True, True], "other symbols stand alone"


def test_a_count_beyond_what_numpy_counts_is_refused_by_its_line(tmp_path):
    (tmp_path / "dict.txt").write_text(f"a 3\nb 1{'0' * 400}\n")
    refused(r"dict\.txt, line 2: .*a whole number up to", Vocabulary.load, tmp_path / "dict.txt")
