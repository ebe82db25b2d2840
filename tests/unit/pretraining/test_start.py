"""The model that a pretraining goes on from: its architecture and words, beside a recipe and what the user names."""

import pytest
import torch

from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.launch.arguments import parse
from roberta_plugin.pretraining.plan import make_plan
from roberta_plugin.pretraining.recipe import load
from roberta_plugin.pretraining.request import Request, read_request
from roberta_plugin.pretraining.settings import PretrainSettings
from roberta_plugin.record import options_of
from roberta_plugin.registry import START_CHANGES
from tests.pretraining_starts import assets_of_test, new_unlike_recipes, started
from tests.refusals import refused
from tests.tiny_conversions import exported, write_checkpoint
from tests.tiny_tokenizers import train_tokenizer

assets = pytest.fixture(assets_of_test, autouse=True)
ours = pytest.fixture(new_unlike_recipes)


def planned(start, recipe, *further):
    """The options of a training by a recipe that goes on from the model."""
    fitted = start.fitted(load(recipe), further)
    return ["data", *fitted.arguments(), *start.words(further), *further]


@pytest.mark.parametrize("form", ["ours", "huggingface", "fairseq"])
@pytest.mark.parametrize("recipe", ["tour", "half-hour", "night"])
def test_the_architecture_is_the_models_and_not_the_recipes(ours, tmp_path, form, recipe):
    path = exported(ours, tmp_path / form).folder if form == "huggingface" else ours
    if form == "fairseq":
        path = write_checkpoint(tmp_path / form, arch="roberta", form="args")
    start = started(path, tmp_path / "run")
    parsed = parse(planned(start, recipe))
    saved = torch.load(ours / "model.pt", weights_only=True)["cfg"]["model"]
    for name in ("encoder_layers", "encoder_embed_dim", "encoder_ffn_embed_dim", "encoder_attention_heads"):
        assert int(getattr(parsed, name)) == saved[name], name
    assert parsed.max_positions == saved["max_positions"] >= parsed.tokens_per_sample
    not_given = ("encoder_normalize_before", "position_encoding", "qk_norm", "init_attention", "zero_init_residual")
    assert not any(getattr(parsed, name, None) for name in not_given)
    assert getattr(parsed, "layer_norm_eps", None) == (None if form == "fairseq" else 1e-12)
    (note,) = start.check(parsed, ())
    assert "the learning rate" in note
    assert parsed.optimizer == "roberta_adamw" and parsed.lr == [float(load(recipe).train["lr"])]


@pytest.mark.parametrize(
    ("words", "is_taken"),
    [
        (["--encoder-attention-heads", "1"], True),
        (["--attention-window", "4"], True),
        (["--layer-norm-eps", "1e-6"], True),
        (["--untie-weights-roberta"], True),
        (["--max-positions", "99"], False),
        (["--encoder-layers", "1"], False),
        (["--feed-forward", "geglu"], False),
    ],
)
def test_another_value_is_taken_only_where_the_weights_fit(ours, tmp_path, words, is_taken):
    start = started(ours, tmp_path / "run", *words)
    parsed = parse(planned(start, "tour", *words))
    if is_taken:
        other, _ = start.check(parsed, words)
        assert other.startswith("other than in ") and words[0] in other
    else:
        refused(rf"another model than these options describe[^$]*{words[0]}", start.check, parsed, words)


def test_without_a_limit_of_positions_their_number_may_change_and_no_matrix_is_thrown_away(tmp_path):
    ours = write_checkpoint(tmp_path / "ours", position_encoding="rotary", untie_weights_roberta=True)
    start = started(ours, tmp_path / "run")
    assert " positions, norms after sublayers with eps 1e-05, --position-encoding rotary, " in start.described()
    words = ["--max-positions", "99"]
    other, _ = start.check(parse(planned(start, "tour", *words)), words)
    assert "--max-positions was" in other
    parsed = parse(planned(start, "tour"))
    parsed.untie_weights_roberta = False
    refused("--untie-weights-roberta was True and is False now", start.check, parsed, [])


def test_a_plan_promises_no_result_of_new_weights_and_recommends_no_other_size(ours, tiny_data_bin, tmp_path):
    settings = PretrainSettings(data=[str(tiny_data_bin)], output_dir=tmp_path / "run", recipe="tour", updates=20)
    start = started(ours, tmp_path / "run")
    requests = [Request(settings, str(tiny_data_bin), ["--cpu"], start=each) for each in (start, None)]
    described = [list(make_plan(request).described()) for request in requests]
    said, without = ("\n".join(lines) for lines in described)
    assert "start    " in said and "expect   " not in said and "Hoffmann" not in said
    assert "expect   " in without and "Hoffmann" in without


def test_blocks_are_cut_to_the_positions_and_keep_their_tokens(tmp_path):
    short = started(write_checkpoint(tmp_path / "short", max_positions=16), tmp_path / "run")
    parsed = parse(planned(short, "tour"))
    assert (parsed.tokens_per_sample, parsed.max_positions, parsed.batch_size) == (16, 16, 32)
    middle = started(write_checkpoint(tmp_path / "middle", max_positions=100), tmp_path / "run")
    parsed = parse(planned(middle, "night"))
    assert (parsed.tokens_per_sample, parsed.grow_tokens_per_sample) == (100, "0:64 9500:100")
    parsed = parse(planned(short, "night"))
    assert (parsed.tokens_per_sample, parsed.grow_tokens_per_sample) == (16, None)
    given = parse(planned(middle, "night", "--tokens-per-sample", "32"))
    assert given.tokens_per_sample == 32


def test_a_list_of_differences_has_each_option_that_the_user_names_otherwise(ours, tmp_path):
    start = started(ours, tmp_path / "run")
    further = ["--arch", "fast_roberta_tiny", "--encoder-normalize-before", "--max-positions", "64"]
    said = refused("is another model than these options", start.check, parse(planned(start, "base", *further)), further)
    for change in (
        "--encoder-layers was 3 and is 2 now",
        "--encoder-embed-dim was 24 and is 128 now",
        "--encoder-normalize-before was False and is True now",
        "--layer-norm-eps was 1e-12 and is 1e-05 now",
        "--max-positions was",
    ):
        assert change in said
    assert "Leave them out (and --arch): then they are taken from the model." in said
    harmless = ["--layer-norm-eps", "1e-5", "--lr", "1e-4"]
    (note,) = start.check(parse(planned(start, "base", *harmless)), harmless)
    assert note.endswith("--layer-norm-eps was 1e-12 and is 1e-05 now")


@pytest.fixture
def other(tmp_path):
    """The folder of a tokenizer of other words."""
    (tmp_path / "text.txt").write_text("".join(f"other words than those {number}\n" for number in range(200)))
    train_tokenizer("byte_level_bpe", [tmp_path / "text.txt"], vocab_size=300, folder=tmp_path / "other")
    return tmp_path / "other"


def test_a_data_bin_of_other_words_is_refused(ours, other, tmp_path):
    start = started(ours, tmp_path / "run")
    assert start.in_words_of(ours, tmp_path / "run", may_change=False) is start
    message = (
        r"other was made with another dict\.txt than --finetune-from-model \S+ours: it has .* symbols, and the data"
    )
    said = refused(message, start.in_words_of, other, tmp_path / "run", may_change=False)
    assert "give the text instead" in said


def test_without_a_change_of_vocabulary_other_tokenizers_are_refused_before_they_are_made(
    ours, other, tmp_path, monkeypatch
):
    list(START_CHANGES)  # extensions are found
    monkeypatch.setattr(START_CHANGES, "_entries", {})
    start = started(ours, tmp_path / "run")
    start.check_tokenizer(ours, tmp_path / "run")
    (tmp_path / "bare").mkdir()
    for each in (other, None, tmp_path / "bare"):
        message = "ours keeps its vocabulary, because no extension .* leave out --tokenizer and --vocab-size"
        refused(message, start.check_tokenizer, each, tmp_path / "run")
    settings = PretrainSettings(data=[str(tmp_path / "text.txt")], vocab_size=300, output_dir=tmp_path / "run")
    refused("ours keeps its voc", read_request, settings, ["--finetune-from-model", str(ours)], torchrun=0)
    said = refused("other was made with another", start.in_words_of, other, tmp_path / "run", may_change=True)
    assert "first, by" not in said and not (tmp_path / "run").exists()


def test_the_tokenizer_is_kept_with_the_run_which_goes_on_without_the_model(ours, tmp_path):
    run = tmp_path / "run"
    start, words = started(ours, run), run / "start"
    start.write_tokenizer(words, is_written=False)
    assert not run.exists()
    start.write_tokenizer(words)
    assert Vocabulary.load(words / "dict.txt").symbols == start.vocabulary.symbols
    started(ours, run).write_tokenizer(words)
    others = started(write_checkpoint(tmp_path / "others", sentencepiece=True), run)
    refused("start holds another tokenizer than --finetune-from-model", others.write_tokenizer, words)
    (run / "checkpoints").mkdir()
    torch.save(torch.load(ours / "model.pt", weights_only=True), run / "checkpoints" / "checkpoint_last.pt")
    (ours / "model.pt").rename(tmp_path / "gone.pt")
    own = started(ours / "model.pt", run)
    assert own.is_own and own.words([]) == start.words([])
    own.write_tokenizer(words)
    (run / "checkpoints" / "checkpoint_last.pt").unlink()
    refused("does not exist: give a checkpoint", started, ours / "model.pt", run, error=FileNotFoundError)
    (tmp_path / "bare").mkdir()
    (tmp_path / "gone.pt").rename(tmp_path / "bare" / "model.pt")
    (ours / "dict.txt").unlink()
    bare = started(tmp_path / "bare", tmp_path / "new")
    refused("has no tokenizer beside it.*--tokenizer", bare.write_tokenizer, tmp_path / "new", error=FileNotFoundError)
    assert options_of(["", *bare.words([])])["--encoder-layers"] == "3"
