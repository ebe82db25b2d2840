"""Who may import whom: the rules that keep the layout readable, checked on the source itself."""

import ast
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

PACKAGE = REPOSITORY / "roberta_plugin"
FILES = sorted(PACKAGE.rglob("*.py"))

# folder (or file) -> the parts of roberta_plugin that it may import, besides its own
ALLOWED = {
    "data": {"machine"},
    "models": set(),
    "models/hub_interface.py": {"data"},
    "criterions": {"finetuning"},
    "optim": set(),
    "finetuning": {"data"},
    "finetuning/inference.py": {"data", "models"},
    "tasks": {"data", "finetuning", "fairseq_workarounds"},
    "checkpoint_files.py": set(),
    "fairseq_workarounds": {"checkpoint_files", "data", "optim", "stop_signals"},
    "__init__.py": {"fairseq_workarounds", "criterions", "models", "optim", "tasks"},
    "cli": {
        "cli",
        "cluster",
        "data",
        "demo",
        "finetuning",
        "machine",
        "models",
        "tasks",
        "criterions",
        "fairseq_workarounds",
        "train_program",
        "",
    },
    "demo": {"cli", "data", "machine", "models", "train_program", "training_log", ""},
    "cluster": {
        "checkpoint_files",
        "data",
        "machine",
        "models",
        "stop_signals",
        "train_program",
        "training_log",
        "fairseq_workarounds",
        "",
    },
    "training_log.py": set(),
    "stop_signals.py": set(),
    "machine.py": set(),
    "train_program.py": set(),
}
USES_FAIRSEQ = (
    "tasks/",
    "criterions/",
    "optim/",
    "models/config.py",
    "models/roberta.py",
    "models/hub_interface.py",
    "models/checkpoint_model.py",
    "finetuning/inference.py",
    "fairseq_workarounds/",
    "cli/doctor.py",
    "cli/profile.py",
    "cluster/",
)
# The order of the flow in data/__init__.py: a stage imports earlier stages only.
STAGES = [
    "array_files",
    "atomic_files",
    "progress",
    "text_inputs",
    "tokenizers",
    "vocabulary",
    "mmap_tokens",
    "manifest",
    "binarize",
    "blocks",
    "block_tables",
    "mixture",
    "counter_random",
    "random_permutation",
    "block_order",
    "batches",
    "dynamic_masking",
    "packing",
    "block_batches",
    "block_dataset",
    "masked_lm_dataset",
    "corpus_statistics",
]


def imported_modules(path: Path) -> set[str]:
    """Absolute names of all modules that the file imports, at any depth."""
    names: set[str] = set()
    package = path.relative_to(REPOSITORY).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names |= {f"{module}.{alias.name}" for alias in node.names}
    return names


def place(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def stage_of(name: str) -> int | None:
    """Index in STAGES of a name such as `mmap_tokens` or `binarize_parts`; None for what is no stage."""
    matches = [index for index, stage in enumerate(STAGES) if name == stage or name.startswith(f"{stage}_")]
    return matches[-1] if matches else None


@pytest.mark.parametrize("path", FILES, ids=place)
def test_imports_follow_the_layout(path):
    name = place(path)
    own = name.split("/")[0]
    allowed = ALLOWED.get(name, ALLOWED.get(own))
    assert allowed is not None, f"{name} is in no rule: give it one in ALLOWED"
    for module in imported_modules(path):
        if module.split(".")[0] != "roberta_plugin":
            continue
        parts = module.split(".")
        target = parts[1] if len(parts) > 1 else ""
        if target == "__version__":
            target = ""
        assert target == own or target in allowed, f"{name} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=place)
def test_fairseq_stays_at_the_rim(path):
    name = place(path)
    uses = any(module.split(".")[0] in ("fairseq", "fairseq_cli") for module in imported_modules(path))
    may = name.startswith(USES_FAIRSEQ) or (name.startswith(("data/", "finetuning/")) and name.endswith("_dataset.py"))
    assert not uses or may, f"{name} imports fairseq"


@pytest.mark.parametrize("path", sorted((PACKAGE / "data").rglob("*.py")), ids=place)
def test_a_stage_of_the_data_flow_imports_earlier_stages_only(path):
    parts = path.relative_to(PACKAGE / "data").with_suffix("").parts
    stage = stage_of(parts[0])
    if parts == ("__init__",):
        assert not imported_modules(path)
        return
    assert stage is not None, f"{place(path)} is no stage of the flow: add it to the map and to STAGES"
    for module in imported_modules(path):
        if module.startswith("roberta_plugin.data."):
            imported = stage_of(module.split(".")[2])
            assert imported is not None and imported <= stage, f"{place(path)} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=place)
def test_files_stay_small(path):
    assert len(path.read_text().splitlines()) <= 330, f"{place(path)} has grown: split it by idea"


def test_every_data_file_is_on_the_map():
    text = (PACKAGE / "data" / "__init__.py").read_text()
    stages = {path.stem for path in (PACKAGE / "data").glob("*.py")} - {"__init__"}
    assert len(stages) > 8
    missing = {stage for stage in stages if stage not in text}
    assert not missing, f"not on the map of data/__init__.py: {missing}"
