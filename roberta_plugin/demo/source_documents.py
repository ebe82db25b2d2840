"""The source of the demo's text: the documentation inside the installed Python, numpy and torch.

Stage of `roberta_plugin/demo/__init__.py`. Source files are parsed, never imported, so no foreign code runs. Each
source file and each topic of the language reference (`pydoc_data.topics`) is one document.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGES = ("numpy", "torch")
SKIPPED_FOLDERS = {"site-packages", "__pycache__", "test", "tests"}  # tests have almost no prose
DOCSTRING_SETTERS = {"add_docstr", "add_newdoc"}  # how numpy and torch document functions written in C


class Document(NamedTuple):
    """One document: its origin, and its docstrings in source order."""

    name: str
    docstrings: list[str]


def find_documents() -> Iterator[Document]:
    """All documents of this machine, in an order that depends only on their names."""
    library = Path(sysconfig.get_path("stdlib"))
    yield from language_reference(library / "pydoc_data" / "topics.py")
    yield from package_documents("python", library)
    for package in PACKAGES:
        yield from package_documents(package, find_package(package))


def find_package(name: str) -> Path:
    """The folder of an installed package, found without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(f"The package {name} is not installed: `pip install {name}`, or see `roberta doctor`.")
    return Path(next(iter(spec.submodule_search_locations)))


def package_documents(package: str, folder: Path) -> Iterator[Document]:
    """One document for each source file below `folder` that has docstrings."""
    for path in sorted(folder.rglob("*.py")):
        relative = path.relative_to(folder)
        if SKIPPED_FOLDERS.intersection(relative.parts[:-1]) or relative.name == "topics.py":
            continue
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):  # installations contain templates and deliberately broken files
            continue
        docstrings = list(docstrings_of(tree))
        if docstrings:
            yield Document(f"{package}/{relative.as_posix()}", docstrings)


def language_reference(path: Path) -> Iterator[Document]:
    """One document per topic of the language reference; none if Python was installed without it."""
    if not path.is_file():
        return
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            topics: dict[str, str] = ast.literal_eval(node.value)
            for topic in sorted(topics):
                yield Document(f"topics/{topic}", [topics[topic]])


def docstrings_of(tree: ast.Module) -> Iterator[str]:
    """Docstrings of the module, its classes and functions, and those set by a call of `DOCSTRING_SETTERS`."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = sorted(ast.walk(tree), key=lambda node: getattr(node, "lineno", 0))
    for node in nodes:
        if isinstance(node, documented):
            docstring = ast.get_docstring(node)
            if docstring:
                yield docstring
        elif isinstance(node, ast.Call) and called_name(node) in DOCSTRING_SETTERS:
            for constant in ast.walk(node):
                if isinstance(constant, ast.Constant) and isinstance(constant.value, str) and "\n" in constant.value:
                    yield inspect.cleandoc(constant.value)


def called_name(call: ast.Call) -> str:
    """The last part of the called name: `add_docstr` of `torch._C.add_docstr(...)`."""
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
