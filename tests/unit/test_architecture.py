"""Who may import whom, and what stands where: the rules that keep the layout readable, checked on the source itself."""

import ast
import functools
import re
from collections.abc import Callable
from graphlib import TopologicalSorter
from pathlib import Path

from tests.conftest import REPOSITORY
from tests.ledger import SOURCES

PACKAGE = REPOSITORY / "roberta_plugin"
FILES = sorted(PACKAGE.rglob("*.py"))
FOLDERS = sorted({path.parent for path in FILES})

# The floors of the house, top to bottom: a folder (or file) may import from the floors below its own.
FLOORS = [
    {"extensions"},
    {"cli"},
    {"experiments"},
    {"pretraining"},
    {"launch"},
    {"prediction"},
    {"hub"},
    {"conversion"},
    {"tasks/trainings"},
    {"tasks", "criterions"},
    {"fairseq_workarounds"},
    {"optim"},
    {"finetuning"},
    {"finetuning/benchmarks", "finetuning/options"},
    {"finetuning/kinds"},
    {"finetuning/training", "finetuning/examples_dataset"},
    {"finetuning/layouts"},
    {"finetuning/examples", "finetuning/label_names"},
    {"finetuning/records", "finetuning/prepared"},
    {"models"},
    {"tables.py", "reports.py"},
    {"data"},
    {"runs.py"},
    {"checkpoint_files.py", "json_files.py", "stop_signals.py"},
    {
        "extras.py",
        "option_slices.py",
        "files.py",
        "foreign_fields.py",
        "fairseq_import.py",
        "machine.py",
        "moved.py",
        "progress.py",
        "record.py",
    },
    {"locks.py", "registry.py", "settings.py", "spelling.py"},
    {"former_fields.py"},
]
# Narrower than the floors: what these import of the package, besides their own folder.
ONLY: dict[str, set[str]] = {
    "models": {"checkpoint_files", "fairseq_import", "foreign_fields", "machine", "moved", "registry", "settings"},
    "optim": {"fairseq_import", "settings"},
    "data": {
        *("extras", "fairseq_import", "files", "foreign_fields", "json_files", "locks", "machine", "moved", "progress"),
        *("record", "registry", "settings", "spelling"),
    },
    "files.py": {"locks"},
    "foreign_fields.py": set(),
    "machine.py": set(),
    "progress.py": set(),
    "record.py": set(),
}
# Where fairseq appears: at the rim alone.
USES_FAIRSEQ = (
    *("extensions/", "tasks/", "criterions/", "optim/", "hub/", "launch/", "fairseq_workarounds/", "fairseq_import.py"),
    *("conversion/model_files.py", "conversion/pretrained.py", "finetuning/examples_dataset.py"),
    *("models/config.py", "models/roberta.py", "models/roberta_encoder.py", "models/checkpoints.py"),
    *("data/block_dataset.py", "data/masked_lm_dataset.py"),
    *("experiments/inference.py", "cli/doctor.py", "cli/profile.py"),
)
STAGES = [
    *(
        "array_files",
        "rounding",
        "white_space",
        "corpora",
        "text_inputs",
        "text_check",
        "sentences",
        "tokenizers",
        "normal_form",
        "vocabulary",
        "mmap_tokens",
    ),
    *("manifest", "binarize", "blocks", "block_tables", "mixture", "counter_random", "block_order"),
    *("dynamic_masking", "batches", "block_batches", "block_dataset", "masked_lm_dataset"),
    *("neighbor_baseline", "pair_counts", "count_baselines", "corpus_statistics"),
]


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def imported_modules(path: Path, *, for_types: bool = True) -> set[str]:
    """Absolute names of all modules that the file imports, at any depth; perhaps without those for types alone."""
    names: set[str] = set()
    package = path.relative_to(REPOSITORY).parent.parts
    body = tree_of(path).body
    if not for_types:
        body = [node for node in body if not (isinstance(node, ast.If) and "TYPE_CHECK" in ast.dump(node.test))]
    for node in (node for part in body for node in ast.walk(part)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names |= {f"{module}.{alias.name}" for alias in node.names}
    return names


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def floor_of(name: str) -> int:
    """Index in FLOORS of a file or module, such as finetuning/prepared: of its own entry, or of its first part's."""
    parts = name.removesuffix(".py").split("/")
    for length in range(len(parts), 0, -1):
        part = "/".join(parts[:length])
        for index, floor in enumerate(FLOORS):
            if part in floor or f"{part}.py" in floor:
                return index
    raise AssertionError(f"{name} stands on no floor: give it one in FLOORS")


def stage_of(name: str) -> int | None:
    """Index in STAGES of a name such as `mmap_tokens` or `text_inputs_files`; None for what is not a stage."""
    matches = [index for index, stage in enumerate(STAGES) if name == stage or name.startswith(f"{stage}_")]
    return matches[-1] if matches else None


def every_file(check: Callable[[Path], None]) -> Callable[[], None]:
    """Make one test of a rule about a file: it fails with the violations of all files."""

    def test() -> None:
        assert len(FILES) > 100  # the rule looks at the package, not at an empty folder
        violations = []
        for path in FILES:
            try:
                check(path)
            except AssertionError as violation:
                violations.append(str(violation).splitlines()[0])
        assert not violations, "\n".join(violations)

    return test


@every_file
def test_imports_go_downstairs(path):
    own = name_of(path).split("/")[0]
    if own == "__init__.py":  # register() imports what it registers
        return
    for module in imported_modules(path):
        parts = module.split(".")
        if parts[0] != "roberta_plugin" or len(parts) == 1 or parts[1] in ("register", "__version__"):
            continue
        target = parts[1]
        here, there = floor_of(name_of(path)), floor_of("/".join(parts[1:]))
        if target == own.removesuffix(".py"):
            assert there >= here, f"{name_of(path)} imports {module}, which is on a floor above"
            continue
        assert there > here, f"{name_of(path)} imports {module}, which is not on a floor below"
        assert own not in ONLY or target in ONLY[own], f"{name_of(path)} imports {module}: ONLY forbids it"


@every_file
def test_an_extension_imports_no_other_extension(path):
    parts = path.relative_to(PACKAGE).parts
    if parts[0] != "extensions" or len(parts) < 3:
        return
    for module in imported_modules(path):
        if module.startswith("roberta_plugin.extensions."):
            assert module.split(".")[2] == parts[1], f"{name_of(path)} imports {module}"


def test_no_file_is_in_a_circle_of_imports():
    def module_of(path):
        return ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__")

    modules = {module_of(path) for path in FILES} - {"roberta_plugin"}  # register() imports what it registers
    graph = {}
    for path in FILES:
        imported = imported_modules(path, for_types=False)
        names = {name if name in modules else name.rpartition(".")[0] for name in imported}
        graph[module_of(path)] = (names & modules) - {module_of(path)}
    TopologicalSorter(graph).prepare()  # a CycleError names the files


@every_file
def test_fairseq_stays_at_the_rim(path):
    name = name_of(path)
    uses = any(module.split(".")[0] in ("fairseq", "fairseq_cli") for module in imported_modules(path))
    assert not uses or name.startswith(USES_FAIRSEQ), f"{name} imports fairseq"


@every_file
def test_fairseq_is_imported_by_way_of_fairseq_import(path):
    """Which keeps fairseq's `logging.basicConfig` from taking effect."""
    modules = {node.module for node in tree_of(path).body if isinstance(node, ast.ImportFrom)}
    if not any(str(module).split(".")[0] == "fairseq" for module in modules):
        return
    packages = [folder / "__init__.py" for folder in path.relative_to(PACKAGE).parents]
    first = [path, *(PACKAGE / package for package in packages if package != Path("__init__.py"))]
    assert any(re.search("fairseq_import  #|log_output  #", file.read_text()) for file in first), name_of(path)


@every_file
def test_a_stage_of_the_data_flow_imports_earlier_stages_only(path):
    if not name_of(path).startswith("data/"):
        return
    parts = path.relative_to(PACKAGE / "data").with_suffix("").parts
    stage = stage_of(parts[0])
    if parts == ("__init__",):
        assert not imported_modules(path)
        return
    assert stage is not None, f"{name_of(path)} is no stage of the flow: add it to the map and to STAGES"
    for module in imported_modules(path):
        if module.startswith("roberta_plugin.data."):
            imported = stage_of(module.split(".")[2])
            assert imported is not None and imported <= stage, f"{name_of(path)} imports {module}"


@every_file
def test_a_file_is_one_idea(path):
    """100 to 600 lines are natural; what is longer holds several ideas."""
    lines = len(path.read_text().splitlines())
    assert lines <= 600, f"{name_of(path)} has {lines} lines: split it by idea"


@every_file
def test_every_folder_has_a_map_of_its_files(path):
    if path.name != "__init__.py":
        return
    folder = path.parent
    text = ast.get_docstring(tree_of(path)) or ""
    names = {path.stem for path in folder.glob("*.py")} | {path.name for path in folder.iterdir() if path in FOLDERS}
    names -= {"__init__", "__main__"}
    missing = sorted(name for name in names if not re.search(rf"\b{re.escape(name)}\b", text))
    assert not missing, f"not on the map of {folder.name}/__init__.py: {missing}"


@every_file
def test_a_map_names_no_file_that_is_not_there(path):
    """A line of a map begins with the name of a file or folder: `name   input -> output`."""
    if path.name != "__init__.py":
        return
    text = ast.get_docstring(tree_of(path)) or ""
    here = {entry.stem if entry.suffix == ".py" else entry.name for entry in path.parent.iterdir()}
    here |= SOURCES.keys() if path.parent.name == "extensions" else set()  # each of which can be deleted
    for line in text.splitlines():
        entry = re.match(r" {4}([a-z_0-9]+)(?:\.py|/)? {2,}\S", line)
        assert entry is None or entry[1] in here, f"the map of {path.parent.name}/ lists {entry and entry[1]}"


@every_file
def test_command_lines_stay_at_the_top(path):
    name = name_of(path)
    text = path.read_text()
    if not name.startswith(("cli/", "fairseq_workarounds/", "launch/arguments.py", "launch/rendezvous.py")):
        assert "sys.argv" not in text, f"{name} looks at sys.argv"
    if name.startswith(("experiments/", "demo/", "finetuning/", "data/")):
        assert "argparse.Namespace" not in text, f"{name} passes an argparse.Namespace around"
