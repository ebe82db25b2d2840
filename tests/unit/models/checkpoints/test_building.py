"""A checkpoint builds the models and options of a list, and runs no code whatever it asks for."""

import argparse
import re
import runpy
import sys

import pytest
import torch
from fairseq import checkpoint_utils

from roberta_plugin import cli, register
from roberta_plugin.checkpoint_files import load_state
from roberta_plugin.hub import RobertaHub
from roberta_plugin.models.checkpoints.building import FAIRSEQ_MODELS, OUR_MODELS, model_arguments, model_options
from roberta_plugin.models.roberta import FastRobertaModel
from tests.conftest import REPOSITORY
from tests.forked_training import run_python
from tests.tiny_benchmarks import write_prepared, write_tokenizer
from tests.tiny_checkpoints import change_options, state_of
from tests.tiny_corpus import environment
from tests.tiny_models import TinyTask, fairseq_model, options, our_model

register()  # fairseq reads the files below as a training with our plugin does

FORMS = ("cfg", "args")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def code(sentinel):
    return f"__import__('os').system('touch {sentinel}')"


# kind -> options of the model that make fairseq evaluate a text
HOSTILE = {
    "wav2vec2": lambda text: {"_name": "wav2vec2", "arch": "wav2vec2", "conv_feature_layers": text},
    "fconv": lambda text: {"_name": "fconv", "arch": "fconv", "encoder_layers": text},
    "xformers": lambda text: {"encoder_xformers_att_config": text},
    "nested": lambda text: {"encoder": argparse.Namespace(xformers_att_config=text)},
}


REFUSED = {
    "wav2vec2": " asks for the model 'wav2vec2', which is refused.* as code",
    "fconv": " asks for the model 'fconv', which is refused.* as code",
    "xformers": r": encoder_xformers_att_config is .*os.*, and no value is read here\. Use it with fairseq alone",
}


def write_hostile(path, folder, kind, form, *, arch="roberta_base", task=None, **changes):
    """A file that torch reads safely; returns what it would make if it ran."""
    sentinel = path.with_suffix(".ran")
    state = state_of(folder, form=form, arch=arch, task=task, **changes)
    torch.save(change_options(state, "model", **HOSTILE[kind](code(sentinel))), path)
    return sentinel


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["wav2vec2", "fconv", "xformers"])
def test_fairseq_itself_runs_the_hostile_files(tmp_path, folder, kind, form):
    """Otherwise the tests below would prove nothing."""
    sentinel = write_hostile(tmp_path / "model.pt", folder, kind, form, task={"_name": "masked_lm"})
    changes = {"data": str(folder)}
    with pytest.raises(Exception):  # noqa: B017, PT011 -- whatever comes after the harm
        checkpoint_utils.load_model_ensemble_and_task([str(tmp_path / "model.pt")], arg_overrides=changes)
        raise RuntimeError
    assert sentinel.exists()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", HOSTILE)
def test_the_hub_runs_nothing(tmp_path, folder, kind, form):
    sentinel = write_hostile(tmp_path / "model.pt", folder, kind, form)
    if kind in REFUSED:
        with pytest.raises(ValueError, match=rf"model\.pt{REFUSED[kind]}"):
            RobertaHub.from_pretrained(tmp_path, data=folder)
    else:  # an option that is not looked at
        RobertaHub.from_pretrained(tmp_path, data=folder)
    assert not sentinel.exists()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("section", ["task", "criterion", "optimizer", "bpe", "tokenizer", "dataset", "generation"])
def test_no_section_chooses_a_class(tmp_path, folder, section, form):
    state = state_of(folder, form=form)
    if form == "args":
        setattr(state["args"], section, "audio_finetuning")
    else:
        state["cfg"][section] = {"_name": "audio_finetuning", "_target_": "os.system", "data": str(folder)}
    torch.save(state, tmp_path / "model.pt")
    hub = RobertaHub.from_pretrained(tmp_path)
    assert type(hub.model).__name__ == "FastRobertaModel"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("dropout", "__import__('os')"),
        ("encoder_layers", "2"),
        ("encoder_embed_dim", -1),
        ("activation_fn", "os.system"),
        ("untie_weights_roberta", [1]),
    ],
)
def test_an_option_of_the_wrong_kind_is_named(tmp_path, folder, option, value, form):
    state = change_options(state_of(folder, form=form), "model", **{option: value})
    with pytest.raises(ValueError, match=rf"model\.pt: the option {option} of the model must be .*, got"):
        model_arguments(state, tmp_path / "model.pt")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", [*OUR_MODELS, *FAIRSEQ_MODELS])
def test_every_name_of_the_list_is_built(tmp_path, folder, name, form):
    extra = {"encoder_normalize_before": True, "layernorm_embedding": False} if name == "roberta_prenorm" else {}
    torch.save(state_of(folder, form=form, arch=name, **extra), tmp_path / "model.pt")
    hub = RobertaHub.from_pretrained(tmp_path, data=folder)
    expected = "FastRobertaModel" if name in OUR_MODELS else "RobertaModel"
    assert type(hub.model).__name__ == expected
    assert hub.max_positions == 40
    assert not hub.training


@pytest.mark.parametrize("arch", ["fast_roberta", "roberta_base"])
@pytest.mark.parametrize("form", FORMS)
def test_what_is_built_is_what_fairseq_builds(tmp_path, folder, arch, form):
    changes = {"data": str(folder), "load_checkpoint_heads": True}
    task = {"_name": "masked_lm", "tokens_per_sample": 40, "sample_break_mode": "complete"}
    torch.save(state_of(folder, form=form, arch=arch, task=task, heads={"mnli": 3}), tmp_path / "model.pt")
    (theirs,), _, _ = checkpoint_utils.load_model_ensemble_and_task([str(tmp_path / "model.pt")], changes)
    ours = RobertaHub.from_pretrained(tmp_path, data=folder).model
    assert type(ours) is type(theirs)
    tokens = torch.randint(4, 200, (2, 9))
    assert torch.equal(ours(tokens)[0], theirs.eval()(tokens)[0])
    assert ours.state_dict().keys() == theirs.state_dict().keys()


def test_parameters_that_do_not_fit_are_refused_by_name_of_the_file(tmp_path, folder):
    state = state_of(folder)
    del state["model"]["encoder.lm_head.bias"]
    torch.save(state, tmp_path / "model.pt")
    with pytest.raises(ValueError, match=r"model\.pt: the parameters do not fit the model.*lm_head\.bias") as found:
        RobertaHub.from_pretrained(tmp_path)
    assert "\n" not in str(found.value)


def say(words, capsys):
    """Exit code and stderr of `roberta`, in this process."""
    return cli.main([str(word) for word in words]), capsys.readouterr().err


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", HOSTILE)
def test_evaluate_and_finetune_run_nothing(tmp_path, folder, kind, form, capsys):
    prepared = write_prepared(tmp_path / "set", num_options=1)
    task = {"_name": "roberta_sentence_prediction", "data": str(prepared.folder), "max_positions": 40}
    heads = {"sentence_classification_head": 2}
    torch.save(state_of(folder, form=form, task=task, heads=heads), tmp_path / "good.pt")
    sentinel = write_hostile(tmp_path / "bad.pt", folder, kind, form, task=task, heads=heads)
    evaluate = [
        "evaluate",
        "--data",
        prepared.folder,
        "--output-dir",
        tmp_path / "out",
        "--no-progress",
        "--checkpoint",
    ]
    for checkpoints in ([tmp_path / "bad.pt"], [tmp_path / "good.pt", tmp_path / "bad.pt"]):
        status, error = say([*evaluate, *checkpoints], capsys)
        if kind in REFUSED:
            assert status == 2
            assert re.search(rf"bad\.pt{REFUSED[kind]}", error)
        else:
            assert status == 0, error
    if kind in REFUSED:
        words = ["finetune", "RTE", "--data", prepared.folder, "--model", tmp_path / "bad.pt"]
        status, error = say([*words, "--output-dir", tmp_path / "runs", "--grid-only"], capsys)
        assert status == 2
        assert re.search(rf"bad\.pt{REFUSED[kind]}", error)
    assert not sentinel.exists()


def test_fill_mask_runs_nothing_and_says_what_is_wrong(tmp_path, folder, monkeypatch):
    script = str(REPOSITORY / "examples" / "fill_mask.py")

    def error_of(*words):
        monkeypatch.setattr(sys, "argv", [script, *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            runpy.run_path(script, run_name="__main__")
        return str(stopped.value)

    sentinel = write_hostile(tmp_path / "model.pt", folder, "wav2vec2", "cfg")
    assert "asks for the model 'wav2vec2'" in error_of(tmp_path, "A <mask>.", "--data", folder)
    assert not sentinel.exists()
    torch.save(state_of(folder), tmp_path / "model.pt")
    assert (
        error_of(tmp_path, "No hole.") == "fill_mask: fill_mask needs at least one <mask> in the text, got 'No hole.'."
    )
    assert "No checkpoint in" in error_of(tmp_path / "nowhere", "A <mask>.")
    assert load_state(tmp_path / "model.pt")


def test_opening_a_model_draws_no_numbers_and_imports_no_compiler(tmp_path, folder):
    """On the meta device, random numbers import torch._dynamo: two seconds, which nobody who opens a model needs."""
    torch.save(state_of(folder), tmp_path / "model.pt")
    script = (
        "import sys, roberta_plugin; roberta_plugin.register()\n"
        "from roberta_plugin.hub import RobertaHub\n"
        "before = set(sys.modules)\n"
        f"RobertaHub.from_pretrained({str(tmp_path)!r}, data={str(folder)!r})\n"
        "print(len(sys.modules.keys() - before), 'torch._dynamo' in sys.modules)\n"
    )
    done = run_python(script, cwd=REPOSITORY, environment=environment())
    count, has_compiler = done.stdout.split()[-2:]
    assert has_compiler == "False", done.stderr
    assert int(count) < 100


@pytest.mark.parametrize("build", [our_model, fairseq_model])
@pytest.mark.parametrize("form", ["cfg", "args"])
def test_a_model_built_from_the_options_loads_the_checkpoint(build, form):
    model = build(activation_fn="gelu", untie_weights_roberta=build is our_model)
    kept = options(untie_weights_roberta=build is our_model, activation_fn="gelu")
    state = {"model": model.state_dict(), "cfg": None, "args": None}
    state[form] = kept if form == "args" else {"model": kept if build is fairseq_model else vars(kept)}
    found = model_options(state)
    assert found.pop("arch") == "fast_roberta"
    values = {name.replace("-", "_"): value for name, value in found.items()}
    for name in (
        "encoder_layers",
        "encoder_embed_dim",
        "encoder_ffn_embed_dim",
        "encoder_attention_heads",
        "max_positions",
    ):
        values[name] = int(values[name])
    values["untie_weights_roberta"] = values.get("untie_weights_roberta") == "true"
    again = FastRobertaModel.build_model(argparse.Namespace(**values), TinyTask())
    again.load_state_dict(model.state_dict())
    assert again.cfg.encoder_attention_heads == 4
    tokens = torch.randint(4, 70, (2, 9))
    torch.testing.assert_close(again.eval()(tokens)[0], model.eval()(tokens)[0], atol=1e-5, rtol=1e-5)


def test_what_is_no_roberta_is_refused():
    with pytest.raises(ValueError, match=r"not a checkpoint of a RoBERTa.*embed_tokens\.weight"):
        model_options({"model": {"decoder.weight": torch.zeros(2)}})
    with pytest.raises(ValueError, match="encoder_attention_heads"):
        model_options({"model": our_model().state_dict(), "cfg": None, "args": None})
