"""Models on minimal pairs: numbers equal those of a loop over the hub, stored scores serve again, curves and tables."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import torch

from roberta_plugin.cli import main
from roberta_plugin.conversion.convert import ExportSettings, export_model
from roberta_plugin.experiments.minimal_pairs import evaluation
from roberta_plugin.experiments.minimal_pairs.benchmarks import BENCHMARKS
from roberta_plugin.experiments.minimal_pairs.evaluation import PairSettings, evaluate_pairs
from roberta_plugin.hub import RobertaHub
from roberta_plugin.models.precision import available
from tests.tiny_benchmarks import write_tokenizer
from tests.tiny_checkpoints import state_of
from tests.tiny_conversions import write_checkpoint
from tests.tiny_minimal_pairs import PAIRS, write_blimp, write_zorro


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run with three checkpoints, of which two are the same."""
    folder = tmp_path_factory.mktemp("run")
    write_tokenizer(folder)
    for updates, names in ((20, ["checkpoint_1_20.pt"]), (40, ["checkpoint_1_40.pt", "checkpoint_last.pt"])):
        state = state_of(folder)
        state["optimizer_history"][-1]["num_updates"] = updates
        state["model"] = {name: weight + 0.002 * updates for name, weight in state["model"].items()}
        for name in names:
            torch.save(state, folder / name)
    return folder


def settings(tmp_path, **changes):
    data = tmp_path / "data"
    write = {"blimp": write_blimp, "zorro": write_zorro}[changes["benchmark"]]
    folder = data / changes["benchmark"] if data.exists() else write(data)
    return PairSettings(**{"data": folder, "output_dir": tmp_path / "out", **changes})


@pytest.mark.parametrize(("benchmark", "method"), [("blimp", "pll"), ("zorro", "unmasked")])
def test_numbers_equal_a_loop_over_the_hub(benchmark, method, run, tmp_path):
    pairs = [PAIRS[0], PAIRS[0][::-1], PAIRS[1]]
    {"blimp": write_blimp, "zorro": write_zorro}[benchmark](tmp_path / "data", pairs)
    results = evaluate_pairs(settings(tmp_path, benchmark=benchmark, checkpoints=[run / "checkpoint_1_20.pt"]))
    hub = RobertaHub.from_pretrained(run / "checkpoint_1_20.pt")
    right = [hub.score(good, method).score > hub.score(bad, method).score for good, bad in pairs]
    assert 0 < sum(right) < len(right)
    (model,) = results.models
    assert results.method == method and model.num_updates == 20
    assert set(model.numbers) == {"all", *BENCHMARKS[benchmark].categories, *BENCHMARKS[benchmark].categories.values()}
    assert np.allclose(list(model.numbers.values()), 100 * np.mean(right))
    assert any("has 3" in remark for remark in results.remarks)


def test_no_checkpoint_is_scored_twice_and_a_stopped_run_resumes(run, tmp_path, monkeypatch):
    scored = []
    original = evaluation.score_pairs
    monkeypatch.setattr(
        evaluation, "score_pairs", lambda hub, pairs, chosen: scored.append(len(pairs)) or original(hub, pairs, chosen)
    )
    chosen = settings(tmp_path, benchmark="zorro", checkpoints=[run], all_checkpoints=True)
    results = evaluate_pairs(chosen)
    num_paradigms = len(BENCHMARKS["zorro"].categories)
    assert [model.num_updates for model in results.models] == [20, 40, 40]
    assert len(scored) == 2 * num_paradigms  # checkpoint_last.pt has the weights of another file
    path = sorted((tmp_path / "out" / "scores").rglob("irregular-verb.json"))[0]
    path.unlink()  # as if the run had been killed there
    assert evaluate_pairs(chosen) == results and len(scored) == 2 * num_paradigms + 1
    evaluate_pairs(settings(tmp_path, benchmark="zorro", checkpoints=[run], limit=2))
    assert len(scored) == 2 * num_paradigms + 1  # the first pairs of those that are stored
    (tmp_path / "data" / "zorro" / "irregular-verb.txt").write_text("a b\nb a\n")
    evaluate_pairs(settings(tmp_path, benchmark="zorro", checkpoints=[run]))
    assert len(scored) == 2 * num_paradigms + 2


def test_the_precision_is_that_of_the_model_and_of_its_stored_scores(run, tmp_path, monkeypatch):
    used = []
    monkeypatch.setattr(evaluation, "set_precision", lambda model, precision, device: used.append(precision))
    for precision in ("fp32", "int8", "int8"):
        chosen = settings(
            tmp_path, benchmark="zorro", checkpoints=[run / "checkpoint_1_20.pt"], precision=precision, limit=1
        )
        evaluate_pairs(chosen)
    assert used == ["fp32", "int8", "int8"]
    names = [path.name for path in (tmp_path / "out" / "scores" / "zorro" / "unmasked").iterdir()]
    assert sorted(name.partition("-")[2] for name in names) == ["", "int8"]


@pytest.mark.skipif("int8" not in available(torch.device("cpu")), reason="not on this processor")
def test_the_command_names_a_lower_precision(run, tmp_path, capsys):
    chosen = settings(tmp_path, benchmark="zorro", checkpoints=[run])
    out = tmp_path / "out"
    given = ["--data", str(chosen.data), "--checkpoint", str(run), "--all-checkpoints", "--output-dir", str(out)]
    for precision, shown in (("int8", "scored by unmasked in int8:"), ("fp32", "scored by unmasked:")):
        assert main(["evaluate", "zorro", *given, "--precision", precision, "--limit", "2", "--no-progress"]) == 0
        assert shown in capsys.readouterr().out
        assert shown in (out / "results.md").read_text()
        for name in ("results.json", "curve.json"):
            assert json.loads((out / name).read_text())["precision"] == precision


def test_two_exported_graphs_are_two_models(tmp_path):
    """They have no weights of torch to be known by; the second must not get the scores of the first."""
    hubs = []
    for seed in (0, 1):
        ours = write_checkpoint(tmp_path / str(seed), **({"layer_norm_eps": 1e-3} if seed else {}))
        onnx = tmp_path / f"onnx-{seed}"
        export_model(ExportSettings(checkpoint=ours, to="onnx", output_dir=onnx))
        hubs.append(RobertaHub.from_pretrained(onnx))
    assert evaluation.identity_of(hubs[0]) != evaluation.identity_of(hubs[1])


def test_the_command_writes_tables_and_the_curve(run, tmp_path, capsys):
    chosen = settings(tmp_path, benchmark="zorro", checkpoints=[run])
    out = tmp_path / "out"
    given = ["--data", str(chosen.data), "--checkpoint", str(run), "--all-checkpoints", "--output-dir", str(out)]
    assert main(["evaluate", "zorro", *given, "--limit", "2", "--no-progress"]) == 0
    printed = capsys.readouterr().out
    assert "Zorro, 46 pairs (the first 2 of each paradigm), scored by unmasked" in printed
    assert "| roberta-base |" in printed and "| all |" in printed
    results, curve = (json.loads((out / name).read_text()) for name in ("results.json", "curve.json"))
    assert curve["updates"] == [20, 40] and len(results["models"]) == 3
    assert curve["percent_right"]["all"] == [model["numbers"]["all"] for model in results["models"][:2]]
    assert (out / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert "| irregular-verb |" in (out / "results.md").read_text()


def test_each_model_has_a_column_though_their_files_are_called_the_same(run, tmp_path, capsys):
    """As those of a study: variant-a/seed-1/checkpoints/checkpoint_last.pt and variant-a/seed-2/..."""
    models = [tmp_path / name / "checkpoints" for name in ("seed-1", "seed-2")]
    for folder in models:
        shutil.copytree(run, folder)
    chosen = settings(tmp_path, benchmark="zorro", checkpoints=[])
    given = ["--data", chosen.data, "--output-dir", tmp_path / "out", "--limit", "1", "--no-progress", "--checkpoint"]
    given += [folder / "checkpoint_1_20.pt" for folder in models]
    assert main(["evaluate", "zorro", *map(str, given)]) == 0
    names = "| seed-1/checkpoints/checkpoint_1_20.pt, 20 updates | seed-2/checkpoints/checkpoint_1_20.pt, 20 updates |"
    assert names in capsys.readouterr().out


def test_a_tokenizer_for_one_model_leaves_another_its_own(run, tmp_path):
    """A checkpoint without a tokenizer beside it, and a folder of Hugging Face, which brings its own."""
    alone, theirs = tmp_path / "alone.pt", tmp_path / "theirs"
    shutil.copy(run / "checkpoint_last.pt", alone)
    export_model(ExportSettings(checkpoint=run, to="huggingface", output_dir=theirs))
    chosen = settings(tmp_path, benchmark="zorro", checkpoints=[alone, theirs], tokenizer=run, limit=1)
    first, second = evaluate_pairs(chosen).models
    assert first.numbers == second.numbers
    with pytest.raises(ValueError, match="brings its vocabulary and tokenizer along"):  # here nothing would read it
        evaluate_pairs(dataclasses.replace(chosen, checkpoints=[theirs]))


def test_the_model_of_nan_is_named(run, tmp_path):
    state = torch.load(run / "checkpoint_last.pt", weights_only=True)
    state["model"]["encoder.lm_head.bias"][:] = torch.nan
    shutil.copytree(run, tmp_path / "broken")
    torch.save(state, tmp_path / "broken" / "checkpoint_last.pt")
    chosen = settings(tmp_path, benchmark="blimp", checkpoints=[run, tmp_path / "broken"], limit=1)
    with pytest.raises(ValueError, match=r"broken/checkpoint_last.pt: encoder.lm_head.bias holds NaN"):
        evaluate_pairs(chosen)


def test_pairs_that_are_too_long_or_twice_the_same_are_named_and_wrong(run, tmp_path):
    long = ("The dogs see " + "x" * 60, "The dogs sees " + "x" * 60)
    pairs = [PAIRS[0], long, ("Same.", "Same.")]
    write_zorro(tmp_path / "data", pairs)
    results = evaluate_pairs(settings(tmp_path, benchmark="zorro", checkpoints=[run / "checkpoint_1_20.pt"]))
    assert results.models[0].numbers["all"] in (0.0, pytest.approx(100 / 3))
    text = "\n".join(results.remarks)
    assert "reads at most 40 tokens" in text and "across_1_adjective.txt, line 3" in text
    assert "23 pairs are twice the same sentence" in text and "across_1_adjective.txt, line 5" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--limit", "3", "--data", "x", "--checkpoint", "y"], "--limit goes with blimp and zorro"),
        (["blimp", "--split", "test", "--data", "x", "--checkpoint", "y"], "--split does not go with blimp"),
        (["blimp", "--data", "x", "--checkpoint", "y", "--limit", "0"], "--limit must be 1 or more, got 0"),
        (["zorro", "--data", "nowhere", "--checkpoint", "y"], "nowhere: there are no files of Zorro"),
        (["zorro", "--data", "nowhere"], "Give either --data and --checkpoint"),
    ],
)
def test_options_that_do_not_fit_are_refused(arguments, message, capsys, tmp_path):
    assert main(["evaluate", *arguments, "--output-dir", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
