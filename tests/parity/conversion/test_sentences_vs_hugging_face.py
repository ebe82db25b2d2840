"""Real sentences through both tokenizers and both models, padded, in either direction: logits and hidden states."""

import itertools
import lzma
import shutil

import torch

from roberta_plugin.hub import RobertaHub
from tests.conftest import REPOSITORY
from tests.hugging_face import import_transformers
from tests.tiny_checkpoints import state_of
from tests.tiny_conversions import exported, imported, write_checkpoint

transformers = import_transformers()
TOLERANCE = {"atol": 1e-5, "rtol": 1e-5}
POSITIONS = 128
BATCH = 10


def lines_of(text, count):
    """The first lines of several words, of many lengths, without `<s>` and the like, which transformers takes for symbols."""
    return list(itertools.islice((line.strip() for line in text if " " in line.strip() and "<" not in line), count))


@torch.no_grad()
def assert_equal(hub, folder, sentences):
    """Our answers are those of Hugging Face's classes for the same texts."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder, dtype="float32").eval()
    lengths = set()
    for start in range(0, len(sentences), BATCH):
        texts = sentences[start : start + BATCH]
        encoded = tokenizer(texts, padding=True, truncation=True, max_length=POSITIONS, return_tensors="pt")
        is_token = encoded["attention_mask"].bool()
        ours = hub.encode(texts)
        ours = [ids if len(ids) <= POSITIONS else torch.cat([ids[: POSITIONS - 1], ids[-1:]]) for ids in ours]
        theirs = [row[mask].tolist() for row, mask in zip(encoded["input_ids"], is_token, strict=True)]
        assert [ids.tolist() for ids in ours] == theirs
        lengths |= set(is_token.sum(dim=1).tolist())
        padded = torch.nn.utils.rnn.pad_sequence(ours, batch_first=True, padding_value=hub.vocabulary.pad_id)
        logits = hub.model(padded, masked_tokens=is_token)[0]  # (M, V), without the padding
        hidden = hub.extract_features(padded, return_all_hiddens=True)
        outputs = model.roberta(**encoded, output_hidden_states=True)
        expected = model.lm_head(outputs.last_hidden_state[is_token])
        assert (logits - expected).abs().max() < 1e-5  # several times faster than assert_close on 10^8 logits
        assert len(hidden) == len(outputs.hidden_states) > 2
        for found, expected in zip(hidden, outputs.hidden_states, strict=True):
            torch.testing.assert_close(found[is_token], expected[is_token], **TOLERANCE)
    assert len(lengths) > 10
    assert any(length % 2 for length in lengths)


@torch.no_grad()
def random_model_of_theirs(folder, words):
    """A folder as transformers writes it: a random model of its own, with the tokenizer of another folder."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(words)
    sizes = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 40}
    options = {"max_position_embeddings": POSITIONS + 2, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
    config = transformers.RobertaConfig(vocab_size=len(tokenizer), **options, **sizes)
    torch.manual_seed(11)
    model = transformers.RobertaForMaskedLM(config)
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def check_both_directions(ours, tmp_path, sentences):
    words = exported(ours, tmp_path / "exported").folder
    assert_equal(RobertaHub.from_pretrained(ours), words, sentences)
    theirs = random_model_of_theirs(tmp_path / "theirs", words)
    assert_equal(RobertaHub.from_pretrained(imported(theirs, tmp_path / "imported").folder), theirs, sentences)


def test_paragraphs_of_our_documents_have_the_same_logits_and_hidden_states(tmp_path):
    text = (REPOSITORY / "README.md").read_text() + (REPOSITORY / "examples" / "README.pretraining.md").read_text()
    sentences = lines_of(text.split("\n"), 100)
    assert len(sentences) == 100
    ours = write_checkpoint(tmp_path / "ours", max_positions=POSITIONS)
    check_both_directions(ours, tmp_path, sentences)


def test_40_real_sentences_have_the_same_logits_and_hidden_states(shared_data, tmp_path):
    """With GPT-2's own vocabulary of 50,265 symbols."""
    with lzma.open(shared_data / "text" / "books.valid.txt.xz", "rt") as file:
        sentences = lines_of(itertools.islice(file, 500, None), 40)  # after a table of contents
    assert len(sentences) == 40
    ours = shutil.copytree(shared_data / "gpt2_bpe", tmp_path / "ours", copy_function=shutil.copyfile)
    ours.chmod(0o755)
    torch.save(state_of(ours, max_positions=POSITIONS), ours / "model.pt")
    check_both_directions(ours, tmp_path, sentences)
