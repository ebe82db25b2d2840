import numpy as np
import pytest

from roberta_plugin.data.tokenizers.byte_level_bpe import BYTE_CHARACTERS, ByteLevelBpe
from roberta_plugin.data.vocabulary import Row, Vocabulary


def write(tmp_path, content):
    path = tmp_path / "dict.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


DICTS = {
    "plain": "a 5\nb 3\nmadeupword0000 0\n",
    "no line end": "a 5\nb 3",
    "windows line ends": "a 5\r\nb 3\r\n",
    "mask inside": "a 5\n<mask> 7\nb 3\n",
    "overwrite": "a 5\nb 3\na 9 #fairseq:overwrite\n<unk> 2 #fairseq:overwrite\n",
    "spaces in symbols": "a b 5\n\u00e9\U0001f600 4\nc  3   \n",
    "odd numbers": "a -1\nb 1_000\nc +3\n",
}


@pytest.mark.parametrize("content", DICTS.values(), ids=DICTS.keys())
def test_same_ids_symbols_and_counts_as_fairseq(tmp_path, content):
    fairseq_data = pytest.importorskip("fairseq.data")
    path = write(tmp_path, content)
    theirs = fairseq_data.Dictionary.load(str(path))
    size_of_data = len(theirs)
    mask_id = theirs.add_symbol("<mask>")

    ours = Vocabulary.load(path)

    assert ours.symbols == theirs.symbols
    assert ours.counts.tolist() == theirs.count
    assert len(ours) == len(theirs)
    assert ours.num_binarized == size_of_data
    assert (ours.mask_id, ours.pad_id, ours.bos_id) == (mask_id, theirs.pad(), theirs.bos())
    assert (ours.eos_id, ours.unk_id) == (theirs.eos(), theirs.unk())
    for symbol in [*theirs.symbols, "absent", ""]:
        assert ours.index(symbol) == theirs.index(symbol)


@pytest.mark.parametrize("content", DICTS.values(), ids=DICTS.keys())
def test_saves_the_bytes_of_fairseq_and_reads_them_again(tmp_path, content):
    fairseq_data = pytest.importorskip("fairseq.data")
    path = write(tmp_path, content)
    ours = Vocabulary.load(path)
    ours.save(tmp_path / "ours.txt")
    fairseq_data.Dictionary.load(str(path)).save(str(tmp_path / "theirs.txt"))

    without_marks = (tmp_path / "ours.txt").read_bytes().replace(b" #fairseq:overwrite", b"")

    assert without_marks == (tmp_path / "theirs.txt").read_bytes()
    again = Vocabulary.load(tmp_path / "ours.txt")
    assert again.symbols == ours.symbols
    assert again.counts.tolist() == ours.counts.tolist()


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
    ],
)
def test_refuses_a_bad_line_by_file_and_number(tmp_path, content, words):
    with pytest.raises(ValueError, match=r"dict\.txt") as error:
        Vocabulary.load(write(tmp_path, content))
    for word in words:
        assert word in str(error.value)


def test_says_how_to_get_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="roberta vocabulary train"):
        Vocabulary.load(tmp_path / "dict.txt")


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


@pytest.fixture
def tokenizer():
    pieces = [*BYTE_CHARACTERS, BYTE_CHARACTERS[32] + "a", "ab"]
    return ByteLevelBpe(pieces, [(BYTE_CHARACTERS[32], "a"), ("a", "b")])


def test_maps_tokenizer_ids_and_back(tokenizer):
    vocabulary = Vocabulary([Row("257", 9), Row("97", 5), Row("madeupword0000", 0), Row("256", 3)])
    to_model = vocabulary.tokenizer_to_model(tokenizer)
    back = vocabulary.model_to_tokenizer(tokenizer)

    assert (to_model[257], to_model[97], to_model[256]) == (4, 5, 7)
    assert (to_model == vocabulary.unk_id).sum() == len(tokenizer.symbols) - 3
    assert back.tolist() == [-1, -1, -1, -1, 257, 97, -1, 256, -1]


def test_word_starts_follow_the_tokenizer_and_other_symbols_stand_alone(tokenizer):
    vocabulary = Vocabulary([Row("257", 9), Row("97", 5), Row("madeupword0000", 0), Row("256", 3), Row("32", 1)])
    assert vocabulary.word_starts(tokenizer).tolist() == [True] * 4 + [False, False, True, True, True, True]


def test_an_empty_file_is_refused(tmp_path):
    """fairseq reads it, and everything becomes <unk>."""
    (tmp_path / "dict.txt").touch()
    with pytest.raises(ValueError, match=r"dict\.txt is empty: copy it again"):
        Vocabulary.load(tmp_path / "dict.txt")
