"""Exported and imported models against Hugging Face's own classes: weights, logits, hidden states, losses, answers."""

import copy
import itertools
import json
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tokenizers import ByteLevelBPETokenizer, Tokenizer

from roberta_plugin.checkpoint_files import load_state
from roberta_plugin.conversion.huggingface import read_weights, write_weights
from roberta_plugin.conversion.pretrained import read_any
from roberta_plugin.hub import RobertaHub
from roberta_plugin.models.checkpoints import model_options
from roberta_plugin.prediction.predict import PredictSettings, iterate_predictions
from tests.hugging_face import import_transformers
from tests.refusals import refused
from tests.tiny_conversions import HEAD, TASKS, batch, comes_back, exported, imported, opened, write_checkpoint

transformers = import_transformers()
TOLERANCE = {"atol": 1e-5, "rtol": 1e-5}
AUTO = {
    "masked_lm": transformers.AutoModelForMaskedLM,
    "classification": transformers.AutoModelForSequenceClassification,
    "regression": transformers.AutoModelForSequenceClassification,
    "multi_label": transformers.AutoModelForSequenceClassification,
    "multiple_choice": transformers.AutoModelForMultipleChoice,
    "question_answering": transformers.AutoModelForQuestionAnswering,
    "tagging": transformers.AutoModelForTokenClassification,
}


@pytest.fixture(scope="module", params=sorted(TASKS), name="of_kind")
def export_of_kind(request, tmp_path_factory):
    """Kind, our folder, the exported folder."""
    folder = tmp_path_factory.mktemp(request.param)
    ours = write_checkpoint(folder / "ours", request.param)
    exported(ours, folder / "theirs")
    return request.param, ours, folder / "theirs"


@torch.no_grad()
def test_hugging_face_computes_what_our_model_does(of_kind):
    kind, ours, folder = of_kind
    model, theirs = opened(ours), AUTO[kind].from_pretrained(folder).eval()
    ids, is_token = batch(ours)
    encoder = theirs.roberta if kind == "multiple_choice" else theirs  # its sequences are one dimension deeper
    outputs = encoder(input_ids=ids, attention_mask=is_token.long(), output_hidden_states=True)
    hidden = model(ids, features_only=True, return_all_hiddens=True)[1]["inner_states"]
    assert len(hidden) == len(outputs.hidden_states) == 4
    for found, expected in zip(outputs.hidden_states, hidden, strict=True):
        torch.testing.assert_close(found[is_token], expected.transpose(0, 1)[is_token], **TOLERANCE)
    if kind == "masked_lm":
        torch.testing.assert_close(outputs.logits[is_token], model(ids)[0][is_token], **TOLERANCE)
    elif kind == "multiple_choice":
        scores = theirs(input_ids=ids[None], attention_mask=is_token.long()[None]).logits
        torch.testing.assert_close(scores, model(ids, head=HEAD)[0].view(1, -1), **TOLERANCE)
    elif kind == "question_answering":
        expected = model(ids, head="span_head")[0]
        torch.testing.assert_close(outputs.start_logits[is_token], expected.start[is_token], **TOLERANCE)
        torch.testing.assert_close(outputs.end_logits[is_token], expected.end[is_token], **TOLERANCE)
        answerable = AUTO["classification"].from_pretrained(folder, num_labels=1).eval()
        found = answerable(input_ids=ids, attention_mask=is_token.long()).logits[:, 0]
        torch.testing.assert_close(found, expected.answerable, **TOLERANCE)
    elif kind == "tagging":
        expected = model(ids, head="token_head")[0]
        torch.testing.assert_close(outputs.logits[is_token], expected[is_token], **TOLERANCE)
    else:
        torch.testing.assert_close(outputs.logits, model(ids, head=HEAD)[0], **TOLERANCE)


def test_import_restores_every_bit(of_kind, tmp_path):
    kind, ours, folder = of_kind
    comes_back(ours, folder, tmp_path, has_lm_head=kind == "masked_lm")
    again = exported(tmp_path / "back", tmp_path / "again").folder
    first, second = read_weights(folder), read_weights(again)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert json.loads((again / "config.json").read_text()) == json.loads((folder / "config.json").read_text())


@torch.no_grad()
def test_the_loss_of_a_masked_batch_is_hugging_faces(tmp_path):
    ours = write_checkpoint(tmp_path / "ours")
    folder = exported(ours, tmp_path / "theirs").folder
    ids, is_token = batch(ours)
    is_predicted = is_token & (torch.rand(ids.shape, generator=torch.Generator().manual_seed(1)) < 0.3)
    labels = torch.where(is_predicted, ids, -100)
    theirs = AUTO["masked_lm"].from_pretrained(folder)(input_ids=ids, attention_mask=is_token.long(), labels=labels)
    logits = opened(ours)(ids, masked_tokens=is_predicted)[0]
    assert is_predicted.sum() > 10
    torch.testing.assert_close(theirs.loss, F.cross_entropy(logits, ids[is_predicted]), **TOLERANCE)


@torch.no_grad()
@pytest.mark.parametrize("make", ["RobertaConfig", "XLMRobertaConfig"])
def test_a_model_and_a_tokenizer_made_with_hugging_faces_defaults_come_in_and_out_as_they_are(make, tmp_path):
    """An epsilon of 1e-12, and byte-level BPE whose <mask> leaves the space before it alone."""
    torch.manual_seed(2)
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 36}
    config = getattr(transformers, make)(vocab_size=300, max_position_embeddings=66, **sizes)
    assert config.layer_norm_eps == 1e-12
    theirs = transformers.AutoModelForMaskedLM.from_config(config).eval()
    theirs.save_pretrained(tmp_path / "theirs")
    trained = ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trained.train_from_iterator(["Return the mask of the array."] * 9, vocab_size=300, special_tokens=special)
    (tmp_path / "words").mkdir()
    trained.save_model(str(tmp_path / "words"))
    theirs_of_words = transformers.RobertaTokenizerFast.from_pretrained(tmp_path / "words")
    theirs_of_words.save_pretrained(tmp_path / "theirs")
    text = "Return the <mask> of the array."
    ids = torch.tensor(theirs_of_words(text)["input_ids"])
    assert len(ids) == 1 + len(theirs_of_words(text.replace(" <mask>", "<mask>"))["input_ids"])

    back = imported(tmp_path / "theirs", tmp_path / "ours").folder
    assert model_options(load_state(back / "model.pt"))["layer-norm-eps"] == "1e-12"
    again = exported(back, tmp_path / "again").folder
    assert json.loads((again / "config.json").read_text())["layer_norm_eps"] == 1e-12
    words_again = transformers.AutoTokenizer.from_pretrained(again)
    assert words_again(text)["input_ids"] == ids.tolist()
    for folder in (tmp_path / "theirs", back, again):
        hub = RobertaHub.from_pretrained(folder)
        assert hub.encode(text).tolist() == ids.tolist()
        assert hub.decode(ids) == text
        assert hub.fill_mask(text)[0].text.startswith("Return the ")
        torch.testing.assert_close(hub.model(ids[None])[0], theirs(input_ids=ids[None]).logits, **TOLERANCE)
    refused(r"layer_norm_eps 1e-12, and fairseq's .*--to huggingface", exported, back, tmp_path / "fairseq", "fairseq")


def test_weights_above_the_limit_of_a_file_are_several_that_both_sides_read(tmp_path):
    """As above 5 GB, with a small limit."""
    ours = write_checkpoint(tmp_path / "ours")
    folder = exported(ours, tmp_path / "theirs", max_shard_bytes=30_000).folder
    files = sorted(folder.glob("*.safetensors"))
    assert len(files) > 2 and files[0].name == f"model-00001-of-{len(files):05}.safetensors"
    assert not (folder / "model.safetensors").exists()
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) == {path.name for path in files}
    ids, is_token = batch(ours)
    expected = opened(ours)(ids)[0][is_token]
    found = AUTO["masked_lm"].from_pretrained(folder)(input_ids=ids, attention_mask=is_token.long()).logits[is_token]
    torch.testing.assert_close(found, expected, **TOLERANCE)
    assert torch.equal(opened(folder)(ids)[0][is_token], expected)


def test_pipelines_give_our_answers(tmp_path):
    for kind, name in (("masked_lm", "fill-mask"), ("classification", "text-classification")):
        ours = write_checkpoint(tmp_path / kind, kind)
        folder = exported(ours, tmp_path / f"{kind}-exported").folder
        pipe, hub = transformers.pipeline(name, str(folder)), RobertaHub.from_pretrained(ours)
        if kind == "masked_lm":
            found = pipe("so it is <mask>, or bad", top_k=5)
            expected = hub.fill_mask("so it is <mask>, or bad", topk=5)
            special = {hub.vocabulary.symbols[number] for number in (0, 1, 2, 3)}
            assert not special & {answer["token_str"] for answer in found}
            assert [answer["token_str"] for answer in found] == [filling.token for filling in expected]
            scores = [answer["score"] for answer in found]
            torch.testing.assert_close(scores, [filling.probability for filling in expected], **TOLERANCE)
        else:
            found = pipe("so it is good", top_k=None)
            expected = hub.predict(HEAD, hub.encode("so it is good"))[0].exp()
            by_label = {answer["label"]: answer["score"] for answer in found}
            labels = ("no", "perhaps", "yes")
            assert set(by_label) == {*labels}
            torch.testing.assert_close(torch.tensor([by_label[label] for label in labels]), expected, **TOLERANCE)


@pytest.mark.parametrize("sentencepiece", [False, True])
def test_tags_by_the_call_of_the_model_card_are_ours(tmp_path, sentencepiece):
    """Also where the space or the mark before a word is a token by itself, which the pipeline's aggregation divides."""
    ours = write_checkpoint(tmp_path / "ours", "tagging", sentencepiece=sentencepiece)
    folder = exported(ours, tmp_path / "theirs").folder
    code = (folder / "README.md").read_text().split("```python\n")[1].split("```")[0].replace("FOLDER", str(folder))
    rng = random.Random(1)
    words = ["good", "bad", "goods", "good's", "bad\u00e9", "\u6771\u4eac", "\u0939\u093f", "3.14"]
    texts = [[rng.choice(words) for _ in range(rng.randrange(1, 5))] for _ in range(20)]
    asked = [{"words": text} for text in texts]
    found = list(iterate_predictions(PredictSettings(model=ours, device="cpu"), asked))
    assert list(iterate_predictions(PredictSettings(model=folder, device="cpu"), asked)) == found
    num_alone = 0
    start, loop = code.split("tokens = ")
    names = {}
    exec(start, names)
    for text, answer in zip(texts, found, strict=True):
        shown: list[tuple[str, str]] = []
        names |= {"text": " ".join(text), "print": lambda *values, shown=shown: shown.append(values)}
        exec(f"tokens = {loop}", names)
        assert shown == list(zip(text, answer["tags"], strict=True))
        num_alone += any(token["word"] in ("\u2581", "\u0120") for token in names["tokens"])
    assert num_alone > 5


SPACES = ("", " ", "\n", "\t\u3000 ", "\u00a0\r\n")


@torch.no_grad()
@pytest.mark.parametrize(
    "kind", ["classification", "regression", "multi_label", "multiple_choice", "question_answering"]
)
def test_white_space_is_read_alike_on_all_roads(tmp_path, kind):
    ours = write_checkpoint(tmp_path / "ours", kind)
    if kind == "multiple_choice":
        state = torch.load(ours / "model.pt", weights_only=False)
        torch.save({**state, "task_state": {"data": {"task": "race", "settings": {}}}}, ours / "model.pt")
    exported(ours, tmp_path / "theirs")
    hubs = [RobertaHub.from_pretrained(folder) for folder in (ours, tmp_path / "theirs")]
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    plain = tokenizer("a good", "bad x")["input_ids"]
    assert plain == hubs[0].encode("a good", "bad x").tolist()
    spaces = ("", "\t\u3000 ") if kind in ("regression", "multi_label") else SPACES  # they are read as classification's
    for before, inside, after in itertools.product(spaces, spaces[1:], spaces):
        pair = f"{before}a{inside}good{after}", f"{after}bad{inside}x{before}"
        if kind == "question_answering":  # the question is stripped by the user
            read = pair[0].strip().replace("\n", " ").replace("\r", " "), pair[1].replace("\n", " ").replace("\r", " ")
            assert tokenizer(pair[0].strip(), pair[1])["input_ids"] == hubs[0].encode(*read).tolist()
            continue
        read = tuple(" ".join(text.split()) if kind == "multiple_choice" else text.strip() for text in pair)
        ids = hubs[0].encode(*read)
        found = tokenizer(*pair, return_offsets_mapping=True)
        assert found["input_ids"] == ids.tolist()
        assert (kind == "multiple_choice") <= (found["input_ids"] == plain)
        first = found["offset_mapping"][1]
        assert pair[0][slice(*first)].strip() == "a"
        for hub in hubs:
            logits = hub.predict(HEAD, [pair], return_logits=True)
            torch.testing.assert_close(logits, hub.predict(HEAD, ids, return_logits=True), **TOLERANCE)


def test_the_pipeline_gives_our_probabilities_of_several_labels(tmp_path):
    ours = write_checkpoint(tmp_path / "ours", "multi_label")
    folder = exported(ours, tmp_path / "theirs").folder
    assert json.loads((folder / "config.json").read_text())["problem_type"] == "multi_label_classification"
    found = transformers.pipeline("text-classification", str(folder))("so it is good", top_k=None)
    (answer,) = iterate_predictions(PredictSettings(model=ours, threshold=0.4, device="cpu"), ["so it is good"])
    assert {each["label"]: each["score"] for each in found} == pytest.approx(answer["probabilities"], abs=1e-5)
    assert abs(sum(answer["probabilities"].values()) - 1) > 0.01, "they do not compete"
    assert answer["labels"] == [label for label, value in answer["probabilities"].items() if value >= 0.4]
    (again,) = iterate_predictions(PredictSettings(model=folder, threshold=0.4, device="cpu"), ["so it is good"])
    assert again["labels"] == answer["labels"]


def test_numbers_are_exported_on_the_scale_of_their_labels(tmp_path):
    ours = write_checkpoint(tmp_path / "ours", "regression")
    state = torch.load(ours / "model.pt", weights_only=False)
    (as_learned,) = iterate_predictions(PredictSettings(model=ours, device="cpu"), ["so it is good"])
    state["task_state"]["data"]["settings"] |= {"mean": 1500.0, "deviation": 200.0}
    torch.save(state, ours / "model.pt")
    folder = exported(ours, tmp_path / "theirs").folder
    (answer,) = iterate_predictions(PredictSettings(model=ours, device="cpu"), ["so it is good"])
    assert answer["score"] == pytest.approx(1500 + 200 * as_learned["score"], rel=1e-5)
    found = transformers.pipeline("text-classification", str(folder), function_to_apply="none")("so it is good")
    assert found[0]["score"] == pytest.approx(answer["score"], rel=1e-5)
    back = imported(ours, tmp_path / "back").folder
    (again,) = iterate_predictions(PredictSettings(model=back, device="cpu"), ["so it is good"])
    assert again["score"] == answer["score"], "the scale is applied once"


@torch.no_grad()
@pytest.mark.parametrize("kind", ["tied", "untied", "bin", "sharded", "float16", "bfloat16"])
def test_a_random_roberta_of_theirs_comes_back_bit_equal(tmp_path, kind):
    ours = write_checkpoint(tmp_path / "words")
    folder = exported(ours, tmp_path / "theirs").folder
    config = transformers.AutoConfig.from_pretrained(folder, tie_word_embeddings=kind != "untied")
    torch.manual_seed(5)
    model = transformers.RobertaForMaskedLM(config).eval()
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.1)  # token types too
    if kind.endswith("float16"):
        model.to(getattr(torch, kind))
    model.save_pretrained(folder)
    if kind == "bin":
        (folder / "model.safetensors").unlink()
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
    elif kind == "sharded":
        weights = read_weights(folder)
        (folder / "model.safetensors").unlink()
        write_weights(folder, {name: value.clone() for name, value in weights.items()}, max_shard_bytes=20_000)
        assert len(list(folder.glob("model-*-of-*.safetensors"))) > 2
    model_of_ours = opened(folder)
    ids, is_token = batch(ours, seed=3)
    in_fp32 = copy.deepcopy(model).float()
    expected = in_fp32(input_ids=ids, attention_mask=is_token.long()).logits
    torch.testing.assert_close(model_of_ours(ids)[0][is_token], expected[is_token], **TOLERANCE)
    hub = RobertaHub.from_pretrained(folder)
    torch.testing.assert_close(hub.model(ids)[0], model_of_ours(ids)[0])
    back = imported(folder, tmp_path / "imported").folder
    again = exported(back, tmp_path / "again").folder
    before, after = model.state_dict(), transformers.RobertaForMaskedLM.from_pretrained(again).state_dict()
    assert before.keys() == after.keys()
    unused = {"lm_head.bias"} if kind == "untied" else set()  # their forward uses lm_head.decoder.bias
    assert all(torch.equal(before[name], after[name]) for name in before.keys() - unused)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["xlm-roberta", "camembert"])
def test_a_random_model_with_sentencepiece_comes_back_bit_equal(tmp_path, kind):
    ours = write_checkpoint(tmp_path / "words", sentencepiece=True)
    folder = exported(ours, tmp_path / "theirs").folder
    text = "The lazy dog <mask> the fox"
    made = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    if kind == "camembert":
        special = [["<s>NOTUSED", 0.0], ["<pad>", 0.0], ["</s>NOTUSED", 0.0], ["<unk>", 0.0], ["<unk>NOTUSED", -100.0]]
        pieces = [tuple(piece) for piece in [*special, ["<s>", 0.0], ["</s>", 0.0], *made[4:]]]
        charsmap = read_any(folder).tokenizer.proto().normalizer_spec.precompiled_charsmap
        tokenizer = transformers.CamembertTokenizer(vocab=pieces, _spm_precompiled_charsmap=charsmap)
        for path in folder.iterdir():
            if path.name not in ("config.json", "model.safetensors"):
                path.unlink()
        tokenizer.save_pretrained(folder)
        sizes = json.loads((folder / "config.json").read_text())
        drop = ("architectures", "model_type", "id2label", "label2id", "problem_type", "dtype")
        sizes = {name: value for name, value in sizes.items() if name not in drop}
        sizes |= {"vocab_size": len(pieces), "bos_token_id": 5, "eos_token_id": 6}
        theirs, auto = transformers.CamembertForMaskedLM, transformers.CamembertForMaskedLM
        config = transformers.CamembertConfig(**sizes)
    else:
        config = transformers.AutoConfig.from_pretrained(folder, num_labels=3)
        config.id2label = {0: "no", 1: "perhaps", 2: "yes"}
        theirs = auto = transformers.XLMRobertaForSequenceClassification
    torch.manual_seed(6)
    model = theirs(config).eval()
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    opened = RobertaHub.from_pretrained(folder)
    theirs_tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    encoded = theirs_tokenizer([text, "dog"], return_tensors="pt", padding=True)
    expected = model(**encoded).logits
    found = opened.encode(text)
    order = torch.arange(len(opened.vocabulary))
    if kind == "camembert":
        order[[0, 5, 2, 6]] = torch.tensor([5, 0, 6, 2])
        assert encoded["input_ids"][0, 0] == 5
        logits = opened.model(found[None])[0]
        torch.testing.assert_close(logits[0][:, order], expected[0, : len(found)], **TOLERANCE)
    else:
        logits = opened.predict(HEAD, found, return_logits=True)
        torch.testing.assert_close(logits[0], expected[0], **TOLERANCE)
        assert opened.labels == ["no", "perhaps", "yes"]
    assert order[found].tolist() == encoded["input_ids"][0].tolist()
    back = imported(folder, tmp_path / "imported").folder
    again = exported(back, tmp_path / "again").folder
    before, after = model.state_dict(), auto.from_pretrained(again).state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert transformers.AutoTokenizer.from_pretrained(again)(text)["input_ids"] == encoded["input_ids"][0].tolist()
    if kind == "camembert":  # tokenizer.json beside a graph has the graph's ids, which are ours
        runtime = pytest.importorskip("onnxruntime")
        pytest.importorskip("onnxscript")
        done = exported(back, tmp_path / "onnx", "onnx").folder
        ids = transformers.AutoTokenizer.from_pretrained(done)([text], return_tensors="np")["input_ids"]
        assert Tokenizer.from_file(str(done / "tokenizer.json")).encode(text).ids == ids[0].tolist() == found.tolist()
        assert RobertaHub.from_pretrained(done).encode(text).tolist() == found.tolist()
        graph = runtime.InferenceSession(done / "model.onnx")
        computed = graph.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})[0]
        torch.testing.assert_close(torch.tensor(computed)[0][:, order], expected[0, : len(found)], **TOLERANCE)
