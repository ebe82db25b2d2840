"""New words and new tokenizers for a trained model: which rows stay, what the others are, and what is refused."""

import sys
from pathlib import Path

import pytest
import sentencepiece
import torch

from roberta_plugin.checkpoint_files import load_state
from roberta_plugin.cli import main
from roberta_plugin.conversion.pretrained import read_any
from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.tokenizers.additions import additions_of
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.extensions.vocabulary_change.change import extend_vocabulary
from roberta_plugin.extensions.vocabulary_change.new_words import extended
from roberta_plugin.extensions.vocabulary_change.settings import ExtendSettings
from roberta_plugin.hub import RobertaHub
from roberta_plugin.models.state_dicts import TOKENS
from tests.hugging_face import import_transformers
from tests.needed_extensions import with_kinds_of_extensions
from tests.refusals import refused
from tests.stopped_commands import check_stopped_conversion
from tests.tiny_checkpoints import state_of
from tests.tiny_conversions import exported, opened, write_checkpoint
from tests.tiny_models import SWITCHED
from tests.tiny_tokenizers import train_tokenizer

TEXT = "The quick brown fox jumps over the lazy dog, and the dog does not mind it at all. Good or bad, so it is."
KINDS = with_kinds_of_extensions({"byte_level_bpe": 300, "sentencepiece": 60}, 70)
WORDS = ("zebuq", "wiggly")
LM_BIAS = "encoder.lm_head.bias"


def write_model(folder, kind):
    (folder / "text.txt").write_text("\n".join(f"{TEXT} {number}" for number in range(300)))
    train_tokenizer(kind, [folder / "text.txt"], vocab_size=KINDS[kind], folder=folder / "ours")
    torch.save(state_of(folder / "ours"), folder / "ours" / "model.pt")
    return folder / "ours"


@pytest.fixture(params=KINDS)
def ours(request, tmp_path):
    return write_model(tmp_path, request.param)


def rows_of(model, texts):
    """Model ids of each text."""
    to_model = model.vocabulary.tokenizer_to_model(model.tokenizer)
    return [to_model[model.tokenizer.encode(text)].tolist() for text in texts]


def test_new_words_become_tokens_with_the_mean_of_their_pieces(ours, tmp_path, capsys):
    arguments = ["--checkpoint", str(ours), "--add", WORDS[0], "--output-dir", str(tmp_path / "new")]
    (tmp_path / "words.txt").write_text(f"{WORDS[1]}\n\n")
    assert main(["tokenizer", "extend", *arguments, "--words", str(tmp_path / "words.txt")]) == 0
    assert "with the mean of their pieces" in capsys.readouterr().out
    before, after = read_any(ours), read_any(tmp_path / "new")
    for word in WORDS:
        (old,), (new,) = (rows_of(model, [f"a {word}"]) for model in (before, after))
        shared = len(rows_of(before, ["a"])[0])
        pieces = old[shared:]
        assert len(pieces) > 1 and len(new) == shared + 1, word
        for name in (TOKENS, LM_BIAS):
            expected = before.parameters[name][pieces].mean(dim=0)
            torch.testing.assert_close(after.parameters[name][new[-1]], expected)
    for symbol in before.vocabulary.symbols:
        old, new = before.vocabulary.index(symbol), after.vocabulary.index(symbol)
        for name in (TOKENS, LM_BIAS, "encoder.lm_head.weight"):
            assert torch.equal(after.parameters[name][new], before.parameters[name][old])
    assert after.vocabulary.mask_id == len(after.vocabulary) - 1

    text = "the dog and the fox"
    assert after.tokenizer.encode(text) == before.tokenizer.encode(text)
    models = [opened(path) for path in (ours, tmp_path / "new")]
    ids = torch.tensor([[0, *rows_of(before, [text])[0], 2]])
    features = [model(ids, features_only=True)[0] for model in models]
    assert torch.equal(*features)


def test_each_of_many_words_is_one_token_in_any_order(ours):
    """Words that begin with, end with or repeat others, whose merges come first."""
    before = read_any(ours).tokenizer
    words = ["zebuq", "wizebuq", "wizebuqs", "wiwi", "wiwiwiwi", "zezezeze", "zebuqzebuq", "zeb", "ebuqs", "buqs"]
    for given in (words, words[::-1]):
        after = extended(before, given)
        common = len(before.encode("a"))
        assert [word for word in words if len(after.encode(f"a {word}")) != common + 1] == []
        texts = [f"a {word}" for word in words]
        assert after.encode_lines(texts)[0].tolist() == [index for text in texts for index in after.encode(text)]


def test_sentencepiece_normalizes_new_words_as_text(tmp_path):
    before = read_any(write_model(tmp_path, "sentencepiece")).tokenizer
    after = extended(before, ["\uff5aebuq"])  # a full-width z
    assert len(after.encode("zebuq")) == len(after.encode("\uff5aebuq")) == 1
    message = r"'\uff5aebuq' is '\u2581zebuq' to the tokenizer, as another one is: leave it"
    refused(message, extended, before, ["zebuq", "\uff5aebuq"])


@pytest.mark.parametrize("before", KINDS)
@pytest.mark.parametrize("after", KINDS)
def test_another_tokenizer_keeps_the_rows_of_common_pieces(before, after, tmp_path):
    ours = write_model(tmp_path, before)
    (tmp_path / "other.txt").write_text("\n".join(f"Der Hund ist the quick fox \u00e9t\u00e9 {n}" for n in range(300)))
    train_tokenizer(after, [tmp_path / "other.txt"], vocab_size=290, folder=tmp_path / "tokenizer")
    settings = ExtendSettings(checkpoint=ours, tokenizer=tmp_path / "tokenizer", output_dir=tmp_path / "new")
    change = extend_vocabulary(settings)
    old, new = read_any(ours), read_any(tmp_path / "new")
    assert change.num_symbols == len(new.vocabulary) == len(Vocabulary.load(tmp_path / "tokenizer" / "dict.txt"))
    assert change.num_kept > 5 and change.num_kept + change.num_from_pieces + change.num_unknown == change.num_symbols
    (fox_before, fox_after) = (rows_of(model, ["a quick fox"])[0] for model in (old, new))
    if before == after and len(fox_before) == len(fox_after):
        assert torch.equal(old.parameters[TOKENS][fox_before], new.parameters[TOKENS][fox_after])
    for name in (TOKENS, LM_BIAS):
        assert torch.isfinite(new.parameters[name]).all()
    mask = (model.parameters[TOKENS][model.vocabulary.mask_id] for model in (old, new))
    assert torch.equal(*mask)
    assert load_tokenizer(tmp_path / "new").name == after
    assert opened(tmp_path / "new")(torch.tensor([[0, *fox_after, 2]]))[0].size(-1) == len(new.vocabulary)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["a" * 100_000], r"^The new word 'a{20}'... has 100,000 characters, and at most 1,000 are allowed"),
        (["a", "the"], r"'(a|the)' is one token of the tokenizer already: leave it out"),
        (["zebuq", "zebuq"], r"'zebuq' is given 2 times"),
        (["two words"], r"'two words' is several words"),
        ([" fox"], r"' fox' is empty, or has white space"),
        ([], r"Give either new words \(--add WORD \.\.\. or --words FILE\) or a new --tokenizer"),
    ],
)
def test_words_that_cannot_be_added_are_refused(ours, tmp_path, words, named):
    settings = ExtendSettings(checkpoint=ours, add=tuple(words), output_dir=tmp_path / "new")
    refused(named, extend_vocabulary, settings)
    assert not (tmp_path / "new").exists()


def test_options_of_new_words_and_a_new_tokenizer_exclude_each_other(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(write_model(tmp_path, "byte_level_bpe"))
    (tmp_path / "ours" / "words").write_text("fox\n")
    roads = {"--tokenizer": ". --add x", "--add": "x --tokenizer .", "--words": "words --tokenizer ."}
    for option, words in roads.items():
        assert main(["tokenizer", "extend", "--checkpoint", ".", "--output-dir", "o", option, *words.split()]) == 2
        assert option in capsys.readouterr().err and not Path("o").exists()


@pytest.mark.parametrize("kind", [*KINDS][1:])
def test_unknown_characters_need_a_new_tokenizer(tmp_path, kind):
    words = {"checkpoint": write_model(tmp_path, kind), "add": ("\u03b1\u03b2",), "output_dir": tmp_path / "new"}
    message = r"'\u03b1\u03b2' has characters that the tokenizer does not know"
    refused(message, extend_vocabulary, ExtendSettings(**words))


def test_a_protobuf_that_does_not_fit_sentencepiece_is_named(tmp_path, monkeypatch, capsys):
    ours = write_model(tmp_path, "sentencepiece")
    monkeypatch.delattr(sentencepiece, "sentencepiece_model_pb2", raising=False)
    monkeypatch.setitem(sys.modules, "sentencepiece.sentencepiece_model_pb2", None)
    words = ["--checkpoint", str(ours), "--add", "zebuq", "--output-dir", str(tmp_path / "new")]
    assert main(["tokenizer", "extend", *words]) == 2
    assert main(["export", "--to", "huggingface", "--output-dir", str(tmp_path / "theirs"), str(ours)]) == 2
    for line in capsys.readouterr().err.splitlines():
        assert "The installed protobuf does not fit the installed sentencepiece (" in line
        assert "pip install --upgrade protobuf" in line


MARKERS = ("[E1]", "[/E1]", "<user>", "@USER", "\u27e8x\u27e9")


def test_markers_become_added_tokens_that_are_found_anywhere(ours, tmp_path, capsys):
    words = ["--add", *MARKERS, WORDS[0], "--output-dir", str(tmp_path / "new")]
    assert main(["tokenizer", "extend", "--checkpoint", str(ours), *words]) == 0
    printed = capsys.readouterr()
    assert "'[E1]', '[/E1]', '<user>', '@USER'" in printed.out and "added tokens" in printed.out
    before, after = read_any(ours), read_any(tmp_path / "new")
    assert len(after.vocabulary) == len(set(after.vocabulary.symbols)) and after.vocabulary.symbols[-1] == "<mask>"
    tokens = {token.content for token in additions_of(after.tokenizer)[0]}
    assert tokens == set(MARKERS)
    for marker in tokens:
        (plain,), (marked,) = (rows_of(after, [text]) for text in ("the dog", f"{marker}the dog"))
        assert marked[1:] == plain, marker
        assert after.vocabulary.symbols[marked[0]] == marker
        assert after.tokenizer.decode(after.tokenizer.encode(marker)) == marker
    (row,) = rows_of(after, ["[E1]"])[0]
    sources = [index for index in rows_of(before, ["[E1]"])[0] if index != before.vocabulary.unk_id]
    if sources:
        mean = before.parameters[TOKENS][sources].mean(dim=0)
        torch.testing.assert_close(after.parameters[TOKENS][row], mean)
    text = "the dog and the fox"
    assert rows_of(after, [text]) == rows_of(before, [text])
    located = after.tokenizer.locate("the [E1]dog[/E1]")
    found = ["the [E1]dog[/E1]"[start:end] for start, end in zip(located.starts, located.ends, strict=True)]
    assert {"[E1]", "[/E1]"} <= set(found)
    with pytest.raises(ValueError, match=r"'\[E1\]' is one token of the tokenizer already"):
        extended(after.tokenizer, ["[E1]"])
    assert extended(after.tokenizer, ["[E2]"]).encode("[E2]") != after.tokenizer.encode("[E2]")


@pytest.mark.parametrize("kind", ["byte_level_bpe", "sentencepiece"])
def test_transformers_finds_the_same_markers_after_an_export(kind, tmp_path):
    words = (*MARKERS, *(["e-mail"] if kind == "byte_level_bpe" else []))
    settings = ExtendSettings(checkpoint=write_model(tmp_path, kind), add=words, output_dir=tmp_path / "new")
    assert extend_vocabulary(settings).stays_here == ()
    after = read_any(tmp_path / "new")
    exported(tmp_path / "new", tmp_path / "theirs")
    theirs = import_transformers().AutoTokenizer.from_pretrained(tmp_path / "theirs")
    for text in (
        "the [E1]dog[/E1] and",
        "e-mail e-mails xe-mail, e-mail",
        "@USER<user> @USERS x@USER",
        "\u27e8x\u27e9",
    ):
        assert theirs(text)["input_ids"] == [0, *rows_of(after, [text])[0], 2], text


@pytest.mark.parametrize("word", ["<mask>", "</s>", "a\tb", "a\u3000b"])
def test_special_symbols_and_white_space_are_no_new_words(ours, word):
    refused(r"is a special symbol|is several words, by its white space", extended, read_any(ours).tokenizer, [word])


def test_a_new_vocabulary_keeps_the_layers(tmp_path):
    ours = write_checkpoint(tmp_path / "ours", encoder_layers=2, **SWITCHED)
    before = load_state(ours / "model.pt")
    extend_vocabulary(ExtendSettings(checkpoint=ours, output_dir=tmp_path / "more", add=("zebra", "okapi")))
    after = load_state(tmp_path / "more" / "model.pt")
    same = [name for name in before["model"] if ".layers." in name]
    assert len(same) == 19 and all(torch.equal(before["model"][name], after["model"][name]) for name in same)
    grown = ("encoder.lm_head.weight", "encoder.sentence_encoder.embed_tokens.weight")
    assert all(len(after["model"][name]) > len(before["model"][name]) for name in grown)
    assert RobertaHub.from_pretrained(tmp_path / "more").model.cfg.feed_forward == "swiglu"


def test_a_stopped_change_leaves_nothing_and_a_killed_one_only_until_the_next(tmp_path_factory, tmp_path, monkeypatch):
    model = write_checkpoint(tmp_path_factory.mktemp("model"))
    words = ["tokenizer", "extend", "--checkpoint", str(model), "--add", "haemo"]
    check_stopped_conversion(words, tmp_path, monkeypatch)


def test_a_damaged_checkpoint_is_named(tmp_path, capsys):
    model = write_checkpoint(tmp_path / "model")
    state = torch.load(model / "model.pt", weights_only=False)
    state["model"]["encoder.sentence_encoder.layers.1.fc1.weight"].fill_(torch.nan)
    torch.save(state, model / "model.pt")
    words = ["tokenizer", "extend", "--checkpoint", str(model), "--add", "haemo", "--output-dir", str(tmp_path / "out")]
    assert main(words) == 2
    assert "fc1.weight holds NaN" in capsys.readouterr().err and not (tmp_path / "out").exists()
