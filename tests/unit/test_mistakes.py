"""Mistakes of the first hour: the command, and what its message must name."""

import shutil

import pytest

from roberta_plugin.cli import main
from roberta_plugin.data.tokenizers.byte_level_bpe import BYTE_CHARACTERS, ByteLevelBpe
from tests.tiny_predictors import write_predictor

OPTIONS = (
    "task: roberta_masked_lm, criterion: roberta_masked_lm, arch: fast_roberta_tiny, lr: 1e-3, tokens_per_sample: 32"
)
SCHEDULE = "lr_scheduler: polynomial_decay, total_num_update: 6, max_update: 6"
RECIPE = f"output_dir: {{folder}}/run\ntrain: {{data: {{data}}, {OPTIONS}, {SCHEDULE}, batch_size: 8, %s}}\n%s\n"
TEXTS = {
    "lines.txt": "arma virumque cano\ntroiae qui primus ab oris\n",
    "empty.txt": "",
    "blank.txt": "\n\n",
    "zero.txt": "arma virumque cano\ntroi\0ae qui primus ab oris\n",
    "typo.yaml": RECIPE % ("wrmup_updates: 3", ""),
    "key.yaml": RECIPE % ("warmup_updates: 3", "nodez: 2"),
    "good.yaml": RECIPE % ("warmup_updates: 3, optimizer: adam", ""),
}
"""Files of the folder in which all commands run."""
BINARIZE, PRETRAIN = "binarize --tokenizer bpe --output-dir new", "pretrain lines.txt --output-dir new"
REFUSED = [
    # A verb of another program, or of nobody.
    ("binarise lines.txt", ["the nearest is binarize", "roberta --help"]),
    ("fine-tune lines.txt", ["the nearest is finetune"]),
    ("serve model", ["roberta export", "RobertaHub"]),
    ("convert demo", ["roberta import", "roberta export"]),
    # A verb of an earlier version.
    ("plan --config a --machine b", ["plan is no longer a verb", "roberta launch --dry-run"]),
    ("train data", ["roberta pretrain DATA", "--config"]),
    ("train data --arch fast_roberta_tiny", ["roberta pretrain DATA", "--config"]),
    # A wrong option: the usage of the verb, and the nearest.
    ("user-dir --recipez 4", ["usage: roberta user-dir", "--recipez 4: the nearest is --recipes"]),
    ("tokenizer show --foldr x bpe", ["usage: roberta tokenizer show", "unrecognized arguments: --foldr"]),
    ("user-dir -- data", ["unrecognized arguments: -- data\n"]),
    ("predict model a --top-kk 3", ["usage: roberta predict", "--top-kk 3: the nearest is --top-k"]),
    ("predict model a --input lines.txt", ["texts and --input exclude each other"]),
    # Text.
    ("inspect .", ["dict.txt does not exist", "roberta binarize"]),
    ("tokenizer train --input . --vocab-size 300 --output-dir t", ["is a folder", "*.txt"]),
    (f"{BINARIZE} --train .", ["is a folder", "*.txt"]),
    (f"{BINARIZE} --train empty.txt", ["no text for the split train", "Nothing was"]),
    (f"{BINARIZE} --dict bpe/dict.txt --valid blank.txt", ["no text for the split valid"]),
    (f"{BINARIZE} --dict bpe/dict.txt --train /dev/null", ["no text for the split train"]),
    (f"{BINARIZE} --train zero.txt", ["zero.txt, line 2: byte 0x00", "tr -d"]),
    ("tokenizer train --input zero.txt --vocab-size 300 --output-dir t", ["zero.txt, line 2: byte 0x00", "tr -d"]),
    # Pretraining: each before anything is made.
    ("pretrain nowhere", ["No text file nowhere", "Nor is there a data-bin", "dict.txt and train.bin"]),
    ("pretrain line.txt", ["The nearest are lines.txt"]),
    ("pretrain empty.txt --output-dir new", ["empty.txt: there is no text"]),
    (f"{PRETRAIN} --recipe HALF_HOUR", ["the nearest is half-hour"]),
    (f"{PRETRAIN} --recipe no.yaml", ["no file no.yaml"]),
    (f"{PRETRAIN} --reciep tour", ["--reciep is unknown: the nearest is --recipe"]),
    (f"{PRETRAIN} --learning_rate 1", ["--learning_rate is unknown: here it is --lr"]),
    (f"{PRETRAIN} --output_dir x", ["--output_dir is unknown: the nearest is --output-dir"]),
    (f"{PRETRAIN} --valid lines.txt blank.txt", ["lines.txt is given as DATA and by --valid"]),
    (f"{PRETRAIN} --valid blank.txt", ["blank.txt: there is no text"]),
    (f"{PRETRAIN} --valid key.yaml --test no.txt", ["No text file no.txt"]),
    (f"{PRETRAIN} --tokenizer nowhere", ["No tokenizer in nowhere, which does not exist: looked for"]),
    (f"{PRETRAIN} --distributed-world-size 4", ["--distributed-world-size 4 needs as many"]),
    ("pretrain lines.txt --output-dir lines.txt", ["Not a directory. A file has the name of a folder"]),
    ("pretrain outer", ["outer is not a data-bin", "Did you mean outer/data-bin?"]),
    ("demo --output-dir lines.txt", ["A file has the name of a folder"]),
    # Recipes.
    ("launch --config typo.yaml --dry-run", ["--wrmup-updates is unknown: the nearest are --warmup-updates"]),
    ("launch --config key.yaml --dry-run", ["unknown key 'nodez'", "The nearest is nodes."]),
    ("launch --config good.yaml", ["SLURM cannot be asked here", "--dry-run", "roberta train", "roberta pretrain"]),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory, tiny_data_bin):
    folder = tmp_path_factory.mktemp("mistakes")
    for name, text in TEXTS.items():
        (folder / name).write_text(text.replace("{folder}", str(folder)).replace("{data}", str(tiny_data_bin)))
    (folder / "bpe").mkdir()
    (folder / "outer" / "data-bin").mkdir(parents=True)
    ByteLevelBpe(BYTE_CHARACTERS, []).save(folder / "bpe")
    (folder / "bpe" / "dict.txt").write_text("".join(f"{number} 1\n" for number in range(256)))
    write_predictor(folder / "model", "fill_mask")
    write_predictor(folder / "made", "made")
    return folder


@pytest.fixture
def run(files, monkeypatch, capfd):
    """`roberta WORDS` in the folder of `files` -> exit code, output and errors."""
    monkeypatch.chdir(files)
    monkeypatch.setenv("PATH", str(files))  # without SLURM

    def call(words):
        try:
            code = main(words.split())
        except SystemExit as stop:
            code = stop.code
        return code, *capfd.readouterr()

    return call


@pytest.mark.parametrize(("command", "named"), REFUSED, ids=[command for command, _ in REFUSED])
def test_what_is_refused_names_the_remedy(run, files, command, named):
    shutil.rmtree(files / "new", ignore_errors=True)
    code, _, errors = run(command)
    assert code == 2 and "Traceback" not in errors
    assert [text for text in named if text not in errors] == [], errors
    assert len(errors.splitlines()) == 1 or errors.startswith("usage: "), errors
    assert not list(files.glob("new/*.bin")), "an empty data-bin is none"
    assert not command.startswith("pretrain") or not (files / "new").exists()


def test_one_document_because_of_no_blank_line_is_said(run, files):
    shutil.rmtree(files / "new", ignore_errors=True)
    remedies = ["all text is 1 document", "--blank-line-after-files", "sed G"]
    code, _, errors = run("binarize --tokenizer bpe --train lines.txt --output-dir new")
    assert code == 0 and all(text in errors for text in remedies), errors
    code, output, _ = run("inspect new")
    assert code == 0 and all(text in output for text in ["1 document, 2 lines", *remedies]), output


def test_an_empty_input_has_no_answers(run):
    code, output, errors = run("predict made --input empty.txt --no-progress")
    assert (code, output, errors) == (0, "", "empty.txt is empty: there is nothing to answer.\n")
