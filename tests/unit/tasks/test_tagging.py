"""The tagging task: its head, its batches through the model and the criterion, and what it refuses."""

from argparse import Namespace

import numpy as np
import pytest
import torch

from roberta_plugin.criterions.finetuning import LabelsConfig, RobertaTaggingCriterion
from roberta_plugin.experiments.inference import run_model
from roberta_plugin.kinds.outputs import read_outputs, write_outputs
from roberta_plugin.tasks.finetuning import RobertaTaggingConfig, RobertaTaggingTask
from tests.tiny_tagging import write_prepared, write_raw

SIZES = {"encoder_layers": 1, "encoder_embed_dim": 8, "encoder_ffn_embed_dim": 8, "encoder_attention_heads": 2}
SIZES |= {"dropout": 0.0, "attention_dropout": 0.0}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tagging")
    raw = write_raw(folder / "raw")
    (raw / "test.txt").write_text("good\n\nbad\nxyz\n")
    return write_prepared(folder, raw=raw)


def make_task(prepared, **options):
    return RobertaTaggingTask.setup_task(RobertaTaggingConfig(data=str(prepared.folder), **{"seed": 3, **options}))


def test_a_batch_goes_through_model_and_criterion_padded_or_packed(prepared):
    losses, gradients = [], []
    for pack in (False, True):
        task = make_task(prepared, pack_sequences=pack)
        torch.manual_seed(0)
        model = task.build_model(Namespace(arch="fast_roberta_tiny", **SIZES))
        task.load_dataset("train")
        dataset = task.dataset("train")
        batch = dataset.__getitems__(dataset.batches(1, max_sentences=9)[0])
        logits = task.outputs(model, batch)
        assert logits.shape == (*batch["net_input"]["src_tokens"].shape, 5)
        criterion = RobertaTaggingCriterion.build_criterion(LabelsConfig(), task)
        loss, sample_size, _ = criterion(model, batch)
        loss.backward()
        assert sample_size == (batch["token_labels"] >= 0).sum() > 9
        losses.append(loss.item())
        gradients.append(model.heads["token_head"].out_proj.weight.grad)
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-5)


def test_parameters_know_their_layer(prepared):
    model = make_task(prepared).build_model(Namespace(arch="fast_roberta_tiny", **SIZES))
    above = {name: parameter.optim_overrides["layers_above"] for name, parameter in model.named_parameters()}
    assert above["heads.token_head.out_proj.weight"] == 0
    assert above["encoder.sentence_encoder.embed_tokens.weight"] == 2


def test_raw_outputs_of_a_split_are_those_of_its_windows_and_survive_on_disk(prepared, tmp_path):
    task = make_task(prepared)
    model = task.build_model(Namespace(arch="fast_roberta_tiny", **SIZES)).eval()
    split = prepared.split("valid")
    found = run_model(model, task, split, max_tokens=100)
    assert [len(logits) for logits in found.token_logits] == split.sequences.sizes.tolist()
    for window in (0, len(split) - 1):
        tokens = torch.from_numpy(split.sequences[window].astype("int64"))[None]
        with torch.no_grad():
            expected, _ = model(tokens, **task.head_arguments)
        assert torch.allclose(torch.from_numpy(found.token_logits[window]), expected[0], atol=1e-5)
    write_outputs(tmp_path, found, split)
    again = read_outputs(tmp_path, split)
    assert all(np.array_equal(*pair) for pair in zip(again.token_logits, found.token_logits, strict=True))
    assert read_outputs(tmp_path, prepared.split("test")) is None


def test_fairseqs_own_model_has_no_such_head(prepared):
    with pytest.raises(ValueError, match="RobertaModel has no token heads: use --arch fast_roberta_base"):
        make_task(prepared).build_model(Namespace(arch="roberta_base", **SIZES))


def test_a_split_without_tags_is_refused(prepared):
    task = make_task(prepared)
    task.load_dataset("valid")
    with pytest.raises(ValueError, match="split 'test' has no tags, so there is no loss"):
        task.load_dataset("test")


def test_changed_labels_are_refused(tmp_path):
    prepared = write_prepared(tmp_path)
    path = prepared.folder / "train.token_labels.npy"
    labels = np.load(path)
    labels[labels == 4] = 5
    np.save(path, labels)
    with pytest.raises(ValueError, match=r"train\.token_labels\.npy was changed since it was made"):
        make_task(prepared).load_dataset("train")
