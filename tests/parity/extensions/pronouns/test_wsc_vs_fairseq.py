"""WSC and WinoGrande beside fairseq's examples/roberta/wsc: the same texts, inputs, masks, losses and gradients.

Its noun phrases need a model of spaCy that is not on the package index, so ours are handed to both sides.
"""

import importlib
import json
import re
from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.data import Dictionary
from fairseq.data.encoders.gpt2_bpe import GPT2BPE, GPT2BPEConfig
from fairseq.tasks import TASK_REGISTRY

from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.extensions.pronouns import schemas as pronouns
from roberta_plugin.extensions.pronouns.benchmarks import TASKS
from roberta_plugin.extensions.pronouns.kind import schema_inputs
from roberta_plugin.extensions.pronouns.options import WinoGrandeOptions
from roberta_plugin.finetuning.kinds.outputs import RawOutputs
from roberta_plugin.finetuning.layouts.texts import Encoder
from roberta_plugin.tasks.finetuning import FineTuningConfig
from tests.real_data import unpack
from tests.tiny_benchmarks import prepared_of
from tests.tiny_models import spread
from tests.tiny_superglue import write_task

SIZES = {"encoder_layers": 2, "encoder_embed_dim": 16, "encoder_ffn_embed_dim": 24, "encoder_attention_heads": 2}
SIZES |= {"dropout": 0.0, "attention_dropout": 0.0, "pooler_dropout": 0.0, "max_positions": 128}
LOSSES = {
    "margin": {"margin_alpha": 1.7, "margin_beta": 0.3, "phrase_cross_entropy": False},
    "cross-entropy": {"margin_alpha": 5.0, "margin_beta": 0.4, "phrase_cross_entropy": True},
}


@pytest.fixture(scope="module")
def wsc():
    """fairseq's modules; importing them registers its tasks wsc and winogrande."""
    package = "fairseq.examples.roberta.wsc.wsc"
    parts = {name: importlib.import_module(f"{package}_{name}") for name in ("criterion", "task", "utils")}
    return SimpleNamespace(**parts)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wsc")
    for task in ("WSC", "WinoGrande"):
        write_task(folder / "raw", task)
    return {task: prepared_of(task, folder / "raw", folder / task, max_length=120) for task in ("WSC", "WinoGrande")}


@pytest.fixture(scope="module")
def official(shared_data, tmp_path_factory):
    return unpack(shared_data, "superglue", tmp_path_factory.mktemp("superglue")) / "superglue" / "WSC"


def examples(path):
    """Those of all rows of a file, as of a development set."""
    return TASKS["WSC"].records({"valid": [path]}, WinoGrandeOptions(), {})[0]["valid"]


def our_task(prepared, split):
    task = TASK_REGISTRY["roberta_sentence_prediction"].setup_task(FineTuningConfig(data=str(prepared.folder), seed=1))
    task.load_dataset(split)
    return task


def masked_phrases(part, example):
    """Tokens of an example's sequences, and which of them belong to the phrase."""
    before, after = (int(part.columns[name][example]) for name in ("before", "after"))
    for row in range(part.offsets[example], part.offsets[example + 1]):
        tokens = torch.tensor(part.sequences[row].tolist())
        mask = torch.zeros_like(tokens, dtype=torch.bool)
        mask[before : len(tokens) - after] = True
        yield tokens, mask


def padded(values, fill):
    return torch.nn.utils.rnn.pad_sequence(list(values), batch_first=True, padding_value=fill)


def their_sample(prepared, split, indices, *, is_winogrande):
    part = prepared.split(split)
    examples = [list(zip(*masked_phrases(part, index), strict=True)) for index in indices]
    sample = {"id": torch.tensor(indices), "ntokens": 1, "nsentences": len(indices)}
    sample["labels"] = [bool(part.columns["label"][index]) for index in indices]
    for name, fill in (("tokens", 1), ("masks", False)):
        lists = [example[name == "masks"] for example in examples]
        sample[f"query_{name}"] = [values[0] for values in lists]
        sample[f"candidate_{name}"] = [padded(values[1:], fill) for values in lists]
        if is_winogrande:
            sample[f"query_{name}"] = padded(sample[f"query_{name}"], fill)
            sample[f"candidate_{name}"] = padded([values[0] for values in sample[f"candidate_{name}"]], fill)
    return sample


@pytest.mark.parametrize("arch", ["fast_roberta_tiny", "roberta_base"])
@pytest.mark.parametrize(
    ("task", "split", "loss"),
    [("WSC", "valid", "margin"), ("WSC", "valid", "cross-entropy"), ("WinoGrande", "train", "margin")],
)
def test_loss_gradients_and_answers_are_those_of_fairseq_s_criterion(folders, wsc, task, split, loss, arch):
    """In float64, up to the log-probabilities, which both compute in fp32."""
    prepared, options = folders[task], LOSSES[loss]
    ours = our_task(prepared, split)
    torch.manual_seed(0)
    model = spread(ours.build_model(Namespace(arch=arch, **SIZES)).train()).double()
    args = Namespace(save_predictions=None, bpe=None, tokenizer=None, wsc_cross_entropy=options["phrase_cross_entropy"])
    args.wsc_margin_alpha, args.wsc_margin_beta = options["margin_alpha"], options["margin_beta"]
    their_task = SimpleNamespace(mask=ours.vocabulary.mask_id, target_dictionary=None)
    theirs = getattr(wsc.criterion, f"{'Winogrande' if task == 'WinoGrande' else 'WSC'}Criterion")(args, their_task)
    indices = list(range(8))
    batch = ours.dataset(split).__getitems__([(1, index) for index in indices])
    results = []
    for criterion, sample in (
        (theirs, their_sample(prepared, split, indices, is_winogrande=task == "WinoGrande")),
        (CRITERION_REGISTRY["roberta_sentence_prediction"](ours, **options), batch),
    ):
        model.zero_grad()
        value, _, log = criterion(model, sample)
        value.backward()
        gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        results.append((value.item(), log, gradients))
    (expected, their_log, wanted), (found, _, gradients) = results
    assert found == pytest.approx(expected, rel=1e-5)
    assert expected > 0.1
    assert wanted.keys() == gradients.keys()
    for name, gradient in wanted.items():
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-4, atol=1e-6)
    assert max(gradient.abs().max() for gradient in wanted.values()) > 1e-3
    outputs = RawOutputs(logits=ours.outputs(model.eval(), batch).detach().numpy())
    part = SimpleNamespace(offsets=batch["offsets"].numpy(), columns={"label": batch["columns"]["label"].numpy()})
    accuracy = ours.kind.validated(part, outputs, {})["accuracy"]
    assert accuracy == pytest.approx(100 * int(their_log["ncorrect"]) / 8) and their_log["nqueries"] == 8


def test_texts_of_the_official_rows_are_fairseq_s(wsc, official, tmp_path, monkeypatch):
    """All but three, whose punctuation after the pronoun fairseq loses, and two that it leaves out."""
    texts = []

    class GivenError(Exception):
        pass

    def give(text):
        texts.append(text)
        raise GivenError

    monkeypatch.setattr(wsc.utils, "get_spacy_nlp", lambda: give)
    monkeypatch.setattr(pronouns, "noun_phrases", lambda text: [])  # which take most of the time
    ours, left_out = [], 0
    for (path,) in TASKS["WSC"].files(official, WinoGrandeOptions()).values():
        rows = iter(examples(path))
        for line in path.read_text(encoding="utf-8").splitlines():
            (tmp_path / "row.jsonl").write_text(line + "\n", encoding="utf-8")
            schema, target = next(rows).schema, json.loads(line)["target"]
            try:
                left_out += next(wsc.utils.jsonl_iterator(str(tmp_path / "row.jsonl")), None) is None
            except GivenError:
                ours.append(schema.before + target["span2_text"].rstrip('.,"') + schema.after)
    assert left_out == 2
    assert len(ours) == len(texts) == 656
    different = [(one, other) for one, other in zip(ours, texts, strict=True) if one != other]
    assert len(different) == 3
    assert all(re.sub(r"\W", "", one) == re.sub(r"\W", "", other) and len(one) > len(other) for one, other in different)


def test_inputs_and_masks_of_official_rows_are_fairseq_s(shared_data, wsc, official):
    """But for <s>: without --init-token, as in its recipe, fairseq has none; with it, it masks a token too many."""
    folder = shared_data / "gpt2_bpe"
    if not folder.is_dir():
        pytest.skip(f"needs {folder}")
    theirs = wsc.task.WSCTask.__new__(wsc.task.WSCTask)
    theirs.args, theirs.tokenizer = Namespace(init_token=None), None
    files = {"gpt2_encoder_json": str(folder / "encoder.json"), "gpt2_vocab_bpe": str(folder / "vocab.bpe")}
    theirs.bpe = GPT2BPE(GPT2BPEConfig(**files))
    theirs.vocab = Dictionary.load(str(folder / "dict.txt"))
    encoder = Encoder(load_tokenizer(folder), Vocabulary.load(folder / "dict.txt"))
    compared = 0
    for row in examples(official / "val.jsonl"):
        schema = row.schema
        leading, trailing = (" " if text[-1:] == " " else "" for text in (schema.before, schema.after[:1]))
        inputs = schema_inputs(schema, encoder, max_length=512)
        for phrase, sequence in zip((schema.phrase, *schema.rivals), inputs.sequences, strict=True):
            texts = schema.before.rstrip(), schema.after[len(trailing) :]
            tokens, mask = theirs.binarize_with_mask(phrase, *texts, leading, trailing)
            assert sequence.tolist() == [0, *tokens.tolist()]
            assert (mask.nonzero()[:, 0] + 1).tolist() == list(range(inputs.before, len(sequence) - inputs.after))
            compared += 1
    assert compared > 500
