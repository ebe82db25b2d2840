"""Options and fixtures shared by all tests."""

from __future__ import annotations

import gc
import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

if (
    "PYTEST_XDIST_WORKER" in os.environ
):  # threads of several workers wait for each other: a third more time of the cores
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("MKL_NUM_THREADS", "1")

import roberta_plugin
from roberta_plugin import registry
from tests import made_extension
from tests.configurations import remember_configurations
from tests.forked_training import folder_of_servers, share_servers

registry.register(made_extension.EXTENSION)

REPOSITORY = Path(__file__).resolve().parent.parent
# The files that take longest: begun first, so that no worker of pytest-xdist is left alone with one at the end.
LONGEST = (
    *("integration/test_documents.py", "integration/test_slurm.py", "integration/test_sweep.py"),
    *("integration/extensions/test_ordinal.py", "integration/test_pretrain.py", "parity/extensions/onnx/test_onnx.py"),
    *("unit/models/test_gpu_steps.py", "unit/test_deletion.py", "parity/conversion/test_models_vs_hugging_face.py"),
    *("integration/test_pretrain_ranks.py", "unit/tasks/test_compiled_training.py"),
    *("parity/conversion/test_portable_code.py", "unit/models/test_cpu.py"),
)
SHARED_DATA = Path(os.environ.get("ROBERTA_TEST_DATA", REPOSITORY.parent / "shared" / "data"))

# Images of Docker set it, and hundreds of commands under test would compile the package, each again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

try:
    import hypothesis
except ModuleNotFoundError:  # on a machine with a GPU, for whose tests it is not needed
    pass
else:
    # How long an example takes, or its drawing, says nothing on a machine that is busy otherwise.
    hypothesis.settings.register_profile(
        "no deadline", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
    hypothesis.settings.load_profile("no deadline")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Tests have the same name in every process of pytest-xdist, which the bytes of a gzip file, with their time, prevent."""
    return argname if isinstance(val, bytes) and not val.isascii() else None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")
    parser.addoption(
        "--device", default=None, help="torch device for tests marked gpu (default: cuda where there is one)"
    )


def pytest_configure(config: pytest.Config) -> None:
    """A shell starts background jobs with Ctrl-C ignored, and the commands under test would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(config, "workerinput"):
        share_servers(config.workerinput["servers"])


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """All workers of pytest-xdist ask the same processes for forks: to import everything takes seconds each time."""
    node.workerinput["servers"] = folder_of_servers()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Leave what the tests import to no garbage collection: while they are collected, that took a third of the time.

    Afterwards neither these objects are walked through again, nor do forks copy their pages for it.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    ranks = {REPOSITORY / "tests" / name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))
    if not config.getoption("--slow"):
        skip_slow = pytest.mark.skip(reason="slow: run with --slow")
        for item in items:
            if "slow" in item.keywords:
                item.add_marker(skip_slow)


@pytest.fixture(autouse=True)
def registered() -> None:
    """Register with fairseq wherever that is imported: whether another test has done so must not matter."""
    if "fairseq" in sys.modules:
        roberta_plugin.register()
        remember_configurations()


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    """Give signals back as they were: commands under test inherit those that are ignored, and could not be ended."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@pytest.fixture
def graphs_as_they_are() -> Iterator[None]:
    """Compile without a search for common subexpressions: for it, torch imports its compiler of kernels, for seconds."""
    from torch._functorch import config

    with config.patch(cse=False):
        yield


@contextmanager
def files_up_to(num_bytes: int) -> Iterator[None]:
    """Let files that grow beyond this be as on a full disk."""
    most, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real corpora, which is not part of the project: $ROBERTA_TEST_DATA or ../shared/data."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"real data not found at {SHARED_DATA}: set ROBERTA_TEST_DATA to the folder that holds it")
    return SHARED_DATA


@pytest.fixture
def gpu(request: pytest.FixtureRequest) -> str:
    """A CUDA device, or a skip that says why."""
    torch = pytest.importorskip("torch")
    device = request.config.getoption("--device") or "cuda"
    if device.startswith("cuda") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device and torch.cuda.is_available() is False")
    return str(device)


@pytest.fixture(scope="session")
def tiny_data_bin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data-bin of made-up text that no test may change."""
    from tests.tiny_corpus import write_data_bin

    return write_data_bin(tmp_path_factory.mktemp("tiny") / "data-bin")
