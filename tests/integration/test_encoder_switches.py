"""A model with all options by which an encoder departs from RoBERTa, from its training to its uses."""

import numpy as np
import pytest

from roberta_plugin.conversion.convert import ExportSettings, export_model
from roberta_plugin.experiments.starting_model import starting_model
from roberta_plugin.hub import RobertaHub
from roberta_plugin.models.checkpoints import model_options
from roberta_plugin.models.config import SWITCHES
from tests.tiny_conversions import write_checkpoint
from tests.tiny_corpus import run_ranks, same_weights, train_command
from tests.tiny_models import SWITCHED

pytestmark = pytest.mark.integration


def as_arguments(given):
    """Options of fairseq-train."""
    pairs = [(f"--{name.replace('_', '-')}", value) for name, value in given.items()]
    return [word for name, value in pairs for word in ([name] if value is True else [name, str(value)])]


def test_a_run_in_bf16_resumes_with_the_same_bits_and_its_checkpoint_says_its_switches(tiny_data_bin, tmp_path):
    """In packed rows, across the growth of their blocks."""
    words = [*as_arguments(SWITCHED), "--bf16", "--no-epoch-checkpoints", "--total-num-update", "20"]
    words += ["--pack-sequences", "--max-tokens", "256", "--grow-tokens-per-sample", "0:32 4:64"]
    for save_dir, stops in ((tmp_path / "whole", "6"), (tmp_path / "parts", "3"), (tmp_path / "parts", "6")):
        run_ranks(train_command(tiny_data_bin, save_dir, *words, "--max-update", stops), 1)
    found = same_weights(tmp_path / "parts", tmp_path / "whole")
    assert not any("embed_positions" in name for name in found["model"])
    named = model_options(found)
    assert named["max-positions"] == "64"
    assert {name: named[name.replace("_", "-")] for name in SWITCHED} == {
        name: "true" if value is True else str(value) for name, value in SWITCHED.items()
    }
    # What fine-tuning hands to fairseq-train, which is asked for no switch again.
    start = starting_model(tmp_path / "parts" / "checkpoint_last.pt")
    assert {"norm": "rms", "feed-forward": "swiglu", "qk-norm": "true"}.items() <= start.options.items()


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("switched"), encoder_layers=2, **SWITCHED)


def test_a_checkpoint_opens_without_its_options_and_answers(ours):
    hub = RobertaHub.from_pretrained(ours)
    assert hub.model.cfg.qk_norm and hub.model.encoder.sentence_encoder.layers[0].self_attn.q_norm is not None
    assert np.isfinite([answer.probability for answer in hub.fill_mask("so it is <mask>")]).all()


@pytest.mark.parametrize("name", sorted(SWITCHED.keys() - {"encoder_normalize_before", "untie_weights_roberta"}))
def test_a_format_without_it_names_the_switch(tmp_path, name):
    others = SWITCHES[name].metadata.get("goes_with", ())
    ours = write_checkpoint(tmp_path / "ours", encoder_layers=1, **{each: SWITCHED[each] for each in (name, *others)})
    option = f"--{name.replace('_', '-')}" + ("" if SWITCHED[name] is True else f" {SWITCHED[name]}")
    wanted = rf"with (--.*)?{option}(, --.*)?, which fairseq's RoBERTa cannot compute: use --to huggingface or onnx"
    with pytest.raises(ValueError, match=wanted):
        export_model(ExportSettings(checkpoint=ours, to="fairseq", output_dir=tmp_path / "theirs"))
