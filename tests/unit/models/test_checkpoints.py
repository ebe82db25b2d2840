"""Checkpoints of any year and origin -> models: names, options, heads that fit, and what is refused."""

import argparse
import logging
import re
import runpy
import sys

import pytest
import torch
from fairseq import checkpoint_utils

from roberta_plugin import cli, register
from roberta_plugin.checkpoint_files import load_state
from roberta_plugin.hub import RobertaHub
from roberta_plugin.models.checkpoints import (
    FAIRSEQ_MODELS,
    OUR_MODELS,
    model_arguments,
    model_options,
    num_segments_in,
)
from roberta_plugin.models.roberta import FastRobertaModel
from roberta_plugin.models.state_dicts import VERSION, from_older_fairseq
from tests.conftest import REPOSITORY
from tests.forked_training import run_python
from tests.head_checkpoints import IN_LAYER, check_head, linears
from tests.refusals import refused
from tests.tiny_benchmarks import write_prepared, write_tokenizer
from tests.tiny_checkpoints import change_options, state_of
from tests.tiny_corpus import environment
from tests.tiny_models import (
    MODERN,
    SequenceTask,
    TinyTask,
    fairseq_model,
    make_batch,
    options,
    our_model,
    sequence_model,
)

LAYER = "encoder.sentence_encoder.layers.0."


def test_older_names_become_todays_which_stay():
    old = {
        "decoder.sentence_encoder.emb_layer_norm.weight": torch.zeros(4),
        "decoder.sentence_encoder.layers.0.layer_norms.0.bias": torch.ones(4),
        "decoder.sentence_encoder.layers.0.layer_norms.1.bias": torch.ones(4),
        "decoder.sentence_encoder.layers.0.self_attn.in_proj_weight": torch.arange(48.0).view(12, 4),
        "decoder.sentence_encoder.layers.0.self_attn.in_proj_bias": torch.arange(12.0),
        "classification_heads.mnli.dense.weight": torch.zeros(4, 4),
    }
    new = from_older_fairseq(old)
    assert set(new) == {
        "encoder.sentence_encoder.layernorm_embedding.weight",
        LAYER + "self_attn_layer_norm.bias",
        LAYER + "final_layer_norm.bias",
        *(f"{LAYER}self_attn.{x}_proj.{kind}" for x in "qkv" for kind in ("weight", "bias")),
        "classification_heads.mnli.dense.weight",
        VERSION,
    }
    assert new[LAYER + "self_attn.k_proj.bias"].tolist() == [4, 5, 6, 7]
    assert new[LAYER + "self_attn.v_proj.weight"].tolist() == torch.arange(32.0, 48.0).view(4, 4).tolist()
    today = {LAYER + "fc1.weight": torch.zeros(2, 2), VERSION: torch.tensor([3.0])}
    assert from_older_fairseq(today).keys() == today.keys()


def packed(tokens, lengths, *, room=5):
    """The same sequences end to end in one row, with padding at its end."""
    row = torch.cat([tokens[i, :length] for i, length in enumerate(lengths)] + [torch.ones(room, dtype=torch.int64)])
    positions = torch.cat([torch.arange(length) for length in lengths] + [torch.zeros(room, dtype=torch.int64)])
    cu_seqlens = torch.tensor([0, *torch.tensor(lengths).cumsum(0), len(row)], dtype=torch.int32)
    return row[None], {"positions": positions[None], "cu_seqlens": cu_seqlens, "max_seqlen": max(lengths)}


@pytest.mark.parametrize("how", ["padded", "packed"])
def test_scores_and_gradients_are_those_of_all_features(how):
    """The last layer is computed for <s> alone; asked for all hidden states, it is computed whole."""
    lengths = (17, 9, 1, 13)
    tokens, _, _ = make_batch(lengths)
    results = []
    for is_reference in (True, False):
        model = our_model()
        torch.manual_seed(5)
        model.register_classification_head("task", num_classes=3)
        if is_reference:
            scores, extra = model(tokens, head="task", return_all_hiddens=True)
            assert len(extra["inner_states"]) == 4
        elif how == "padded":
            scores, _ = model(tokens, head="task")
        else:
            row, packing = packed(tokens, lengths)
            scores = model(row, head="task", packing=packing)[0][: len(lengths)]
        (scores * torch.arange(12.0).view(4, 3)).sum().backward()
        results.append([scores, *(p.grad for n, p in model.named_parameters() if "lm_head" not in n)])
    assert len(results[0]) > 40
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-4)


KINDS = {  # kind -> sizes, other sizes, parameters
    "classification": ({"num_classes": 3, "inner_dim": 10}, {"num_classes": 2}, linears("dense", "out_proj")),
    "made_token": ({"num_classes": 5}, {"num_classes": 3}, linears("out_proj")),
    "made_place": (
        {"num_layers": 1},
        {"num_layers": 2},
        linears(*(f"layers.0.{name}" for name in IN_LAYER), "out_proj"),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_heads_of_checkpoints_are_loaded_dropped_or_kept(kind, caplog):
    check_head(kind, *KINDS[kind], caplog)


def test_another_vocabulary_and_another_length_are_refused_with_both_numbers():
    model = our_model()
    for name, rows, message in (
        ("tokens", 80, "vocabulary of 80 symbols, and the data one of 75"),
        ("positions", 66, "has 64 positions, and this model 40: give --max-positions 64"),
    ):
        changed = {f"encoder.sentence_encoder.embed_{name}.weight": torch.zeros(rows, 24)}
        refused(message, model.load_state_dict, {**model.state_dict(), **changed})


def plain_model(seed=4):
    """The same without segments and the head for sequences."""
    return sequence_model(TinyTask(), seed=seed)


def test_a_model_without_segments_gives_what_the_first_segment_gave(caplog):
    theirs, ours = sequence_model().eval(), plain_model().eval()
    state = theirs.state_dict()
    with caplog.at_level(logging.INFO):
        ours.load_state_dict(state)
    assert "added to the positions" in caplog.text and "this model has none" in caplog.text
    head = [f"encoder.order_head.{name}" for name in linears("dense", "out_proj")]
    missing = set(theirs.state_dict()) - set(ours.state_dict())
    assert missing == {"encoder.sentence_encoder.segment_embeddings.weight", *head}
    tokens, _, _ = make_batch()
    is_token = tokens.ne(1)
    torch.testing.assert_close(ours(tokens)[0][is_token], theirs(tokens)[0][is_token], atol=1e-5, rtol=1e-5)
    assert ours.encoder.sentence_encoder.embed_positions.weight[1].abs().max() == 0  # padding stays


def test_a_model_with_them_begins_with_the_checkpoint_s_function_and_takes_over_all_of_its_kind(caplog):
    theirs, ours = plain_model().eval(), sequence_model().eval()
    head = ours.encoder.order_head.dense.weight.clone()
    caplog.set_level(logging.INFO)
    ours.load_state_dict(theirs.state_dict())
    assert "begin at zero" in caplog.text and "begins untrained" in caplog.text
    tokens, _, _ = make_batch()
    segments = torch.ones_like(tokens)
    torch.testing.assert_close(ours(tokens, segments=segments)[0], theirs(tokens)[0], atol=1e-6, rtol=1e-6)
    assert torch.equal(ours.encoder.order_head.dense.weight, head)
    caplog.clear()
    same = sequence_model(seed=2)
    ours.load_state_dict(same.state_dict())
    assert not caplog.text
    assert all(torch.equal(value, same.state_dict()[name]) for name, value in ours.state_dict().items())


def test_the_segments_of_a_file_are_counted_whatever_torch_wrote_it(tmp_path):
    path = tmp_path / "model.pt"
    for model, number in ((sequence_model(), 2), (plain_model(), 0)):
        state = {"model": model.state_dict()}
        for is_zip in (True, False):  # False: as torch before 1.6
            torch.save(state, path, _use_new_zipfile_serialization=is_zip)
            assert num_segments_in(path) == number
    path.write_bytes(b"cut off")
    assert num_segments_in(path) == 0  # loading says what is wrong


@pytest.mark.parametrize("segments", [0, 2])
def test_parameters_follow_from_the_task(segments):
    class Task(SequenceTask):
        num_segments = segments
        sequence_heads = {} if segments else SequenceTask.sequence_heads

    names = set(sequence_model(Task()).state_dict())
    assert ("encoder.sentence_encoder.segment_embeddings.weight" in names) == (segments == 2)
    assert ("encoder.order_head.dense.weight" in names) == (segments == 0)


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
        refused(rf"model\.pt{REFUSED[kind]}", RobertaHub.from_pretrained, tmp_path, data=folder)
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
        ("feed_forward", "os.system"),
        ("qk_norm", [1]),
    ],
)
def test_an_option_of_the_wrong_kind_is_named(tmp_path, folder, option, value, form):
    state = change_options(state_of(folder, form=form), "model", **{option: value})
    message = rf"model\.pt: the option {option} of the model must be .*, got"
    refused(message, model_arguments, state, tmp_path / "model.pt")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", [*OUR_MODELS, *FAIRSEQ_MODELS])
def test_every_name_of_the_list_is_built(tmp_path, folder, name, form):
    extra = {"encoder_normalize_before": True, "layernorm_embedding": False} if name == "roberta_prenorm" else {}
    extra = MODERN if name.startswith("fast_modern") else extra
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
    message = r"model\.pt: the parameters do not fit the model.*lm_head\.bias"
    assert "\n" not in refused(message, RobertaHub.from_pretrained, tmp_path)


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
    where = ["--data", prepared.folder, "--output-dir", tmp_path / "out", "--no-progress"]
    for checkpoints in ([tmp_path / "bad.pt"], [tmp_path / "good.pt", tmp_path / "bad.pt"]):
        status, error = say(["evaluate", *where, "--checkpoint", *checkpoints], capsys)
        if kind in REFUSED:
            assert status == 2
            assert re.search(rf"bad\.pt{REFUSED[kind]}", error)
        else:
            assert status == 0, error
    if kind in REFUSED:
        words = ["finetune", "made", "--data", prepared.folder, "--model", tmp_path / "bad.pt"]
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
    said = error_of(tmp_path, "No hole.")
    assert said == "fill_mask: fill_mask needs at least one <mask> in the text, got 'No hole.'."
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
    for name in ("layers", "embed_dim", "ffn_embed_dim", "attention_heads"):
        values[f"encoder_{name}"] = int(values[f"encoder_{name}"])
    values["max_positions"] = int(values["max_positions"])
    values["untie_weights_roberta"] = values.get("untie_weights_roberta") == "true"
    again = FastRobertaModel.build_model(argparse.Namespace(**values), TinyTask())
    again.load_state_dict(model.state_dict())
    assert again.cfg.encoder_attention_heads == 4
    tokens = torch.randint(4, 70, (2, 9))
    torch.testing.assert_close(again.eval()(tokens)[0], model.eval()(tokens)[0], atol=1e-5, rtol=1e-5)


def test_what_is_no_roberta_is_refused():
    other = {"model": {"decoder.weight": torch.zeros(2)}}
    refused(r"not a checkpoint of a RoBERTa.*embed_tokens\.weight", model_options, other)
    refused("encoder_attention_heads", model_options, {"model": our_model().state_dict(), "cfg": None, "args": None})
