"""Models that no class of transformers computes: their folders bring code, which transformers runs and we never do."""

import os
import random

import numpy as np
import pytest
import torch

from roberta_plugin.checkpoint_files import load_state
from roberta_plugin.cli import main
from roberta_plugin.conversion import portable_code
from roberta_plugin.conversion.convert import ExportSettings, export_model
from roberta_plugin.experiments.starting_model import starting_model
from roberta_plugin.hub import RobertaHub
from roberta_plugin.models.config import SWITCHES
from roberta_plugin.models.state_dicts import SEGMENTS
from tests.forked_training import run_python
from tests.hugging_face import code_in, import_transformers
from tests.refusals import refused
from tests.tiny_conversions import HEAD, batch, changed, comes_back, imported, opened, write_checkpoint
from tests.tiny_models import MODERN, ROTARY, SWITCHED

transformers = import_transformers()
EXACT = {"atol": 1e-10, "rtol": 1e-8}  # in float64
BEFORE = {"encoder_normalize_before": True}
WINDOWS = {"attention_window": 4, "global_attention_every": 2}
RECIPE = {**ROTARY, "qk_norm": True}
ALONE = [
    {"feed_forward": "geglu"},
    {"feed_forward": "swiglu"},
    {"norm": "rms"},
    {"no_norm_bias": True},
    {"no_linear_bias": True},
    {"qk_norm": True},
    {"no_first_attention_norm": True, **BEFORE},
    {"no_layernorm_embedding": True, **BEFORE},
    {"activation_fn": "relu"},
    {"position_encoding": "rotary", "rotary_base": 1000.0},
    WINDOWS,
    {"position_encoding": "rotary", **WINDOWS, "rotary_base_local": 50.0},
]
OTHERS = [{"untie_weights_roberta": True}, {"share_layers": "all"}, BEFORE, {"layer_norm_eps": 1e-3}]


def drawn_pairs(number):
    """Choices of two or three of the switches, the same in each run."""
    generator, found = random.Random(44), []
    while len(found) < number:
        one, other = generator.sample(ALONE, 2)
        choice = {**one, **other, **generator.choice(OTHERS)}
        excluded = {"no_layernorm_embedding", "share_layers"} if "no_first_attention_norm" in choice else set()
        if not choice.keys() & excluded and not {"no_norm_bias", "norm"} <= choice.keys():
            found.append(choice)
    return found


def exported(ours, folder, to="huggingface"):
    return export_model(ExportSettings(checkpoint=ours, to=to, output_dir=folder)).folder


def loaded(auto, folder, **options):
    """The model as transformers loads it, in float64, without a parameter that is missing or too much."""
    options |= {"trust_remote_code": True, "dtype": torch.float64, "output_loading_info": True}
    model, report = getattr(transformers, f"AutoModel{auto}").from_pretrained(folder, **options)
    assert not report["missing_keys"] and not report["mismatched_keys"]
    assert type(model).__name__ == f"RobertaPlugin{auto or 'Model'}"
    return model.eval()


def same(found, expected, rows=...):
    torch.testing.assert_close(found[rows], expected[rows], **EXACT)


@pytest.fixture(scope="module", autouse=True)
def modules(tmp_path_factory):
    with code_in(tmp_path_factory.mktemp("modules")):
        yield


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """A model with the switches that gain most in small budgets, and its export."""
    folder = tmp_path_factory.mktemp("recipe")
    ours = write_checkpoint(folder / "ours", **RECIPE)
    return ours, exported(ours, folder / "theirs")


@torch.no_grad()
@pytest.mark.parametrize("switches", [*ALONE, *drawn_pairs(12), SWITCHED], ids=str)
def test_transformers_computes_what_our_model_does_and_every_bit_comes_back(tmp_path, switches):
    ours = write_checkpoint(tmp_path / "ours", **switches)
    folder = exported(ours, tmp_path / "theirs")
    ids, is_token = batch(ours)
    theirs, expected = loaded("ForMaskedLM", folder), opened(ours).double()(ids)[0]
    same(theirs(input_ids=ids, attention_mask=is_token.long()).logits, expected, is_token)

    assert not comes_back(ours, folder, tmp_path)


def with_segments(folder, **changes):
    ours = write_checkpoint(folder, **changes)
    state = torch.load(ours / "model.pt", weights_only=False)
    of_head = {f"encoder.next_sentence_head.{name}": torch.zeros(24) for name in ("dense.bias", "out_proj.bias")}
    state["model"] |= {SEGMENTS: torch.randn(2, 24, generator=torch.Generator().manual_seed(2)), **of_head}
    torch.save(state, ours / "model.pt")
    return ours


@torch.no_grad()
@pytest.mark.parametrize("switches", [{}, MODERN], ids=["RoBERTa", "ModernBERT"])
def test_segments_of_pairs_go_along_and_every_bit_comes_back(tmp_path, switches):
    ours = with_segments(tmp_path / "ours", **switches)
    folder = exported(ours, tmp_path / "theirs")
    ids, is_token = batch(ours)
    ids[0, 5:7] = ids[3, 3:5] = 2
    theirs, model = loaded("ForMaskedLM", folder), opened(ours).double()
    same(theirs(input_ids=ids, attention_mask=is_token.long()).logits, model(ids)[0], is_token)
    assert not torch.allclose(model(ids)[0], model(ids, segments=ids * 0)[0], atol=0.1)
    embeddings = theirs.get_input_embeddings()(ids[1:2, :9])
    same(theirs(inputs_embeds=embeddings).logits, model(ids[1:2, :9])[0])  # a single text
    back = imported(folder, tmp_path / "back").folder
    before, after = (load_state(each / "model.pt")["model"] for each in (ours, back))
    assert after.keys() == {name for name in before if "next_sentence" not in name}
    assert all(torch.equal(value, before[name]) for name, value in after.items())
    plain = exported(write_checkpoint(tmp_path / "plain", qk_norm=True), tmp_path / "code")
    for source, number, message in (
        (plain, 2, r"the weights have no roberta.embeddings.segment_embeddings.weight"),
        (folder, 0, r"config.json: .*num_segments is 0, and the weights have embeddings of 2"),
    ):
        source = changed(source, "config.json", tmp_path, {"num_segments": number})
        refused(message, imported, source, tmp_path / "x")


@torch.no_grad()
@pytest.mark.parametrize(
    ("to", "switches"), [("fairseq", {}), ("sentence-transformers", {}), ("sentence-transformers", MODERN)]
)
def test_a_format_without_segments_gives_the_same_to_single_texts(tmp_path, to, switches):
    ours = with_segments(tmp_path / "ours", **switches)
    done = export_model(ExportSettings(checkpoint=ours, to=to, output_dir=tmp_path / "theirs"))
    assert "the exported model does not: the first segment's is added to the" in done.notes[0]
    ids, is_token = batch(ours)
    for options in ({"features_only": True}, {}) if to == "fairseq" else ({"features_only": True},):
        found, expected = (opened(each).double()(ids, **options)[0][is_token] for each in (done.folder, ours))
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_every_switch_is_among_them():
    assert {name for choice in (*ALONE, SWITCHED) for name in choice} >= SWITCHES.keys()
    assert not portable_code.LACKS


@torch.no_grad()
@pytest.mark.parametrize(
    ("kind", "auto", "switches"),
    [
        ("classification", "ForSequenceClassification", MODERN),
        ("regression", "ForSequenceClassification", {"pooler_activation_fn": "relu"}),
        ("multi_label", "ForSequenceClassification", ROTARY),
        ("tagging", "ForTokenClassification", SWITCHED),
        ("multiple_choice", "ForMultipleChoice", ROTARY),
        ("question_answering", "ForQuestionAnswering", ROTARY),
    ],
)
def test_heads_that_a_family_of_transformers_has_otherwise_or_not_are_ours(tmp_path, kind, auto, switches):
    ours = write_checkpoint(tmp_path / "ours", kind, **switches)
    folder = exported(ours, tmp_path / "theirs")
    theirs, model = loaded(auto, folder), opened(ours).double()
    ids, is_token = batch(ours)
    inputs = {"input_ids": ids, "attention_mask": is_token.long()}
    left = torch.stack([row.roll(int(row.eq(1).sum())) for row in ids])
    if kind == "question_answering":
        found, expected = theirs(**inputs), model(ids, head="span_head")[0]
        same(found.start_logits, expected.start, is_token)
        same(found.end_logits, expected.end, is_token)
        same(loaded("ForSequenceClassification", folder, num_labels=1)(**inputs).logits[:, 0], expected.answerable)
        ends = {
            "start_positions": is_token.sum(1) - 1,
            "end_positions": is_token.sum(1) + 90,
        }  # the second do not count
        loss = torch.nn.functional.cross_entropy(found.start_logits, ends["start_positions"])
        same(theirs(**inputs, **ends).loss, loss)
        assert transformers.utils.generic.find_labels(type(theirs)) == list(ends)  # what Trainer takes for them
    elif kind == "multiple_choice":
        choices = {name: each.view(3, 2, -1) for name, each in inputs.items()}
        found = theirs(**choices, labels=torch.tensor([0, 1, 1]))
        same(found.logits, model(ids, head=HEAD)[0].view(3, 2))
        same(theirs(left.view(3, 2, -1)).logits, found.logits)
        same(found.loss, torch.nn.functional.cross_entropy(found.logits, torch.tensor([0, 1, 1])))
    elif kind == "tagging":
        same(theirs(**inputs).logits, model(ids, head="token_head")[0], is_token)
    else:
        same(theirs(**inputs).logits, model(ids, head=HEAD)[0])
        same(theirs(left).logits, model(ids, head=HEAD)[0])
        same(theirs(left, attention_mask=left.ne(1)).logits, model(ids, head=HEAD)[0])
    back = imported(folder, tmp_path / "back").folder
    before, after = (load_state(each / "model.pt")["model"] for each in (ours, back))
    assert all(torch.equal(after[name], value) for name, value in before.items() if ".lm_head." not in name)


def test_it_is_trained_saved_and_opened_there_and_comes_back(recipe, tmp_path):
    ours, folder = recipe
    ids, is_token = batch(ours)
    options = {"num_labels": 3, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True, **options)
    model.gradient_checkpointing_enable()
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    optimizer = torch.optim.SGD(model.train().parameters(), lr=0.1)
    losses = []
    for _ in range(8):
        loss = model(input_ids=ids, attention_mask=is_token.long(), labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] and all(parameter.grad is not None for parameter in model.parameters())
    model.eval().save_pretrained(tmp_path / "saved")
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "saved")
    with torch.no_grad():
        expected = model.double()(input_ids=ids, attention_mask=is_token.long()).logits
        again = loaded("ForSequenceClassification", tmp_path / "saved")
        same(again(input_ids=ids).logits, expected)  # padding is known by its id
        kept = again(inputs_embeds=again.get_input_embeddings()(ids[3:5, :31]), output_hidden_states=True)
        same(kept.logits[0], expected[3])
        assert len(kept.hidden_states) == 4
        refused("output_attentions", again, input_ids=ids, output_attentions=True)
        same(opened(tmp_path / "saved").double()(ids, head=HEAD)[0], expected)
    words = loaded("ForMaskedLM", folder)
    words.resize_token_embeddings(300)
    assert words(ids).logits.size(-1) == 300
    assert words.lm_head.decoder.weight is words.get_input_embeddings().weight


def test_its_folder_is_a_model_for_our_commands_and_for_sentence_transformers(recipe, tmp_path):
    ours, folder = recipe
    there, here = (RobertaHub.from_pretrained(each) for each in (folder, ours))
    assert there.fill_mask("so it is <mask>") == here.fill_mask("so it is <mask>")
    back = imported(folder, tmp_path / "back").folder
    options = starting_model(back / "model.pt").options
    assert {"position-encoding": "rotary", "qk-norm": "true"}.items() <= options.items()
    sentence_transformers = pytest.importorskip("sentence_transformers")
    vectors = exported(ours, tmp_path / "vectors", to="sentence-transformers")
    assert 'SentenceTransformer("FOLDER", trust_remote_code=True)' in (vectors / "README.md").read_text()
    texts = ["A good dog.", "No.", "so bad a cat"]
    model = sentence_transformers.SentenceTransformer(str(vectors), device="cpu", trust_remote_code=True)
    np.testing.assert_allclose(here.embed(texts).numpy(), model.encode(texts), atol=1e-5)


def test_the_code_of_the_card_runs_in_a_process_without_us(recipe, tmp_path):
    ours, folder = recipe
    code = (folder / "README.md").read_text().split("```python\n")[1].split("```")[0]
    code = code.replace("FOLDER", str(folder)) + "\nimport sys; assert 'roberta_plugin' not in sys.modules\n"
    variables = {**os.environ, "HF_MODULES_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    done = run_python(code, cwd=tmp_path, environment=variables)
    assert done.returncode == 0, done.stderr
    found = [(each["sequence"], pytest.approx(each["score"], rel=1e-4)) for each in eval(done.stdout)]
    filled = RobertaHub.from_pretrained(ours).fill_mask("A text with <mask>.", topk=len(found))
    assert [(each.text, each.probability) for each in filled] == found


def test_code_that_lies_in_a_folder_is_never_run_here(recipe, tmp_path, capsys):
    """Not even where config.json says that it is ours."""
    sentinel = tmp_path / "run"
    folder = changed(recipe[1], "config.json", tmp_path, {})
    (folder / portable_code.CODE.name).write_text(f"open({str(sentinel)!r}, 'w')\n")
    assert main(["import", str(folder), "--output-dir", str(tmp_path / "ours")]) == 0
    assert "note" not in capsys.readouterr().out
    changed(recipe[1], "config.json", tmp_path, {"auto_map": {"AutoModel": "other.Model"}})
    assert main(["import", str(folder), "--output-dir", str(tmp_path / "ours")]) == 0
    assert "code of other authors is not run" in capsys.readouterr().out
    assert not sentinel.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"feed_forward": "glu"},
            "the option feed_forward of the model must be one of plain, geglu, swiglu, got 'glu'",
        ),
        ({"qk_norm": "yes"}, "the option qk_norm of the model must be true or false, got 'yes'"),
        ({"rotary_base": 0.5}, "does not describe a model. --rotary-base must be greater than 1, got 0.5"),
        ({"rotary_base": True}, "the option rotary_base of the model must be a number, got 'True'"),
        ({"rotary_base": float("inf")}, "the option rotary_base of the model must be a number, got 'inf'"),
        ({"attention_window": True}, "the option attention_window of the model must be a whole number, got 'True'"),
        ({"attention_window": 3}, "does not describe a model. --attention-window must be even"),
        ({"num_attention_heads": 8}, "does not describe a model. --position-encoding rotary turns pairs of dimensions"),
        ({"pooler_activation_fn": "softmax"}, "the option pooler_activation_fn of the model must be one of"),
        ({"architectures": ["RobertaPluginForCausalLM"]}, "which has no counterpart here"),
        ({"qk_norm": False}, "the parameters do not fit"),
    ],
    ids=str,
)
def test_a_config_that_describes_no_model_of_ours_is_refused_by_name(recipe, tmp_path, capsys, changes, message):
    folder = changed(recipe[1], "config.json", tmp_path, changes)
    assert main(["import", str(folder), "--output-dir", str(tmp_path / "ours")]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
