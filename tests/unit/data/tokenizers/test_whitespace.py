"""Words between white space: the symbols of dict.txt as they stand, on every road from text to answers."""

import json

import numpy as np
import pytest
import torch

from roberta_plugin.cli import main
from roberta_plugin.data.mmap_tokens import MmapTokens
from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.tokenizers.whitespace import Whitespace, words_of
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.finetuning.prepared import Prepared
from roberta_plugin.hub import RobertaHub
from tests.hugging_face import import_transformers
from tests.refusals import refused
from tests.tiny_checkpoints import state_of

DICTIONARY = "the 90\ncat 40\nM 30\n12 9\n[E1] 8\n<user> 7\n\u00e9t\u00e9 6\na b 5\n\u6771\u4eac 4\nmadeupword0000 0\n"
WORDS = ["the", "cat", "M", "12", "[E1]", "<user>", "\u00e9t\u00e9", "\u6771\u4eac"]
SPACES = [" ", "  ", "\t", "\n", "\u00a0", "\u3000", "\u2009", "\u0085"]
OTHERS = ["nope", "the,", "\x1c", "a\x1fb", "\u200b", "\ufeff", "a", "b", "e\u0301t\u00e9", "Cat"]


def texts(number=300):
    generator = np.random.default_rng(5)
    for _ in range(number):
        parts = generator.choice([*WORDS * 3, *SPACES * 3, *OTHERS], size=generator.integers(0, 12))
        yield "".join(f"{part}{generator.choice(['', ' '])}" for part in parts)


@pytest.fixture
def fairseqs(tmp_path):
    """A model of fairseq without files of a tokenizer."""
    folder = tmp_path / "fairseqs"
    folder.mkdir()
    (folder / "dict.txt").write_text(DICTIONARY)
    torch.save(state_of(folder), folder / "model.pt")
    return folder


def test_words_are_the_symbols_between_white_space():
    tokenizer = Whitespace.of_symbols(["<s>", "<pad>", "</s>", "<unk>", "the", "cat", "a b", "the", "<mask>"])
    assert tokenizer.symbols == ["<unk>", "the", "cat"]
    assert tokenizer.encode(" the\u3000old\tcat\x1c <s> ") == [1, 0, 0, 0]
    assert tokenizer.decode([1, 2]) == "the cat"
    located = tokenizer.locate(" the  \u00a0x cat")
    assert list(zip(*(part.tolist() for part in located), strict=True)) == [(1, 1, 4), (0, 7, 8), (2, 9, 12)]
    for text in texts():
        assert [text[start:end] for _, start, end in zip(*tokenizer.locate(text), strict=True)] == words_of(text)


def test_ids_in_transformers_are_equal_after_an_export_and_come_back(fairseqs, tmp_path):
    words = ["--to", "huggingface", "--tokenizer", "whitespace", "--output-dir", str(tmp_path / "huggingface")]
    assert main(["export", str(fairseqs), *words]) == 0
    hub = RobertaHub.from_pretrained(fairseqs, tokenizer="whitespace")
    theirs = import_transformers().AutoTokenizer.from_pretrained(tmp_path / "huggingface")
    known = 0
    for text in [*texts(), "the <mask> cat<mask>"]:
        ids = hub.encode(text).tolist()
        assert theirs(text)["input_ids"] == ids, text
        known += sum(number > 3 for number in ids)
    assert known > 300
    offsets = theirs("the <mask> \u6771\u4eac x", return_offsets_mapping=True)["offset_mapping"][1:-1]
    assert offsets[2:] == [(11, 13), (14, 15)]
    back = RobertaHub.from_pretrained(tmp_path / "huggingface")
    assert back.tokenizer.name == "whitespace"
    assert all(torch.equal(back.encode(text), hub.encode(text)) for text in texts(50))
    assert main(["import", str(tmp_path / "huggingface"), "--output-dir", str(tmp_path / "back")]) == 0
    assert load_tokenizer(tmp_path / "back").encode("the nope 12") == hub.tokenizer.encode("the nope 12")


def test_an_import_remembers_that_words_are_meant(fairseqs, tmp_path, capsys):
    assert main(["import", str(fairseqs), "--output-dir", str(tmp_path / "not")]) != 0
    assert "--tokenizer whitespace" in capsys.readouterr().err
    words = ["--tokenizer", "whitespace", "--output-dir", str(tmp_path / "ours")]
    assert main(["import", str(fairseqs), *words]) == 0
    hub = RobertaHub.from_pretrained(tmp_path / "ours")
    (best, *_) = hub.fill_mask("the <mask> cat", topk=3)
    assert best.text.split() == ["the", best.token.strip(), "cat"]
    assert hub.decode(hub.encode("the <mask> cat")) == "the <mask> cat"
    assert main(["export", str(tmp_path / "ours"), "--to", "fairseq", "--output-dir", str(tmp_path / "fairseq")]) == 0
    assert RobertaHub.from_pretrained(tmp_path / "fairseq").encode("the 12").tolist() == [0, 4, 7, 2]
    assert main(["tokenizer", "show", str(tmp_path / "ours"), "the nope"]) == 0


def test_binarize_writes_the_ids_of_fairseq_and_counts_unknown_words(tmp_path, capsys):
    (tmp_path / "dict.txt").write_text(DICTIONARY)
    (tmp_path / "text.txt").write_text("the cat nope\n\n12 [E1] madeupword0000\n")
    words = ["--tokenizer", "whitespace", "--train", str(tmp_path / "text.txt"), "--output-dir", str(tmp_path / "bin")]
    assert main(["binarize", *words]) != 0
    assert "roberta tokenizer train --kind whitespace --dict" in capsys.readouterr().err
    assert main(["binarize", *words, "--dict", str(tmp_path / "dict.txt")]) == 0
    assert "16.667% unknown" in capsys.readouterr().out
    ids = MmapTokens(tmp_path / "bin" / "train")
    assert np.asarray(ids.tokens).tolist() == [4, 5, 3, 2, 2, 7, 8, 13, 2]
    assert load_tokenizer(tmp_path / "bin").name == "whitespace"


def test_a_tokenizer_of_words_is_made_of_text_or_of_a_dictionary(tmp_path, capsys):
    (tmp_path / "text.txt").write_text("the cat the dog the cat <s> <s>\n" * 2)
    words = ["tokenizer", "train", "--kind", "whitespace", "--output-dir"]
    text = ["--input", str(tmp_path / "text.txt")]
    assert main([*words, str(tmp_path / "a"), *text]) == 0
    assert Vocabulary.load(tmp_path / "a" / "dict.txt").symbols[4:7] == ["the", "cat", "dog"]
    assert "WARNING" not in capsys.readouterr().err
    assert main([*words, str(tmp_path / "b"), *text, "--min-frequency", "3", "--vocab-size", "1"]) == 0
    assert load_tokenizer(tmp_path / "b").symbols == ["<unk>", "the"]
    (tmp_path / "dict.txt").write_text(DICTIONARY)
    listed = ["--dict", str(tmp_path / "dict.txt")]
    assert main([*words, str(tmp_path / "c"), *listed]) == 0
    assert (tmp_path / "c" / "dict.txt").read_text() == DICTIONARY
    assert main([*words, str(tmp_path / "d"), *listed, "--vocab-size", "3"]) == 2
    assert main([*words, str(tmp_path / "d"), *listed, *text]) == 2
    assert "--vocab-size has no effect with --dict" in capsys.readouterr().err
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("content", ['{"words": "the"}', '{"words": ["a b"]}', '{"words": ["a", "a"]}', "[]", "{"])
def test_a_damaged_file_is_named(tmp_path, content):
    (tmp_path / "whitespace.json").write_text(content)
    refused(r"whitespace.json does not hold the words of a tokenizer", load_tokenizer, tmp_path)


def test_a_word_level_tokenizer_of_another_program_is_read(tmp_path):
    """As people make it of dict.txt, without more than the words."""
    tokenizers = pytest.importorskip("tokenizers")
    symbols = ["<s>", "<pad>", "</s>", "<unk>", *WORDS, "<mask>"]
    model = tokenizers.models.WordLevel({symbol: number for number, symbol in enumerate(symbols)}, unk_token="<unk>")
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.save(str(tmp_path / "tokenizer.json"))
    tokenizer, vocabulary = load_tokenizer(tmp_path), Vocabulary.from_tokenizer(tmp_path)
    assert tokenizer.name == "whitespace" and vocabulary.symbols == symbols
    for text in texts(100):
        assert vocabulary.tokenizer_to_model(tokenizer)[tokenizer.encode(text)].tolist() == made.encode(text).ids
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    for change in ({"pre_tokenizer": {"type": "Whitespace"}}, {"pre_tokenizer": None}, {"normalizer": {"type": "NFC"}}):
        (tmp_path / "tokenizer.json").write_text(json.dumps({**content, **change}))
        with pytest.raises(ValueError, match=r"pre_tokenizer|normalizer"):
            load_tokenizer(tmp_path)


def test_a_task_is_prepared_with_the_words_of_a_dictionary_and_unknown_ones_are_counted(tmp_path, capsys):
    (tmp_path / "dict.txt").write_text(DICTIONARY)
    rows = [{"id": str(n), "text": f"the cat {n}", "label": ("no", "yes")[n % 2]} for n in range(12, 22)]
    for split in ("train", "valid"):
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = [
        "prepare",
        "made",
        "--raw",
        str(tmp_path),
        "--tokenizer",
        "whitespace",
        "--output-dir",
        str(tmp_path / "out"),
    ]
    assert main(words) == 2
    assert "give the model's as --dict" in capsys.readouterr().err
    assert main([*words, "--dict", str(tmp_path / "dict.txt")]) == 0
    assert "10 examples, 10 sequences, 50 tokens, 9 of them unknown" in capsys.readouterr().out
    assert np.asarray(Prepared.open(tmp_path / "out").split("train").sequences.tokens)[:5].tolist() == [0, 4, 5, 7, 2]
    assert load_tokenizer(tmp_path / "out").name == "whitespace"
