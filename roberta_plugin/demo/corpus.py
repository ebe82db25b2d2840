"""The documentation inside the installed Python, numpy and torch -> train.txt, valid.txt and test.txt.

    source files  --find_documents-->  docstrings  --paragraphs_of-->  prose  --write_corpus-->  three splits

Source files are parsed, never imported, so no foreign code runs. Each source file and each topic of the language
reference (`pydoc_data.topics`) is one document. Code, headings, markup and all that does not read as prose are removed.
The files have one paragraph per line and a blank line between documents. Whole documents are held out, chosen by the
hash of their name, so the split is the same in every run. Each paragraph is kept once, and a held-out paragraph that
shares a sentence with the training text is dropped.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import re
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from roberta_plugin.files import write_text

PACKAGES = ("numpy", "torch")
SKIPPED_FOLDERS = {"site-packages", "__pycache__", "test", "tests"}  # tests have almost no prose
DOCSTRING_SETTERS = {"add_docstr", "add_newdoc"}  # how numpy and torch document functions written in C
SPLITS = ("train", "valid", "test")
VALID_SHARE, TEST_SHARE = 0.02, 0.04  # fractions of documents: the first for the loss curve, the second for the report
MIN_SHARED_WORDS = 6  # shorter sentences ("Returns None.") are not specific to a document
MIN_WORDS = 6
MIN_WORD_SHARE = 0.75  # share of words among the space-separated parts of a paragraph

_SENTENCE_END = re.compile(r"(?<=[.!?:;])\s+")
_NOT_LETTERS = re.compile(r"[^a-z]+")
_UNDERLINE = re.compile(r"^\s*([-=~^*+#\"'`.:])\1{2,}\s*$")
# Possible beginnings of an entry: `.. note::`, `:param x:`, a bullet, a number, `name (type):`
_ENTRY_MARKS = (
    re.compile(r"^\s*\.\.(?:\s+\[\w+\])?(?:\s+[\w-]+::(?:\s+[\d.]+$)?)?(?:\s+|$)"),
    re.compile(r"^\s*[:@](?:param|type|arg|return|rtype|raise|keyword|var|ivar|cvar)\w*\b[^:]*:\s*"),
    re.compile(r"^\s*(?:[-*+]|\(?(?:\d{1,2}|[a-z])[.)])\s+"),
    re.compile(r"^\s+\*{0,2}`{0,2}[\w.]+`{0,2}\*{0,2}\s*(?:\(.*?\))?:\s+"),
)
_NUMPY_PARAMETER = re.compile(r"^\s*\*{0,2}\w+(?:,\s*\*{0,2}\w+)*\s+:(?:\s|$)")  # `x : array_like`: nothing to keep
_ROLE = re.compile(r":[\w:+-]+:`[~!]?([^`<]*?)(?:\s*<[^`]*>)?`")
_QUOTED = re.compile(r"`{1,2}([^`]+)`{1,2}_{0,2}")
_EMPHASIS = re.compile(r"(?<![\w*])(\*{1,2})([^*\s](?:[^*]*[^*\s])?)\1(?![\w*])")
_CITATION = re.compile(r"\s*\[[\w.#*-]+\]_+")
_WORD = re.compile(r"^[(\"']*[A-Za-z]+(?:['-][A-Za-z]+)*[)\"']*[.,;:!?]*[)\"']*$")


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


def paragraphs_of(docstring: str) -> Iterator[str]:
    """The prose paragraphs of a docstring, each cleaned and on one line."""
    for block in _blocks(_without_code(docstring.expandtabs().splitlines())):
        text = _without_markup(" ".join(line.strip() for line in block))
        if is_prose(text):
            yield text


def is_prose(text: str) -> bool:
    """Whether the text has enough words and consists mostly of words."""
    parts = text.split()
    num_words = sum(_WORD.match(part) is not None for part in parts)
    return num_words >= MIN_WORDS and num_words >= MIN_WORD_SHARE * len(parts)


def _without_code(lines: Iterable[str]) -> Iterator[str]:
    """Remove doctests, up to the next blank line, and the indented lines after a line ending in `::`."""
    in_doctest = False
    literal_indent: int | None = None
    for line in lines:
        stripped = line.strip()
        indent = len(line) - len(line.lstrip())
        in_doctest = bool(stripped) and (in_doctest or stripped.startswith((">>>", "$ ")))
        if stripped and literal_indent is not None and indent <= literal_indent:
            literal_indent = None
        if in_doctest or (stripped and literal_indent is not None):
            continue
        # `.. note::` ends the same way, but prose follows it
        if stripped.endswith("::") and (not stripped.startswith("..") or "code" in stripped or "math" in stripped):
            literal_indent = indent
        yield line


def _blocks(lines: Iterable[str]) -> Iterator[list[str]]:
    """Runs of lines between blank lines, headings and the beginnings of entries, without the marks of entries."""
    block: list[str] = []
    for line in lines:
        if _UNDERLINE.match(line):
            block = block[:-1]  # the heading above it
            continue
        text = _without_entry_mark(line)
        if text != line or not text.strip():
            if block:
                yield block
            block = []
        if text.strip():
            block.append(text)
    if block:
        yield block


def _without_entry_mark(line: str) -> str:
    if _NUMPY_PARAMETER.match(line):
        return ""
    for mark in _ENTRY_MARKS:
        line = mark.sub("", line, count=1)
    return line


def _without_markup(text: str) -> str:
    text = _ROLE.sub(r"\1", text)
    text = _QUOTED.sub(r"\1", text)
    text = _EMPHASIS.sub(r"\2", text)
    text = _CITATION.sub("", text)
    return " ".join(text.replace("::", ":").split())


class Text(NamedTuple):
    """A document's name and its paragraphs."""

    name: str
    paragraphs: list[str]


def split_of(name: str) -> str:
    """The split of a document, which depends only on its name."""
    share = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") / 2**32
    if share < VALID_SHARE:
        return "valid"
    return "test" if share < VALID_SHARE + TEST_SHARE else "train"


def make_splits(documents: Iterable[Document], *, max_bytes: float = float("inf")) -> dict[str, list[Text]]:
    """Assign documents to splits without repeated paragraphs, up to `max_bytes` of text."""
    splits: dict[str, list[Text]] = {split: [] for split in SPLITS}
    seen: set[str] = set()
    num_bytes = 0
    for document in documents:
        text = Text(document.name, list(new_paragraphs(document, seen)))
        if text.paragraphs:
            splits[split_of(text.name)].append(text)
            num_bytes += sum(len(paragraph.encode()) for paragraph in text.paragraphs)
        if num_bytes >= max_bytes:
            break
    known = {sentence for text in splits["train"] for sentence in sentences_of(text)}
    for split in ("valid", "test"):
        splits[split] = [text for text in (without_known(text, known) for text in splits[split]) if text.paragraphs]
        known.update(sentence for text in splits[split] for sentence in sentences_of(text))
    return splits


def new_paragraphs(document: Document, seen: set[str]) -> Iterator[str]:
    """The paragraphs that are not in `seen`, ignoring case, digits and punctuation; they are added to it."""
    for docstring in document.docstrings:
        for paragraph in paragraphs_of(docstring):
            key = letters_of(paragraph)
            if key not in seen:
                seen.add(key)
                yield paragraph


def without_known(text: Text, known: set[str]) -> Text:
    """The document without the paragraphs that share a sentence with `known`."""
    kept = [paragraph for paragraph in text.paragraphs if known.isdisjoint(sentences_of(Text(text.name, [paragraph])))]
    return Text(text.name, kept)


def sentences_of(text: Text) -> Iterator[str]:
    """The sentences of a document with at least `MIN_SHARED_WORDS` words, reduced to letters."""
    for paragraph in text.paragraphs:
        for sentence in _SENTENCE_END.split(paragraph):
            letters = letters_of(sentence)
            if letters.count(" ") + 1 >= MIN_SHARED_WORDS:
                yield letters


def letters_of(text: str) -> str:
    """Reduce a text to lower-case letters and single spaces.

    Example: "Returns 2 items." -> "returns items".
    """
    return _NOT_LETTERS.sub(" ", text.lower()).strip()


def write_corpus(folder: Path, documents: Iterable[Document], *, max_bytes: float = float("inf")) -> dict[str, int]:
    """Write the three files; return their numbers of documents, paragraphs and bytes."""
    splits = make_splits(documents, max_bytes=max_bytes)
    counts: dict[str, int] = {}
    for split, texts in splits.items():
        if not texts:
            raise ValueError(
                f"The {split} split is empty: {max_bytes / 1e6:g} MB of text are too little. Raise --max-megabytes, "
                "or check with `roberta doctor` that numpy and torch are installed."
            )
        content = "\n\n".join("\n".join(text.paragraphs) for text in texts) + "\n"
        write_text(folder / f"{split}.txt", content)
        counts[f"{split}_documents"] = len(texts)
        counts[f"{split}_paragraphs"] = sum(len(text.paragraphs) for text in texts)
        counts[f"{split}_bytes"] = len(content.encode())
    return counts
