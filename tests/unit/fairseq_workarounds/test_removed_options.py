"""A command with an option of an earlier version is told in one line what to do instead; a checkpoint with one loads."""

import pytest
import torch
from fairseq import checkpoint_utils, options

from roberta_plugin.fairseq_workarounds.removed_options import REMOVED, without_removed
from roberta_plugin.launch import arguments
from tests.tiny_checkpoints import change_options, state_of

BASE = ["data-bin", "--task", "roberta_masked_lm", "--arch", "fast_roberta_tiny"]


@pytest.mark.parametrize("option", REMOVED)
def test_it_is_refused_by_name_in_one_line(option, capsys):
    with pytest.raises(SystemExit) as ended:
        options.parse_args_and_arch(options.get_training_parser(), input_args=[*BASE, *option.split()])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert f"error: {option} was removed: {REMOVED[option]}." in said and said.count("\n") == 1
    with pytest.raises(ValueError, match=f"{option} was removed: "):
        arguments.parse([*BASE, option.replace(" ", "=")])


def test_what_else_an_earlier_command_line_has_stays():
    removed = ["--bert-pairs", "10", "--background-checkpoints", "--attention-backend=nested"]
    kept = ["--adam-betas", "(0.9, 0.98)", "--attention-backend", "sdpa"]
    assert without_removed([*BASE, *removed[:2], *kept, *removed[2:], "--seed", "3"]) == [*BASE, *kept, "--seed", "3"]
    assert without_removed([*BASE, "--seed=3"]) == [*BASE, "--seed=3"]


@pytest.mark.parametrize("backend", ["nested", "varlen", "flash"])
def test_a_checkpoint_that_was_saved_with_removed_options_loads(backend, tiny_data_bin, tmp_path):
    state = state_of(tiny_data_bin)
    change_options(state, "task", background_checkpoints=True, bert_pairs=10)
    change_options(state, "model", attention_backend=backend)
    torch.save(state, tmp_path / "old.pt")
    (model,), _, _ = checkpoint_utils.load_model_ensemble_and_task([str(tmp_path / "old.pt")])  # fairseq-validate
    assert str(model.cfg.attention_backend) == "auto"
