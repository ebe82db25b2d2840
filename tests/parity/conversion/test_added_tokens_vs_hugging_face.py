"""Added tokens of transformers' tokenizers, and the space in front of texts: equal ids here, and on the way back."""

import json
import pickle
import shutil

import numpy as np
import pytest
import torch
from tokenizers import AddedToken, Tokenizer

from roberta_plugin.cli import main
from roberta_plugin.conversion.fairseq_format import write_words
from roberta_plugin.conversion.huggingface_tokenizers import model_type_of, write_tokenizer
from roberta_plugin.conversion.portable import Head, PortableModel
from roberta_plugin.data.mmap_tokens import MmapTokens
from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.tokenizers.additions import FILE, additions_of
from roberta_plugin.data.tokenizers.huggingface import read_tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.finetuning.identity import MASK_KEEPS_SPACE
from roberta_plugin.finetuning.prepared import Prepared
from roberta_plugin.hub import RobertaHub
from roberta_plugin.json_files import write_json
from tests.hugging_face import import_transformers
from tests.parity.conversion.test_tokenizers_vs_hugging_face import exported, their_ids
from tests.refusals import refused
from tests.tiny_conversions import TEXT
from tests.tiny_tokenizers import train_tokenizer

transformers = import_transformers()
CYRILLIC, CJK, FULL_WIDTH = "\u0442\u043e\u043a\u0435\u043d", "\u6771\u4eac", "\uff3bE1\uff3d"
PLAIN = ["[E1]", "[E1][E2]", "dog", "12", "a b", CYRILLIC, CJK, "caf\u00e9", "\u00e9", "x\n"]
FLAGGED = [
    AddedToken("<L>", lstrip=True),
    AddedToken("<R>", rstrip=True),
    AddedToken("<B>", lstrip=True, rstrip=True, normalized=False),
    AddedToken("fox", single_word=True),
    AddedToken("Zeug", single_word=True, lstrip=True, normalized=False),
    AddedToken("madeupword0007", normalized=False),
]
SPECIAL = ["<ent>", "<ent", AddedToken("<sp>", special=True, lstrip=True)]
TEXTS = [
    template.format(token=token)
    for token in [*(str(token) for token in [*PLAIN, *FLAGGED, *SPECIAL]), "madeupword", FULL_WIDTH, "[E2]", "\u00bd"]
    for template in (
        "{token}",
        "boat {token} x",
        "boat{token}x",
        "  {token}  ",
        "{token}{token} {token}",
        "good  {token}",
        "{token}  good dog",
        "\u00fc{token}\u00df_{token}1",
        f"{CJK}{{token}}{CYRILLIC}, \u00e9t\u00e9\t{{token}}\u3000{{token}}",
        "a\n{token}\nb <ent>{token}",
        "{token} ",
    )
] + ["", " ", TEXT, "fox foxes Zeug Zeugs firefox fox. (fox)"]


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    """Folders of transformers with tokenizers of two kinds, by name, without added tokens."""
    folders = {}
    for kind in ("byte_level_bpe", "sentencepiece"):
        folder = tmp_path_factory.mktemp(kind)
        (folder / "text.txt").write_text("\n".join([TEXT, "boat \u00e9t\u00e9 \u00bd 1 2"] * 100))
        train_tokenizer(kind, [folder / "text.txt"], vocab_size=320 if kind == "byte_level_bpe" else 60, folder=folder)
        exported(folder, folder / "out")
        folders[kind] = folder
    return folders


def ids_here(tokenizer, vocabulary, texts):
    to_model = vocabulary.tokenizer_to_model(tokenizer)
    flat, lengths = tokenizer.encode_lines(texts)
    ids = [part.tolist() for part in np.split(to_model[flat], np.cumsum(lengths)[:-1])]
    assert ids == [to_model[tokenizer.encode(text)].tolist() for text in texts]
    return ids


def check_all_roads(folder, theirs, tmp_path):
    """The ids of transformers, here, from our own files, from a pickle, and in transformers after the way back."""
    wanted = their_ids(theirs, TEXTS)
    found = read_tokenizer(folder, num_symbols=len(theirs))
    assert ids_here(found.tokenizer, Vocabulary.from_symbols(found.symbols), TEXTS) == wanted
    assert ids_here(load_tokenizer(folder), Vocabulary.from_tokenizer(folder), TEXTS) == wanted
    model = portable(found, folder)
    for name in ("ours", "back"):
        (tmp_path / name).mkdir()
    write_words(model, tmp_path / "ours")
    write_tokenizer(model, tmp_path / "back", model_type=model_type_of(model), max_length=510)
    ours, vocabulary = load_tokenizer(tmp_path / "ours"), Vocabulary.load(tmp_path / "ours" / "dict.txt")
    assert ours.description() == found.tokenizer.description()
    assert ids_here(pickle.loads(pickle.dumps(ours)), vocabulary, TEXTS) == wanted
    back = transformers.AutoTokenizer.from_pretrained(tmp_path / "back")
    assert their_ids(back, TEXTS) == wanted
    alone = Tokenizer.from_file(str(tmp_path / "back" / "tokenizer.json"))
    assert [alone.encode(text, add_special_tokens=False).ids for text in TEXTS] == wanted
    added = theirs.added_tokens_decoder.items()
    theirs_added = {number: token for number, token in added if number > 3 and str(token) != "<mask>"}
    assert theirs_added.items() <= back.added_tokens_decoder.items()
    return found


def portable(found, folder):
    """A model with nothing but a tokenizer that was read."""
    return PortableModel(
        state={"model": {"x": torch.zeros(1)}, "task_state": {"data": {MASK_KEEPS_SPACE: found.mask_keeps_space}}},
        tokenizer=found.tokenizer,
        vocabulary=Vocabulary.from_symbols(found.symbols),
        head=Head(kind="masked_lm", name="masked_lm"),
        path=folder,
        source="huggingface",
    )


@pytest.mark.parametrize("kind", ["byte_level_bpe", "sentencepiece"])
def test_added_tokens_have_the_same_ids(exports, kind, tmp_path):
    theirs = transformers.AutoTokenizer.from_pretrained(exports[kind] / "out")
    assert theirs.add_tokens([*PLAIN, *FLAGGED]) > 12
    theirs.add_tokens(SPECIAL, special_tokens=True)
    theirs.save_pretrained(tmp_path / "theirs")
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    found = check_all_roads(tmp_path / "theirs", again, tmp_path)
    tokens, _ = additions_of(found.tokenizer)
    assert {token.content for token in tokens} == {str(token) for token in [*PLAIN, *FLAGGED, *SPECIAL]}


def test_legacy_files_have_the_same_ids(exports, tmp_path):
    """Files as transformers wrote them before tokenizer.json: ids in added_tokens.json, flags elsewhere or nowhere."""
    files = {"byte_level_bpe": ("vocab.json", "merges.txt"), "sentencepiece": ("sentencepiece.bpe.model",)}
    for kind, names in files.items():
        folder = tmp_path / kind / "theirs"
        folder.mkdir(parents=True)
        for name in names:
            shutil.copy(exports[kind] / "out" / name, folder)
        size = len(Vocabulary.load(exports[kind] / "dict.txt"))
        added = {"[E1]": size, "<ent>": size + 1}
        write_json(folder / "added_tokens.json", added)
        write_json(folder / "special_tokens_map.json", {"extra_special_tokens": ["<ent>"]})
        name = {"byte_level_bpe": "RobertaTokenizer", "sentencepiece": "XLMRobertaTokenizer"}[kind]
        check_all_roads(folder, getattr(transformers, name).from_pretrained(folder), tmp_path / kind)


def test_a_token_of_the_vocabulary_that_is_added_keeps_its_id(exports, tmp_path):
    for kind in exports:
        theirs = transformers.AutoTokenizer.from_pretrained(exports[kind] / "out")
        words = [word for word in theirs.get_vocab() if word.isascii() and word.isalpha()]
        size, piece = len(theirs), max(words, key=len)
        theirs.add_tokens([AddedToken(piece, rstrip=True), "new"])
        assert len(theirs) == size + 1
        theirs.save_pretrained(tmp_path / kind / "theirs")
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / kind / "theirs")
        check_all_roads(tmp_path / kind / "theirs", theirs, tmp_path / kind)


def test_a_space_in_front_of_texts(exports, tmp_path):
    theirs = transformers.AutoTokenizer.from_pretrained(exports["byte_level_bpe"] / "out", add_prefix_space=True)
    assert their_ids(theirs, ["dog"]) == their_ids(theirs, [" dog"])
    theirs.add_tokens(["[E1]"])
    theirs.save_pretrained(tmp_path / "theirs")
    found = check_all_roads(tmp_path / "theirs", theirs, tmp_path)
    assert additions_of(found.tokenizer)[1]
    for text in ("dog [E1]x", " dog", "", "[E1]"):
        located = found.tokenizer.locate(text)
        wanted = theirs._tokenizer.encode(text, add_special_tokens=False)
        spans = zip(located.starts, located.ends, strict=True)
        assert [text[slice(*span)].strip() for span in spans] == [text[slice(*span)].strip() for span in wanted.offsets]


def test_positions_and_texts_of_added_tokens(exports, tmp_path):
    texts = ["boat [E1] x[E1]", "  <L> [E1]\u00e9 <R>  good", "dog"]
    for kind in exports:
        theirs = transformers.AutoTokenizer.from_pretrained(exports[kind] / "out")
        theirs.add_tokens(["[E1]", AddedToken("<L>", lstrip=True), AddedToken("<R>", rstrip=True)])
        theirs.save_pretrained(tmp_path / kind)
        tokenizer = read_tokenizer(tmp_path / kind, num_symbols=len(theirs)).tokenizer
        for text in texts:
            located = tokenizer.locate(text)
            assert located.ids.tolist() == tokenizer.encode(text)
            spans = list(zip(located.starts.tolist(), located.ends.tolist(), strict=True))
            wanted = theirs(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
            for span, other in zip(spans, wanted, strict=True):
                part = text[slice(*span)].strip()  # of a lone word mark, "" here, and the next character there
                assert part == text[slice(*other)].strip() or (not part and kind == "sentencepiece")
            starts = tokenizer.begins_word(located.ids)
            assert starts[np.flatnonzero(located.ids >= len(tokenizer.base.symbols))].all()
            plain = theirs.encode(text, add_special_tokens=False)
            assert tokenizer.decode(tokenizer.encode(text)) == theirs.decode(plain)
        assert len(tokenizer.word_starts()) == len(tokenizer.symbols)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["byte_level_bpe", "sentencepiece"])
def test_a_model_with_added_tokens_answers_the_same_on_all_roads(exports, kind, tmp_path, capsys):
    theirs = transformers.AutoTokenizer.from_pretrained(exports[kind] / "out")
    theirs.add_tokens(["[E1]", AddedToken("<L>", lstrip=True), CYRILLIC])
    theirs.save_pretrained(tmp_path / "theirs")
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 36}
    name = {"byte_level_bpe": "RobertaConfig", "sentencepiece": "XLMRobertaConfig"}[kind]
    config = getattr(transformers, name)(vocab_size=len(theirs), max_position_embeddings=66, **sizes)
    torch.manual_seed(3)
    model = transformers.AutoModelForMaskedLM.from_config(config).eval()
    model.save_pretrained(tmp_path / "theirs")
    texts = ["boat [E1] x", "the dog  <L>[E1]", f"good {CYRILLIC}.", "the [E1] <mask> dog"]
    wanted = [theirs(text)["input_ids"] for text in texts]
    assert all(set(ids) & {*range(len(theirs) - 3, len(theirs))} for ids in wanted)

    assert main(["import", str(tmp_path / "theirs"), "--output-dir", str(tmp_path / "ours")]) == 0
    folders = ("huggingface", "sentence-transformers", *["onnx"] * (kind == "sentencepiece"))  # an export of seconds
    for to in folders:
        export = ["export", str(tmp_path / "ours"), "--to", to, "--output-dir", str(tmp_path / to)]
        assert main(export) == 0
        again = transformers.AutoTokenizer.from_pretrained(tmp_path / to)
        assert [again(text)["input_ids"] for text in texts] == wanted
    for folder in ("theirs", "ours", *folders):
        hub = RobertaHub.from_pretrained(tmp_path / folder)
        for text, ids in zip(texts, wanted, strict=True):
            assert hub.encode(text).tolist() == ids
            tokens = torch.tensor([ids])
            if folder == "sentence-transformers":  # without a head
                expected = model.base_model(input_ids=tokens).last_hidden_state
                assert torch.allclose(hub.extract_features(tokens), expected, atol=1e-5)
            elif folder != "onnx":
                assert torch.allclose(hub.model(tokens)[0], model(input_ids=tokens).logits, atol=1e-5)

    (tmp_path / "train.txt").write_text("\n".join(texts[:3]) + "\n")
    binarize = ["binarize", "--tokenizer", tmp_path / "ours", "--train", tmp_path / "train.txt", "--workers", "1"]
    assert main([*map(str, binarize), "--output-dir", str(tmp_path / "bin"), "--no-progress"]) == 0
    lines = MmapTokens(tmp_path / "bin" / "train")
    assert [lines[number].tolist() for number in range(3)] == [ids[1:] for ids in wanted[:3]]
    assert load_tokenizer(tmp_path / "bin").description() == load_tokenizer(tmp_path / "ours").description()

    rows = "".join(f"{json.dumps({'text': text, 'label': text[:4]})}\n" for text in texts[:3] * 4)
    (tmp_path / "table.jsonl").write_text(rows)
    tables = [each for split in ("--train", "--valid") for each in (split, str(tmp_path / "table.jsonl"))]
    prepare = ["prepare", "custom", *tables, "--tokenizer", str(tmp_path / "ours")]
    assert main([*prepare, "--output-dir", str(tmp_path / "prepared")]) == 0
    prepared = Prepared.open(tmp_path / "prepared")
    sequences = prepared.split("train").sequences
    assert [sequences[number].tolist() for number in range(3)] == wanted[:3]
    assert prepared.tokenizer.description() == load_tokenizer(tmp_path / "ours").description()

    shutil.copytree(tmp_path / "ours", tmp_path / "lost")
    (tmp_path / "lost" / FILE).unlink()
    message = rf"{FILE}, which holds them, is missing .*: copy it"
    refused(message, RobertaHub.from_pretrained, tmp_path / "lost", error=FileNotFoundError)

    capsys.readouterr()
    assert main(["export", str(tmp_path / "ours"), "--to", "fairseq", "--output-dir", str(tmp_path / "fairseq")]) == 2
    assert "has added tokens ('[E1]', '<L>', " in capsys.readouterr().err

    extend = ["tokenizer", "extend", "--checkpoint", str(tmp_path / "ours"), "--output-dir", str(tmp_path / "longer")]
    assert main([*extend, "--add", "[E1]"]) == 2
    capsys.readouterr()
    assert main([*extend, "--add", "doggood"]) == 0
    export = ["export", str(tmp_path / "longer"), "--to", "huggingface", "--output-dir", str(tmp_path / "longer_hf")]
    is_said = "cannot be exported" in capsys.readouterr().out
    assert is_said == (kind == "sentencepiece") == (main(export) == 2)
    longer = RobertaHub.from_pretrained(tmp_path / "longer")
    assert [longer.encode(text).tolist() for text in texts] == wanted
    assert len(longer.encode("the doggood [E1]")) == len(longer.encode("the dog [E1]"))


def test_a_token_without_a_row_in_the_model_is_named(exports, tmp_path):
    theirs = transformers.AutoTokenizer.from_pretrained(exports["byte_level_bpe"] / "out")
    size = len(theirs)
    theirs.add_tokens(["[E1]"])
    theirs.save_pretrained(tmp_path)
    message = r"gives '\[E1\]' the id \d+, and .*resize_token_embeddings"
    refused(message, read_tokenizer, tmp_path, num_symbols=size)
