"""A training that becomes NaN ends with the update, the likely cause and the remedy."""

from types import SimpleNamespace

import pytest

from roberta_plugin.fairseq_workarounds.command_line import refusal_in
from roberta_plugin.fairseq_workarounds.divergence import train_step, valid_stats
from tests.refusals import refused


def trainer(folder="checkpoints", *, lr=(10.0,), clip_norm=0.0, fp16=False):
    cfg = SimpleNamespace(
        optimization=SimpleNamespace(lr=list(lr), clip_norm=clip_norm),
        lr_scheduler=SimpleNamespace(warmup_updates=5),
        common=SimpleNamespace(fp16=fp16),
        checkpoint=SimpleNamespace(save_dir=str(folder)),
    )
    return SimpleNamespace(cfg=cfg, get_num_updates=lambda: 1233, get_lr=lambda: 0.5)


def failing(words):
    def step(*_, **__):
        raise FloatingPointError(words)

    return step


CASES = {
    "gradients are Nan/Inf": "Update 1,234: the gradients are NaN or infinite.* a learning rate of 0.5: give a lower "
    "--lr .now 10;.*--warmup-updates, now 5.*--clip-norm 1.*another folder",
    "Minimum loss scale reached (0.0001). Your loss is probably exploding.": "Update 1,234: the loss scale has fallen "
    "to its minimum.*a lower --lr.*--bf16 instead of --fp16",
    "Fatal error: gradients are inconsistent between workers.": "^Fatal error: gradients are inconsistent",
}


@pytest.mark.parametrize("words", CASES)
def test_an_update_without_finite_numbers_is_one_sentence_with_the_remedy(words):
    said = refused(CASES[words], train_step, failing(words), trainer(), [], error=FloatingPointError)
    again = refused("", train_step, failing(said), trainer(), [], error=FloatingPointError)  # --amp tries twice
    assert again == said
    assert "--clip-norm" not in refused(
        "^Update", train_step, failing("x"), trainer(clip_norm=1), 0, error=FloatingPointError
    )


def test_fairseq_train_ends_with_that_sentence():
    with pytest.raises(FloatingPointError) as error:
        train_step(failing("gradients are Nan/Inf"), trainer(), [])
    assert str(refusal_in(error.value)).startswith("FloatingPointError: Update 1,234: the gradients")


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), 2.5])
def test_a_loss_of_a_validation_that_is_no_number_ends_the_training_before_it_is_saved(loss, tmp_path):
    (tmp_path / "checkpoint_last.pt").touch()
    stats = {"loss": loss, "f1": float("nan")}  # a metric may be undefined
    call = (valid_stats, lambda cfg, trainer, stats, first: stats, None, trainer(tmp_path), stats, True)
    if loss == 2.5:
        assert call[0](*call[1:]) == stats
    else:
        message = "Update 1,233: the loss of the validation is (nan|inf).*would go on from .*checkpoint_last.pt"
        refused(message, *call, error=FloatingPointError)
