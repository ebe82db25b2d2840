"""The commands of the documents, run as they are written, on small data in a folder of their own.

What takes long on a laptop is made short by `SHORTER`; paths of the repository become absolute; nothing else is changed.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

from roberta_plugin.conversion.convert import ExportSettings, export_model
from roberta_plugin.hub import RobertaHub
from tests.conftest import REPOSITORY
from tests.forked_training import run_python
from tests.shell import shell
from tests.tiny_benchmarks import write_tokenizer
from tests.tiny_checkpoints import state_of
from tests.tiny_corpus import environment, write_data_bin
from tests.tiny_superglue import write_task
from tests.tiny_tagging import write_raw
from tests.unit.test_score_minimal_pairs import write_pairs

pytestmark = pytest.mark.integration

EXAMPLES = REPOSITORY / "examples"
# The model of recipe tour, for what the documents do with base.
TOUR = "--encoder-embed-dim 192 --encoder-ffn-embed-dim 768 --encoder-attention-heads 6 --encoder-normalize-before"
SHORTER = {  # as they stand in the documents -> as they run here
    "--vocab-size 4000": "--vocab-size 400",
    "--recipe tour": "--recipe tour --hours 1e-6 --max-positions 128",
    "--vocab-size 64000": "--vocab-size 60",
    "--arch fast_xlmr_base": "--arch fast_roberta_tiny",
    "--tokens-per-sample 512 --batch-size 16 --update-freq 16": "--tokens-per-sample 32 --batch-size 4 --cpu",
    "--total-num-update 500000 --max-update 500000": "--total-num-update 20000 --max-update 3",
    "--total-num-update 300 --max-update 300": "--total-num-update 6 --max-update 6 --cpu",
    "--warmup-updates 94 --total-num-update 1560": "--warmup-updates 1 --total-num-update 4",
    "--max-update 1560": "--max-update 4 --cpu --max-positions 128 --num-workers 0",
    "--arch fast_roberta_base": f"--arch fast_roberta_tiny {TOUR}",
    "roberta.base/model.pt": "runs/tour/checkpoints/checkpoint_last.pt",
    "--output-dir data-bin/RTE": "--output-dir data-bin/RTE --max-length 128",
    "roberta-tokenizer": "my-tokenizer",
    "--only lr=1e-3 --epochs 5": "--only lr=1e-3 --epochs 1",
    "--limit 100": "--limit 1",
    "--output results/zorro.md": "--limit 1 --output results/zorro.md",
    "--model runs/demo": "--model runs/tour",
    "runs/demo/checkpoints": "runs/tour/checkpoints",
    "--user-dir roberta_plugin": f"--user-dir {REPOSITORY}/roberta_plugin",
    "examples/score_minimal_pairs.py": f"{REPOSITORY}/examples/score_minimal_pairs.py",
}


def vectors_in(path):
    """The vectors (N, D) of a file of answers."""
    return np.array([json.loads(line)["embedding"] for line in path.read_text().splitlines()])


HYDRA = {
    "common": {"cpu": "true", "bf16": "false", "log_interval": "1"},
    "model": dict.fromkeys(("encoder_embed_dim", "encoder_ffn_embed_dim"), "32")
    | {"encoder_layers": "2", "encoder_attention_heads": "2"},
    "+model": {"share_layers": "all"},
    "task": {"tokens_per_sample": "64"},
    "dataset": {"batch_size": "4", "num_workers": "0"},
    "optimization": {"update_freq": "[1]"},
    "distributed_training": {"distributed_world_size": "1"},
}


def blocks(page: str, name: str, language: str = "bash") -> list[str]:
    """The blocks of a page that follow the comment `<!-- tested: NAME -->`."""
    text = (REPOSITORY / page).read_text()
    found: list[str] = re.findall(rf"<!-- tested: {name} -->\n```{language}\n(.*?)```", text, flags=re.DOTALL)
    assert found, f"{page} has no block {name}"
    return found


def python(script: str, folder: Path, *, fork_of: str = "packages") -> str:
    """Run a program in a process of its own, as a reader does; return what it printed to stdout."""
    done = run_python(script, cwd=folder, environment=environment(), fork_of=fork_of)
    assert done.returncode == 0, f"{script}\n{done.stderr[-3000:]}"
    return done.stdout


WITHOUT_PLUGIN = """
import sys
assert not [name for name in sys.modules if name.startswith("roberta_plugin")]
"""


def shorter(script: str) -> str:
    """The commands of a document for a small machine: see `SHORTER`."""
    for written, run in SHORTER.items():
        script = script.replace(written, run)
    return script


def usage_lines(path: Path, command: str) -> list[str]:
    """The commands that the comments at the head of a script or a config give."""
    return re.findall(rf"^#   ({command} .*)$", path.read_text(), flags=re.MULTILINE)


@pytest.fixture(scope="module")
def after_the_tour(tmp_path_factory) -> tuple[Path, str]:
    """The folder in which the README's tour was run, on made-up text in the place of the demo's; and what it printed."""
    folder = tmp_path_factory.mktemp("tour")
    corpus = folder / "runs" / "demo" / "corpus"
    corpus.mkdir(parents=True)
    words = ["the", "function", "returns", "a", "copy", "of", "list", "string", "object", "value", "index", "key"]
    rng = np.random.default_rng(1)
    for split, count in (("train", 300), ("valid", 30)):
        documents = ("\n".join(" ".join(rng.choice(words, 12)) + "." for _ in range(5)) for _ in range(count))
        (corpus / f"{split}.txt").write_text("\n\n".join(documents) + "\n")
    (script,) = blocks("README.md", "tour")
    return folder, shell(shorter(script), folder)


def test_the_tour_runs_as_written(after_the_tour):
    folder, printed = after_the_tour
    assert "20 updates of 512 tokens" in printed and "of the masked tokens correctly" in printed
    assert '"masks": [[{"token": ' in printed
    saved = sorted(path.name for path in (folder / "runs" / "tour" / "checkpoints").glob("*.pt"))
    assert saved == ["checkpoint_1_20.pt", "checkpoint_best.pt", "checkpoint_last.pt"]


def test_the_snippets_for_python_run_as_written(after_the_tour):
    """In one session, as a reader types them; with the fine-tuned model of RTE's steps."""
    folder, _ = after_the_tour
    raw = folder / "glue" / "RTE"
    raw.mkdir(parents=True)
    for split in ("train", "dev"):
        rows = [f"{row}\tthe list returns\ta copy\t{('not_', '')[row % 2]}entailment" for row in range(40)]
        (raw / f"{split}.tsv").write_text("\n".join(["index\tsentence1\tsentence2\tlabel", *rows]) + "\n")
    (steps,) = blocks("examples/README.benchmarks.md", "steps")
    printed = shell(shorter(steps), folder)
    assert (folder / "runs" / "RTE" / "results" / "results.md").is_file() or "accuracy" in printed

    session = "".join(blocks("examples/README.python.md", "python", "python"))
    shapes = "\nprint(tuple(means.shape), [each.size(1) for each in features])\n"
    label, shown = python(session + shapes, folder).splitlines()[-2:]
    assert label in ("entailment", "not_entailment")
    assert shown == "(3, 192) [192, 192, 192]"
    (predictions,) = blocks("examples/README.python.md", "predict")
    shown = shell(shorter(predictions), folder)
    assert [len(json.loads(line)["masks"]) for line in shown.splitlines() if line.startswith("{")] == [1, 2]
    assert json.loads((folder / "answers.jsonl").read_text())["id"] == 1
    assert vectors_in(folder / "vectors.jsonl").shape == (2, 192)
    scores = [json.loads(line) for line in (folder / "scores.jsonl").read_text().splitlines()]
    assert [score["score"] for score in scores] == pytest.approx(
        [sum(score["log_probs"]) for score in scores], abs=1e-4
    )


def test_grammar_is_evaluated_as_written(after_the_tour):
    folder, _ = after_the_tour
    write_pairs(folder / "grammar" / "blimp", "blimp")
    write_pairs(folder / "grammar" / "zorro", "zorro")
    (script,) = blocks("examples/README.pretraining.md", "grammar")
    printed = shell(shorter(script), folder)
    assert "blimp, 67 pairs" in printed and "zorro, 23 pairs" in printed and "Published numbers are left out" in printed
    assert "| runs/tour/checkpoints/checkpoint_best.pt | runs/tour/checkpoints/checkpoint_last.pt |" in printed
    assert (folder / "results" / "zorro.md").read_text().strip() in printed


def test_many_languages_train_as_written(tmp_path):
    rng = np.random.default_rng(1)
    for name, words, count in (("en", ("the", "house", "is", "old"), 90), ("sw", ("nyumba", "ni", "ya", "zamani"), 9)):
        (tmp_path / "texts" / name).mkdir(parents=True)
        for split, lines in (("train", count), ("valid", 9)):
            text = "".join(" ".join(rng.choice(words, 9)) + "\n\n" for _ in range(lines))
            (tmp_path / "texts" / name / f"{split}.txt").write_text(text)
    (script,) = blocks("examples/README.multilingual.md", "languages")
    printed = shell(shorter(script), tmp_path)
    assert "en: 0.0 MB, 6" in printed and "sw: 0.0 MB, 3" in printed, "the shares of the tokenizer's sample"
    assert "fairseq-train data-bin/en,data-bin/sw --corpus-alpha 0.3 --valid-subset valid,valid@en,valid@sw" in printed
    assert (tmp_path / "data-bin" / "en" / "dict.txt").read_bytes() == (tmp_path / "data-bin/sw/dict.txt").read_bytes()
    assert all(f"valid on 'valid{name}' subset | loss" in printed for name in ("", "@en", "@sw"))


def test_another_domain_and_another_vocabulary_as_written(after_the_tour):
    folder, _ = after_the_tour
    for name in ("news.txt", "news.valid.txt"):
        (folder / name).write_text("the haemoglobin of a copy returns\n\n" * 60)
    page = "examples/README.pretraining.md"
    (domain,), (vocabulary,) = blocks(page, "domain"), blocks(page, "vocabulary")
    short = {"--tokens-per-sample 128 --batch-size 16 --update-freq 16": "--tokens-per-sample 128 --batch-size 4 --cpu"}
    short |= {"--total-num-update 10000 --max-update 10000": "--total-num-update 900 --max-update 2"}
    for written, run in short.items():
        assert written in domain
        domain = domain.replace(written, run)
    printed = shell(shorter(domain), folder)
    assert all(f"valid on 'valid@{name}' subset | loss" in printed for name in ("news", "tour"))
    printed = shell(vocabulary, folder)
    assert "' haemoglobin'" in printed, "the new word is not one token"


def test_conversions_run_as_written(after_the_tour, monkeypatch):
    folder, _ = after_the_tour
    monkeypatch.chdir(folder)  # data-bin/tour, which the checkpoint names
    page = "examples/README.conversion.md"
    export, back = blocks(page, "commands")
    printed = shell(export, folder)
    for to in ("huggingface", "fairseq", "onnx"):
        assert f"-> exported/{to} ({to})" in printed
    assert re.search(r"8-bit weights: .* on 2 lines of lines\.txt the masked-LM loss is ", printed)

    printed = python("print('---')\n".join(blocks(page, "python", "python")) + WITHOUT_PLUGIN, folder)
    filled = printed.split("---\n")
    hub = RobertaHub.from_pretrained("runs/tour/checkpoints")
    best = [filling.token for filling in hub.fill_mask("Return the <mask> of the array.", topk=3)]
    assert re.findall(r"% ('.*?'): ", filled[0]) == [repr(token) for token in best]
    assert all(repr(token) in filled[1] for token in best)
    assert filled[2].strip() == repr(best[0])

    shell(back, folder)
    ours, imported = (
        torch.load(path, weights_only=True)["model"]
        for path in (
            folder / "runs" / "tour" / "checkpoints" / "checkpoint_best.pt",
            folder / "imported" / "tour" / "model.pt",
        )
    )
    assert len(ours) > 30
    assert all(torch.equal(imported[name], value) for name, value in ours.items())
    vectors = hub.embed((folder / "lines.txt").read_text().splitlines())
    np.testing.assert_allclose(vectors_in(folder / "vectors.jsonl"), vectors, atol=1e-5)


def test_released_and_old_models_are_used_as_written(tmp_path):
    """Small models in the layouts of fairseq's; `wget` finds files of their names in a folder."""
    write_released(tmp_path / "server")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "wget").write_text(
        f'#!/bin/bash\nto=.; if [[ $1 == -P ]]; then to=$2; shift 2; fi\ncp "{tmp_path}/server/${{1##*/}}" "$to"\n'
    )
    (tmp_path / "bin" / "wget").chmod(0o755)
    page = "examples/README.python.md"
    (download,) = blocks(page, "released")
    shell(f"PATH={tmp_path}/bin:$PATH\n{download}", tmp_path)
    shell(
        "tar -xzf server/roberta.large.mnli.tar.gz && cp server/{encoder.json,vocab.bpe} roberta.large.mnli", tmp_path
    )
    assert {path.name for path in (tmp_path / "roberta.base").iterdir()} >= {"model.pt", *TOKENIZER}
    session = "".join(blocks(page, "released", "python"))
    shown = 'print(len(hub.fill_mask("The capital of France is <mask>.")), mnli.labels, old.labels)'
    labels = (["contradiction", "neutral", "entailment"], ["entailment", "not_entailment"])
    assert python(session + shown, tmp_path).splitlines()[-1] == f"5 {labels[0]} {labels[1]}"


TOKENIZER = ("dict.txt", "encoder.json", "vocab.bpe")


def write_released(folder: Path) -> None:
    """Archives of a pretrained and of a fine-tuned model as fairseq distributes them, and GPT-2's two files.

    Beside the folder: checkpoints/RTE and RTE-bin of fairseq's own fine-tuning.
    """
    words = write_tokenizer(folder)
    for name, heads in (("roberta.base", {}), ("roberta.large.mnli", {"mnli": 3})):
        torch.save(
            state_of(words, form="args", arch="roberta_base", heads=heads, max_positions=128), words / "model.pt"
        )
        settings = ExportSettings(
            checkpoint=words, to="fairseq", layout="2019", half=True, output_dir=folder / name, head=(*heads, None)[0]
        )
        made = export_model(settings).folder
        with tarfile.open(folder / f"{name}.tar.gz", "w:gz") as out:
            for member in ("model.pt", "dict.txt", "NOTE"):
                out.add(made / member, f"{name}/{member}")
    data = folder.parent / "RTE-bin"
    for part, content in (("input0", None), ("label", "entailment 9\nnot_entailment 8\n")):
        (data / part).mkdir(parents=True)
        (data / part / "dict.txt").write_text(content or (words / "dict.txt").read_text())
    task = {"_name": "sentence_prediction", "data": "/somewhere/RTE-bin", "num_classes": 2, "max_positions": 128}
    heads = {"sentence_classification_head": 2}
    state = state_of(words, form="args", arch="roberta_base", task=task, heads=heads, max_positions=128)
    (folder.parent / "checkpoints" / "RTE").mkdir(parents=True)
    torch.save(state, folder.parent / "checkpoints" / "RTE" / "checkpoint_best.pt")


def test_pairs_train_as_written(after_the_tour):
    folder, _ = after_the_tour
    (script,) = blocks("examples/README.pretraining.md", "pairs")
    printed = shell(shorter(script), folder)
    assert "| nsp_accuracy " in printed and "num_updates: 6 >= max_update: 6" in printed
    assert (folder / "data-bin" / "sentences" / "train.paragraphs").is_file()


def test_a_small_study_is_planned_as_written_and_nothing_is_written(after_the_tour):
    """All of them: unit/extensions/studies/test_plan.py."""
    folder, _ = after_the_tour
    (folder / "runs" / "demo" / "tokenizer").symlink_to(folder / "my-tokenizer")
    (steps,) = blocks("examples/README.studies.md", "small studies")
    *preparation, plan = steps.strip().replace("examples/", f"{EXAMPLES}/").split("\n")
    shell("\n".join(preparation), folder)
    before = sorted(folder.rglob("*"))
    printed = shell(plan, folder)
    assert "2 variants x 3 seeds, equal tokens" in printed
    assert re.search(r"^6 pretrainings of .* FLOPs in all$", printed, flags=re.MULTILINE)
    assert "The data is not here" not in printed
    assert sorted(folder.rglob("*")) == before


def test_pronouns_are_learned_and_resolved_as_written(after_the_tour):
    folder, _ = after_the_tour
    write_task(folder / "superglue", "WSC")
    (steps,) = blocks("examples/README.benchmarks.md", "WSC")
    printed = shell(shorter(steps), folder)
    assert "| WSC | valid | accuracy |" in printed
    (answer,) = (json.loads(line) for line in printed.splitlines() if line.startswith('{"line"'))
    assert answer["answer"] in (True, False)
    assert {"trophy", "the suitcase"} <= answer["scores"].keys()


@pytest.mark.slow
def test_a_table_becomes_an_exported_model_as_written(after_the_tour):
    folder, _ = after_the_tour
    rows = "".join(f'"the list, number {row}, returns a copy",{1 + row % 3}\n' for row in range(40))
    (folder / "reviews.csv").write_text("review,stars\n" + rows)
    (folder / "new.csv").write_text('review\n"a copy, of the list"\n')
    (script,) = blocks("examples/README.custom_task.md", "custom")
    shell(shorter(script), folder)
    report = (folder / "runs" / "reviews" / "results" / "report.md").read_text()
    assert "95 % interval" in report
    assert json.loads((folder / "answers.jsonl").read_text())["label"] in ("1", "2", "3")
    config = json.loads((folder / "exported" / "reviews" / "config.json").read_text())
    assert config["id2label"] == {"0": "1", "1": "2", "2": "3"}
    (options,) = blocks("examples/README.custom_task.md", "training")
    shell(shorter(options), folder)
    (run,) = folder.glob("runs/layers/runs/*/seed-*")
    log = (run / "log.txt").read_text()
    assert "'layer_lr_decay': 0.9" in log and "'checkpoint_activations': True" in log
    (light,) = blocks("examples/README.custom_task.md", "light")
    shell(shorter(light), folder)
    files = ("exported/adapter/adapter_model.safetensors", "imported/adapters/model.pt")
    small, whole = ((folder / name).stat().st_size for name in files)
    assert small < 0.3 * whole


@pytest.mark.slow
def test_vectors_are_trained_and_exported_as_written(after_the_tour):
    folder, _ = after_the_tour
    (folder / "glue" / "STS-B").mkdir(parents=True)
    for name, number in (("train", 40), ("dev", 10)):
        rows = [f"the list {row}\tthe {('list', 'key')[row % 2]} {row}\t{5 - 4 * (row % 2)}" for row in range(number)]
        table = "\n".join(["sentence1\tsentence2\tscore", *rows])
        (folder / "glue" / "STS-B" / f"{name}.tsv").write_text(table + "\n")
    (folder / "texts.jsonl").write_text('{"text": "a list"}\n{"text": "a key"}\n')
    (script,) = blocks("examples/README.embeddings.md", "embeddings")
    printed = shell(shorter(script), folder)
    assert "| custom | valid | spearman |" in printed
    (answer,) = (json.loads(line) for line in printed.splitlines() if line.startswith('{"line"'))
    assert -1 <= answer["score"] <= 1
    assert vectors_in(folder / "vectors.jsonl").shape == (2, 192)
    assert (folder / "exported" / "sts" / "1_Pooling" / "config.json").is_file()


def test_the_kind_in_the_document_reads_learns_and_refuses():
    (block,) = blocks(".github/CONTRIBUTING.md", "kind", "python")
    printed = python(
        f"""{block}
from pathlib import Path
from roberta_plugin.extensions.texts.training import RegressionTraining
from roberta_plugin.finetuning.benchmarks import benchmark_of
from roberta_plugin.finetuning.training import find_training
from roberta_plugin.tables import Row
from roberta_plugin.finetuning.options import CustomOptions

kind = Frequency(benchmark_of("custom").settings(max_length=64, options=CustomOptions(label_column=("how",))))
rows = [Row(Path("my.csv"), 2 + n, {{"text": f"text {{n}}", "how": how}}) for n, how in enumerate(("never", "always"))]
examples = [kind.read(row, is_labelled=True) for row in rows]
print([kind.columns(example) for example in examples], kind.discover(examples, examples))
assert find_training(type(kind)) is RegressionTraining
try:
    kind.read(rows[0]._replace(values={{"text": "a", "how": "daily"}}), is_labelled=True)
except ValueError as error:
    print(error)
""",
        REPOSITORY,
        fork_of="fairseq",
    )
    assert "[{'label': 0.0}, {'label': 4.0}] {'labels': [], 'mean': 2.0, 'deviation': 2.0}\n" in printed
    assert "my.csv, line 2: 'daily' is none of never, rarely" in printed


@pytest.mark.parametrize(
    ("name", "language", "file"),
    [
        ("manifest", "python", "anli/__init__.py"),
        ("entry point", "toml", "pyproject.toml"),
        ("benchmark", "python", "anli/benchmark.py"),
    ],
)
def test_the_blocks_about_extensions_are_of_the_package_that_is_tested(name, language, file):
    """From its wheel: extensions/test_anli.py."""
    (block,) = blocks(".github/CONTRIBUTING.md", name, language)
    assert block.strip() in (EXAMPLES / "extensions" / "anli" / file).read_text()


def test_own_tags_fine_tune_predict_and_export_as_written(after_the_tour):
    folder, _ = after_the_tour
    write_raw(folder / "mytags", sizes={"train": 24, "valid": 8})
    (tune,) = blocks("examples/README.tagging.md", "tagging")
    printed = shell(shorter(tune), folder)
    assert "| tagging | valid | f1 |" in printed
    (answer,) = (json.loads(line) for line in printed.splitlines() if line.startswith("{"))
    assert answer["words"] == ["The", "function", "returns", "a", "list", "."]
    assert len(answer["tags"]) == 6
    config = json.loads((folder / "exported" / "mytags" / "config.json").read_text())
    assert config["architectures"] == ["RobertaPreLayerNormForTokenClassification"]
    assert list(config["id2label"].values()) == ["O", "B-FINE", "I-FINE", "B-POOR", "I-POOR"]


@pytest.mark.slow
def test_summaries_are_learned_and_predicted_as_written(after_the_tour):
    folder, _ = after_the_tour
    (folder / "summaries").mkdir()
    for split, count in (("train", 40), ("valid", 6)):
        text = "The function returns a list. It has an index.\n\nAn object is a value. The key is a string."
        lines = [json.dumps({"id": number, "text": text, "summary": "It has an index."}) for number in range(count)]
        (folder / "summaries" / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    (script,) = blocks("examples/README.summaries.md", "summaries")
    shell(shorter(script), folder)
    assert "lead_rouge1" in (folder / "runs" / "summaries" / "results" / "results.md").read_text()
    answers = [json.loads(line) for line in (folder / "new-summaries.jsonl").read_text().splitlines()]
    assert [len(answer["sentences"]) for answer in answers] == [2] * 6


def test_a_dry_run_prints_the_estimate_that_the_document_shows(tmp_path):
    """With a vocabulary of the paper's size."""
    write_data_bin(tmp_path / "data-bin" / "pretrain")
    symbols = "".join(f"symbol{number} 1\n" for number in range(50_260))
    (tmp_path / "data-bin" / "pretrain" / "dict.txt").write_text(symbols)
    (command,) = blocks("examples/README.gpu.md", "estimate")
    page = (EXAMPLES / "README.gpu.md").read_text()
    expected = re.findall(r"```text\n(.*?)\n```", page, flags=re.DOTALL)[0]
    assert shell(command.replace("slurm/", f"{REPOSITORY}/slurm/"), tmp_path).endswith(f"{expected}\n")


def test_the_hydra_example_trains_and_resumes_from_any_folder_by_the_command_of_its_header(tiny_data_bin, tmp_path):
    """On a mixture, with validation; the data are named by paths relative to the current folder."""
    shutil.copytree(tiny_data_bin, tmp_path / "A")
    write_data_bin(tmp_path / "B", num_documents=5, seed=7)
    (literal,) = usage_lines(EXAMPLES / "pretrain" / "base.yaml", "fairseq-hydra-train")
    small = [f"{group}.{name}={value}" for group, options in HYDRA.items() for name, value in options.items()]
    called = literal.replace("examples/pretrain", str(EXAMPLES / "pretrain")).replace("DATA-BIN", "\"'A@3,B@1'\"")
    assert called != literal

    shell(f"{called} {shlex.join(small)} optimization.max_update=5", tmp_path)
    printed = shell(f"{called} {shlex.join(small)} optimization.max_update=8", tmp_path)

    assert "Loaded checkpoint runs/base/checkpoints/checkpoint_last.pt (epoch 1 @ 5 updates)" in printed
    assert "valid_loss" in printed
    state = torch.load(tmp_path / "runs" / "base" / "checkpoints" / "checkpoint_last.pt", weights_only=True)
    assert state["optimizer_history"][-1]["num_updates"] == 8
    assert state["cfg"]["task"]["_name"] == "roberta_masked_lm"
    assert state["cfg"]["model"]["share_layers"] == "all"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["A", "B", "runs"]
    with pytest.raises(AssertionError, match="--lr is missing, or is fairseq"):
        shell(f"{called} {shlex.join(small)} optimization.max_update=9 'optimization.lr=[0.25]'", tmp_path)


@pytest.mark.parametrize("script", sorted(EXAMPLES.rglob("*.sh")), ids=lambda path: path.name)
def test_scripts_without_arguments_show_their_usage(script):
    done = subprocess.run(["bash", str(script)], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ")
