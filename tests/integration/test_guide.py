"""The guide, the page "From fairseq" and the changes that CONTRIBUTING describes, run as they are written."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import fairseq
import numpy as np
import pytest
import torch

from roberta_plugin.models.config import SWITCHES
from tests.conftest import REPOSITORY
from tests.integration.test_documents import HYDRA, blocks, python
from tests.shell import shell
from tests.tiny_corpus import run, train_command

pytestmark = pytest.mark.integration

DATASKETCH = """
class MinHash:
    def __init__(self, num_perm):
        self.parts = set()

    def update_batch(self, parts):
        self.parts |= set(parts)


class MinHashLSH:
    def __init__(self, threshold, num_perm):
        self.threshold, self.kept = threshold, []

    def query(self, sketch):
        return [1 for each in self.kept if len(each & sketch.parts) >= self.threshold * len(each | sketch.parts)]

    def insert(self, key, sketch):
        self.kept.append(sketch.parts)
"""  # what the guide uses of a library that nothing else here needs, exact


def clean_made_up_files(tmp_path: Path) -> None:
    """Run the guide's program on files of its eight authors, with repeated paragraphs, beside a datasketch of ours."""
    (tmp_path / "datasketch.py").write_text(DATASKETCH)
    (clean,) = blocks("examples/README.md", "clean")
    rng, syllables = np.random.default_rng(1), ["ar", "ma", "vi", "rum", "que", "ca", "no", "tro", "iae", "qui"]
    for author in ("aquinas", "augustine", "cicero", "justinian", "livy", "ovid", "sen", "tacitus"):
        folder = tmp_path / "lat_text_latin_library" / author
        folder.mkdir(parents=True)
        for number in range(20):
            words = ["".join(rng.choice(syllables, 3)) for _ in range(150)]
            parts = [" ".join(words[start : start + 50]) for start in range(0, 150, 50)]
            parts += [
                "The Latin Library The Classics Page of the very many words",
                "TITVLVS",
                f"[ 12 ] {parts[0]}",
                "e\u0301\x00 " * 9,
            ]
            (folder / f"{number:02}.txt").write_text(f" {author}\n \n" + "\n\n".join(parts) + "\n")
    shell(f"PYTHONPATH={tmp_path} {clean.replace('examples/', f'{REPOSITORY}/examples/')}", tmp_path)


def test_the_guide_cleans_text_as_it_says(tmp_path):
    clean_made_up_files(tmp_path)
    lines = (tmp_path / "latin" / "train.txt").read_text().split("\n")
    assert len(lines) - lines.count("") == 8 * 19 * 3 and not any("Classics" in line or "[" in line for line in lines)
    valid = (tmp_path / "latin" / "valid.txt").read_text()
    assert valid.count("\u00e9 ") == 8 and valid.count("\n\n") == 7, "NFC, no control characters; documents"


@pytest.mark.slow
def test_the_guide_goes_from_text_to_exported_models_as_written(tmp_path):
    clean_made_up_files(tmp_path)
    steps = blocks("examples/README.md", "guide")
    written = {
        "--recipe half-hour --hours 0.2": "--recipe tour --hours 1e-6 --max-positions 128",
        "--epochs 10": "--epochs 1",
    }
    printed = []
    for step in steps:
        for long, short in written.items():
            step = step.replace(long, short)
        printed.append(shell(step, tmp_path))
    trained, predicted, tuned, exported = printed
    assert "of the masked tokens correctly" in trained and "train: sound" in trained
    assert len(json.loads(predicted.splitlines()[-1])["masks"][0]) == 3
    assert "| custom | valid | accuracy |" in tuned
    assert "-> exported/latin (huggingface)" in exported and "-> exported/authors (huggingface)" in exported


def test_a_command_of_fairseq_moves_here_and_back_as_written(tiny_data_bin, tmp_path):
    """Trained by fairseq alone, then by the page's command; and the two ways back."""
    page = "examples/README.from_fairseq.md"
    shutil.copytree(tiny_data_bin, tmp_path / "data-bin" / "books")
    sizes = "--encoder-layers 2 --encoder-embed-dim 32 --encoder-ffn-embed-dim 32 --encoder-attention-heads 2"
    small = f"--tokens-per-sample 64 --batch-size 4 --cpu --num-workers 0 {sizes}"
    (ours,) = blocks(page, "command")
    written = "--tokens-per-sample 512 --batch-size 16 --update-freq 16"
    assert written in ours
    ours = ours.replace(written, small).replace("--max-update 125000", "--max-update 6")
    ours = ours.replace("--user-dir roberta_plugin", f"--user-dir {REPOSITORY}/roberta_plugin")
    names = "--task masked_lm --criterion masked_lm --arch roberta_base --optimizer adam --adam-betas '(0.9,0.98)'"
    rest = f"--sample-break-mode complete {small} --lr 5e-4 --no-epoch-checkpoints --disable-validation"
    theirs = f"fairseq-train data-bin/books {names} {rest} --lr-scheduler polynomial_decay --total-num-update 125000"

    shell(f"{theirs} --max-update 3 --save-dir old", tmp_path)
    printed = shell(ours, tmp_path)
    assert "Loaded checkpoint old/checkpoint_last.pt (epoch 1 @ 3 updates)" in printed
    back = f"{theirs} --max-update 8 --restore-file runs/new/checkpoint_last.pt"
    with pytest.raises(AssertionError, match="Criterion does not match; please reset the optimizer"):
        shell(f"{back} --save-dir runs/refused", tmp_path)
    shell(f"{back} --reset-optimizer --save-dir runs/back", tmp_path)

    with_theirs = ours.replace("--criterion roberta_masked_lm", "--criterion masked_lm").replace(
        "runs/new", "runs/both"
    )
    with_theirs = with_theirs.replace("--optimizer roberta_adamw", "--optimizer adam --adam-betas '(0.9,0.98)'")
    shell(with_theirs, tmp_path)
    kept = f"{theirs} --max-update 8 --restore-file runs/both/checkpoint_last.pt --save-dir runs/kept"
    assert "Loaded checkpoint runs/both/checkpoint_last.pt (epoch 1 @ 6 updates)" in shell(kept, tmp_path)


def test_the_yaml_of_fairseq_trains_and_resumes_as_written(tiny_data_bin, tmp_path):
    theirs = Path(fairseq.__file__).parent / "examples" / "roberta" / "config" / "pretraining" / "base.yaml"
    if not theirs.is_file():
        pytest.skip("this installation of fairseq has no examples")
    shutil.copy(theirs, tmp_path / "fairseq-base.yaml")
    shutil.copytree(tiny_data_bin, tmp_path / "data-bin" / "books")
    (steps,) = blocks("examples/README.from_fairseq.md", "yaml")
    steps = steps.replace("$(roberta user-dir)", str(REPOSITORY / "roberta_plugin"))
    groups = HYDRA | {
        "common": {"cpu": "true", "fp16": "false"},
        "+model": HYDRA["model"] | HYDRA["+model"],
        "model": {},
    }
    small = [f"{group}.{name}={value}" for group, options in groups.items() for name, value in options.items()]
    for updates in (3, 5):
        last = f"{steps.rstrip()} {shlex.join(small)} optimization.max_update={updates}"
        printed = shell(last, tmp_path)
    assert "Loaded checkpoint runs/base/checkpoint_last.pt (epoch 1 @ 3 updates)" in printed
    state = torch.load(tmp_path / "runs" / "base" / "checkpoint_last.pt", weights_only=True)
    assert state["optimizer_history"][-1]["optimizer_name"] == "RobertaAdamW"
    assert state["cfg"]["model"]["_name"] == "fast_roberta" and state["cfg"]["task"]["_name"] == "roberta_masked_lm"


def test_the_masking_in_the_document_draws_the_lengths_that_it_says():
    (block,) = blocks(".github/CONTRIBUTING.md", "masking", "python")
    printed = python(
        f"""{block}
from roberta_plugin.data.dynamic_masking import MaskingRecipe

special = np.zeros(1000, dtype=bool)
special[:5] = True
recipe = MaskingRecipe(mask_prob=0.02, multiple_length=2)
masker = GeometricSpans(recipe, mask_id=4, pad_id=1, never_masked=special, never_drawn=special)
tokens = np.random.default_rng(1).integers(5, 1000, (400, 512))
drawn = [masker.mask(tokens, seed=1, passes=np.full(400, 1), indices=np.arange(400)).targets != 1 for _ in range(2)]
edges = np.diff(np.pad(drawn[0], ((0, 0), (1, 1))).astype(int), axis=1)
lengths = np.nonzero(edges < 0)[1] - np.nonzero(edges > 0)[1]
print((drawn[0] == drawn[1]).all(), round(lengths.mean(), 2), sorted(set(lengths))[:10] == list(range(1, 11)))
""",
        REPOSITORY,
        fork_of="fairseq",
    )
    same, mean, has_all = printed.split()
    expected = sum(
        0.8**length for length in range(10)
    )  # of a geometric length cut at 10: 4.46; spans that touch add some
    assert same == has_all == "True" and expected < float(mean) < 1.15 * expected


def test_the_schedule_in_the_document_trains(tiny_data_bin, tmp_path):
    (block,) = blocks(".github/CONTRIBUTING.md", "schedule", "python")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text(f"import roberta_plugin\n\nroberta_plugin.register()\n{block}")
    words = train_command(tiny_data_bin, tmp_path / "run", "--max-update", "8", "--disable-validation")
    words[words.index("--user-dir") + 1] = str(tmp_path / "mine")
    where = words.index("--warmup-updates")
    del words[where : where + 2]
    words += ["--lr-scheduler", "power", "--power-warmup", "2", "--lr", "0.01", "--log-format", "json"]
    done = run([*words, "--log-interval", "1"])
    assert done.returncode == 0, done.stderr[-3000:]
    rates = [float(rate) for rate in re.findall(r'"num_updates": "\d+", "lr": "([\d.e-]+)"', done.stdout + done.stderr)]
    assert rates[:8] == pytest.approx([0.01 * min(n / 2, (2 / n) ** 0.5) for n in range(1, 9)], rel=1e-3)


def test_a_switch_of_the_model_stands_in_the_files_of_the_document_alone():
    text = (REPOSITORY / ".github" / "CONTRIBUTING.md").read_text()
    table = text[text.index("**A switch of the model**") : text.index("## Changing numbers")]
    package = REPOSITORY / "roberta_plugin"
    listed = {package / name for name in re.findall(r"`([\w/]+\.py)`", table)}
    texts = {path: path.read_text() for path in package.rglob("*.py")}
    for name in SWITCHES:
        named = re.compile(rf"""cfg\.{name}\b|["']{name}["']|^    {name}: """, re.MULTILINE)
        having = {path for path, text in texts.items() if named.search(text)}
        assert package / "models/config.py" in having <= listed, (name, having)
        assert having & {package / "models/roberta_encoder.py", package / "models/positions.py"}, name


def apply_edits(text: str, package: Path) -> set[str]:
    """Edit a copy of the package as a block of a document says; the names of the files.

    Below `+++ FILE` and `@@`, the lines with a blank or a minus are there, once, and those with a blank or a plus
    take their place; the last may be the beginning of a line.
    """
    files = {}
    for part in text.split("+++ ")[1:]:
        name, *hunks = part.split("@@\n")
        files[name.strip()] = hunks
        content = (package / name.strip()).read_text()
        for hunk in hunks:
            before, after = (
                "\n".join(line[1:] for line in hunk.rstrip("\n").split("\n") if not line.startswith(without))
                for without in "+-"
            )
            assert content.count(f"\n{before}") == 1, f"{name.strip()} holds {before!r} {content.count(before)} times"
            content = content.replace(f"\n{before}", f"\n{after}")
        (package / name.strip()).write_text(content)
    return set(files)


def test_the_switch_in_the_document_trains_resumes_and_is_refused_where_it_has_no_place(tmp_path):
    (block,) = blocks(".github/CONTRIBUTING.md", "switch", "diff")
    package = tmp_path / "roberta_plugin"
    shutil.copytree(REPOSITORY / "roberta_plugin", package, ignore=shutil.ignore_patterns("__pycache__"))
    edited = apply_edits(block, package)
    text = (REPOSITORY / ".github" / "CONTRIBUTING.md").read_text()
    table = text[text.index("**A switch of the model**") : text.index("<!-- tested: switch -->")]
    assert edited <= set(re.findall(r"`(\w+/\w+\.py)`", table))
    words = train_command("bin", tmp_path / "run", "--disable-validation", "--total-num-update", "8")
    words[words.index("--user-dir") + 1] = str(package)
    printed = python(
        f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
sys.stderr = sys.stdout
import roberta_plugin
roberta_plugin.register()
import torch
from pathlib import Path
from fairseq_cli.train import cli_main
from roberta_plugin.cli import main
from roberta_plugin.models.precision import set_precision
from roberta_plugin.pretraining.evaluation import load_trained

Path("text.txt").write_text("The quick brown fox jumps over the lazy dog.\\n\\n" * 60)
main("tokenizer train --input text.txt --vocab-size 300 --output-dir bpe".split())
main("binarize --tokenizer bpe --train text.txt --output-dir bin".split())
for options in (("2", "--scale-residual"), ("4",)):
    sys.argv = {words!r} + ["--max-update", *options]
    try:
        cli_main()
    except (SystemExit, ValueError) as error:
        print(error)
model, _ = load_trained(Path("run/checkpoint_last.pt"), Path("bin"), device="cpu")
print("scale", model.encoder.sentence_encoder.layers[1].residual_scale)
for form in ("huggingface", "fairseq"):
    main(["export", "run", "--to", form, "--output-dir", "out"])
set_precision(model, "int8", torch.device("cpu"))
print("int8", model.encoder.sentence_encoder.layers[1].residual_scale)
""",
        tmp_path,
        fork_of="fairseq",
    )
    assert '"num_updates": "2"' in printed and '"num_updates": "3"' not in printed
    assert "--scale-residual was True and is False now" in printed
    assert "int8 0.5\n" in printed
    assert "scale 0.5\n" in printed, "the model is rebuilt from its checkpoint as it was trained"
    for other in ("Hugging Face's RoBERTa", "fairseq's RoBERTa"):
        assert re.search(f"was trained with --scale-residual, which {other}.* cannot compute", printed), printed
