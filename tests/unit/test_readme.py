"""The documents say what is true: links and files exist, commands parse, figures are those of the files named.

`tests/integration/test_documents.py` also runs those commands that a laptop can run."""

import ast
import dataclasses
import importlib
import re
import shlex
from pathlib import Path

import pytest
import yaml
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from torch.distributed import run as torchrun

from roberta_plugin.cli import build_parser, called_verb
from roberta_plugin.experiments.finetune import FinetuneSettings
from roberta_plugin.pretraining.recipe import load
from tests.conftest import REPOSITORY
from tests.hugging_face import import_transformers
from tests.needed_extensions import describes_all

PAGES = [
    path
    for path in REPOSITORY.rglob("*.md")
    if ".venv" not in path.parts and ("results" not in path.parts or path.name == "README.md")
]
RECIPES = sorted((REPOSITORY / "examples").rglob("*.sh"))


def commands(text, name):
    """The calls of the command `name` in all bash blocks of a page, or in a whole script, as lists of words."""
    blocks = re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL) or [text]
    for block in blocks:
        for call in re.findall(rf"(?:^ *(?:exec )?|&& ){name}( .*)?$", block.replace("\\\n", " "), flags=re.MULTILINE):
            yield shlex.split(call, comments=True)


def all_commands(name):
    ours = [path for path in [*PAGES, *RECIPES] if "extensions" not in path.parts]  # others need their package
    return [(path.name, words) for path in ours for words in commands(path.read_text(), name)]


def names_of_pages(path):
    return str(path.relative_to(REPOSITORY))


@describes_all()
@pytest.mark.parametrize("page", PAGES, ids=names_of_pages)
def test_links_anchors_and_files_that_a_page_names_exist(page):
    """Files: in code quotes, and they begin with a folder of the repository."""
    text = page.read_text()
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page} links to {target}"
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", text):
        headings = re.findall(r"^#+ (.+)$", (page.parent / target if target else page).read_text(), flags=re.MULTILINE)
        assert anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}, target
    folders = "|".join(map(re.escape, ("roberta_plugin", "tests", "slurm", "examples", ".github")))
    for name in re.findall(rf"`((?:{folders})/[^`\s*{{]+)`", text):
        assert (REPOSITORY / name).exists(), f"{page} names {name}"


@describes_all()
def test_roberta_commands_parse():
    found = all_commands("roberta")
    verbs = {words[0] for _, words in found}
    needed = "demo tokenizer binarize inspect prepare evaluate launch jobs sweep"
    assert verbs >= {*needed.split()}
    assert {words[1] for _, words in found if words[0] == "finetune"} >= {"RTE", "race", "$task"}
    for _, words in found:
        words = ["RTE" if word == "$task" else word for word in words if word != "$@"]
        args, further = build_parser(called_verb(words)).parse_known_args(words)
        assert not further or args.takes_further, further


@describes_all()
def test_fairseq_train_commands_parse():
    found = all_commands("fairseq-train")
    assert len(found) >= 5
    for _, words in found:
        arguments = [word for word in words if word != "$@"]
        arguments = [word.replace("$plugin", "roberta_plugin") for word in arguments]
        arguments = [re.sub(r"\$\{\w+:-(\w+)\}", r"\1", word) for word in arguments]
        where = arguments.index("--user-dir") + 1
        if arguments[where] == "$(roberta user-dir)":
            arguments[where] = "roberta_plugin"
        arguments[where] = str(REPOSITORY / arguments[where])
        cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), arguments))
        assert cfg.model._name.startswith(("fast_roberta", "fast_xlmr"))
        assert cfg.task._name == cfg.criterion._name
        tuning = {"roberta_sentence_prediction", "squad2", "race", "roberta_tagging", "roberta_summarization"}
        assert cfg.task._name in {"roberta_masked_lm", *tuning}
        assert cfg.checkpoint.no_epoch_checkpoints, "without it, a checkpoint per epoch fills the disk"
        assert cfg.optimizer._name == "roberta_adamw"


def test_both_base_recipes_say_the_same():
    """The recipe of `roberta pretrain` and the hydra one are the paper's Table 9, option for option."""
    given = {f"--{name}": value for name, value in load("base").train.items()}
    config = yaml.safe_load((REPOSITORY / "examples" / "pretrain" / "base.yaml").read_text())
    assert float(given["--lr"]) == config["optimization"]["lr"][0] == 6e-4
    assert int(given["--warmup-updates"]) == config["lr_scheduler"]["warmup_updates"] == 24000
    assert int(given["--max-update"]) == config["optimization"]["max_update"] == 500_000
    assert float(given["--weight-decay"]) == config["optimizer"]["weight_decay"] == 0.01
    assert int(given["--batch-size"]) == config["dataset"]["batch_size"]
    assert 8 * config["dataset"]["batch_size"] * config["optimization"]["update_freq"][0] == 8192
    model = config["model"]
    sizes = tuple(model[f"encoder_{name}"] for name in ("layers", "embed_dim", "ffn_embed_dim", "attention_heads"))
    assert sizes == (12, 768, 3072, 12)
    assert Path(config["common"]["user_dir"]).name == "roberta_plugin"
    assert config["optimizer"]["_name"] == given["--optimizer"] == "roberta_adamw"


def test_scripts_are_called_with_arguments_that_they_take():
    """At least four for the scripts of fine-tuning; and all that the documents call are there."""
    calls = [(page, words) for page in PAGES for words in _script_calls(page.read_text())]
    assert {script for _, (script, *_) in calls} >= {
        f"examples/finetune/{name}.sh" for name in ("glue", "squad", "race")
    }
    for page, (script, *arguments) in calls:
        assert (REPOSITORY / script).is_file(), f"{page} calls {script}"
        assert len(arguments) >= (4 if "finetune" in script else 1), f"{page} calls {script}"


def _script_calls(text):
    call = r"^(?:\w+=\S+ |sbatch (?:--\S+ )*|python )?((?:examples|slurm)/\S+ .*)$"
    for block in re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL):
        for found in re.findall(call, block.replace("\\\n", " "), re.M):
            yield shlex.split(found, comments=True)


def snippets(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)


@describes_all()
@pytest.mark.parametrize("page", PAGES, ids=names_of_pages)
def test_snippets_for_python_are_python(page):
    for block in snippets(page):
        imported = [node for node in ast.walk(ast.parse(block)) if isinstance(node, ast.ImportFrom)]
        for node in imported:
            if str(node.module).startswith("transformers"):
                import_transformers()
            module = importlib.import_module(str(node.module))
            assert all(hasattr(module, alias.name) for alias in node.names), f"{page}: {node.module}"


def test_settings_that_the_documents_give_to_procedures_exist():
    page = REPOSITORY / "examples/README.python.md"
    (block,) = [block for block in snippets(page) if "FinetuneSettings" in block]
    call = next(node for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Call) and node.keywords)
    assert {keyword.arg for keyword in call.keywords} <= {field.name for field in dataclasses.fields(FinetuneSettings)}


@pytest.mark.parametrize("page", sorted((REPOSITORY / "examples").glob("README.*.md")), ids=lambda path: path.name)
def test_every_example_document_has_the_same_parts_and_is_in_the_index(page):
    text = page.read_text()
    parts = ("## Prerequisites", "## Troubleshooting", r"Expected (output|results)\b", r"```bash\n", "(?i)hardware|GPU")
    for part in parts:
        assert re.search(part, text.replace("Expected\n", "Expected ")), f"{page.name} lacks {part}"
    assert f"{page.name})" in (REPOSITORY / "README.md").read_text(), f"README.md lacks {page.name}"


def test_the_readme_is_short_and_its_picture_small():
    assert len((REPOSITORY / "README.md").read_text().splitlines()) < 200
    assert (REPOSITORY / "examples" / "demo.png").stat().st_size < 100_000


def test_the_cpu_build_is_of_the_tested_version():
    (version,) = re.findall(r"pip install torch==(\S+) --index-url", (REPOSITORY / "README.md").read_text())
    assert f"torch=={version}\n" in (REPOSITORY / ".constraints.txt").read_text()


def test_every_installation_ends_by_removing_torchaudio_which_breaks_transformers_on_a_cpu():
    """uv never installs it."""
    folders = [REPOSITORY / name for name in (".ci", "slurm")]
    pages = {*PAGES, *(path for folder in folders for path in folder.iterdir() if path.is_file())}
    found = [line for page in pages for line in re.findall(r"(?:uv )?pip install.* -e [^`]*", page.read_text())]
    assert len(found) >= 6
    assert (REPOSITORY / ".overrides.txt").read_text().splitlines()[-1] == 'torchaudio; sys_platform == "never"'
    for installed in found:
        if installed.startswith("uv "):
            assert "--overrides .overrides.txt" in installed
            continue
        assert re.match(r"pip install.* -e \S+( && |\n)pip uninstall (--quiet )?-y torchaudio", installed), installed


def test_images_install_as_the_readme_does_with_files_that_are_there():
    found = re.findall(r"&& (pip install.* -e \. .*)", (REPOSITORY / "README.md").read_text())
    (installed,) = {each.removesuffix(" && roberta demo") for each in found}
    docker = (REPOSITORY / "slurm" / "Dockerfile").read_text()
    apptainer = (REPOSITORY / "slurm" / "apptainer.def").read_text()
    assert f"RUN {installed}\n" in docker and f"    {installed}\n" in apptainer
    copied = [words.split()[:-1] for words in re.findall(r"^COPY (.+)$", docker, re.MULTILINE)]
    taken = re.findall(r"^    (\S+) /opt/roberta_plugin/$", apptainer, re.MULTILINE)
    assert [name for names in copied for name in names] == taken
    assert all((REPOSITORY / name).exists() for name in taken)
    bases = {re.search(r"^f?rom:? (\S+)$", text, re.MULTILINE | re.IGNORECASE)[1] for text in (docker, apptainer)}
    assert len(bases) == 1
    workflow = yaml.safe_load((REPOSITORY / ".github" / "workflows" / "tests.yml").read_text())
    builds = " ".join(workflow["jobs"]["image"]["strategy"]["matrix"]["build"])
    for name in ("Dockerfile", "apptainer.def"):
        assert f"slurm/{name}" in builds and f"({name})" in (REPOSITORY / "slurm" / "README.md").read_text()


@pytest.mark.parametrize("page", ["README.md", "tests/benchmarks/results/README.md"])
def test_speeds_of_the_readme_are_those_of_the_results(page):
    """The first number of a row stands in the file of the row."""
    text, folder = (REPOSITORY / page).read_text(), (REPOSITORY / page).parent
    rows = re.findall(r"^\| .* \| (.*) \| \[.*\]\((.*results/.*|\w+_\w+\.md)\) \|$", text, flags=re.MULTILINE)
    assert len(rows) >= 6
    for result, path in rows:
        number = re.findall(r"\d+(?:\.\d+)?", result)[0]
        found = re.findall(r"\d+(?:\.\d+)?(?:e-?\d+)?", (folder / path).read_text())
        digits = len(number.partition(".")[2])
        close = {f"{float(value) * scale:.{digits}f}" for value in found for scale in (1, 1000)}
        assert number in close, f"{path} lacks {number}"


PAGE = (REPOSITORY / "examples" / "README.gpu.md").read_text()
COMMANDS = [
    shlex.split(text.replace("\\\n", " ")) for text in re.findall(r"^torchrun (?:.*\\\n)*.*$", PAGE, flags=re.MULTILINE)
]


def parsed(words):
    """What torchrun and `roberta` read from a command."""
    of_torch = torchrun.get_args_parser().parse_args(words)
    program, *arguments = [of_torch.training_script, *of_torch.training_script_args]
    assert (program, of_torch.no_python) == ("roberta", True)
    return of_torch, build_parser(arguments[0]).parse_args(arguments)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[1:4]))
def test_a_documented_command_is_one(words):
    of_torch, ours = parsed(words[1:])
    assert of_torch.nproc_per_node == "8"
    assert ours.verb == "pretrain" or (REPOSITORY / ours.config).is_file()
    assert (ours.data if ours.verb == "pretrain" else ours.train) == ["data-bin/pretrain"]


def test_static_and_elastic_commands_are_documented():
    assert {parsed(words[1:])[0].nnodes for words in COMMANDS} == {"1:1", "4", "2:4"}
