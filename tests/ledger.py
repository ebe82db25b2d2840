"""The ledger of promises, .github/LEDGER.md: `python -m tests.ledger` writes it.

What cannot be read from the code is in `SOURCES`: who asks for an extension in public, and its page of the documents.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGE = REPOSITORY / "roberta_plugin"
PAGE = REPOSITORY / ".github" / "LEDGER.md"
OPTIONS = ("setting", "option", "switch")
"""The functions that make a field of a dataclass an option."""
_EXAMPLES = "examples/README."
SOURCES = {
    "bert_pairs": ("the paper, section 4.2 and Table 2; fairseq#2816", f"{_EXAMPLES}pretraining.md"),
    "character_bpe": ("the paper, section 4.4", f"{_EXAMPLES}tokenizer_and_data.md"),
    "choices": ("the paper, section 5.3; fairseq's examples/roberta/commonsense_qa", f"{_EXAMPLES}benchmarks.md"),
    "embeddings": ("NeoBERT's contrastive training and MTEB; sentence-transformers", f"{_EXAMPLES}embeddings.md"),
    "masks": ("fairseq's fill_mask; scores of BabyLM, NeoBERT's pseudo_perplexity.py", f"{_EXAMPLES}python.md"),
    "modernbert": ("ModernBERT, NeoBERT", f"{_EXAMPLES}conversion.md"),
    "onnx": ("sentence-transformers#46, #631, #668, #2295", f"{_EXAMPLES}conversion.md"),
    "own_tables": ("bert#151; simpletransformers", f"{_EXAMPLES}custom_task.md"),
    "peft": ("peft#310, #2422; sentence-transformers#3980", f"{_EXAMPLES}custom_task.md"),
    "pronouns": ("the paper, section 5.1; fairseq's examples/roberta/wsc", f"{_EXAMPLES}benchmarks.md"),
    "sentence_transformers": ("sentence-transformers", f"{_EXAMPLES}embeddings.md"),
    "spans": ("the paper, section 5.2", f"{_EXAMPLES}benchmarks.md"),
    "studies": ("the paper's Tables 1 to 3; no public request is known", f"{_EXAMPLES}studies.md"),
    "summaries": ("Liu and Lapata 2019; sentence-transformers#2175", f"{_EXAMPLES}summaries.md"),
    "tagging": ("ModernBERT#149, #239; transformers#1216, #1275", f"{_EXAMPLES}tagging.md"),
    "texts": ("the paper, section 5.1; XLM-R's paper, section 5.2", f"{_EXAMPLES}benchmarks.md"),
    "vocabulary_change": ("transformers#237, #1413; bert#9; tokenizers#1160", f"{_EXAMPLES}pretraining.md"),
}
"""Extension -> who asks for it, its page."""
HEAD = """# Ledger

Each promise, where it is kept, and who asked for it. `python -m tests.ledger` writes this page from the folders and from
`SOURCES` in [tests/ledger.py](../tests/ledger.py). An option belongs to the folder of the dataclass that declares it.
What nobody asks for can be withdrawn: [each extension can be deleted](CONTRIBUTING.md#the-deletion-test).

"""


def folders(parent: Path) -> list[str]:
    """The names of the packages in a folder."""
    return sorted(path.parent.name for path in parent.glob("*/__init__.py"))


def options_of(path: Path) -> Iterator[str]:
    """CLASS.NAME of each option that a module declares; makers of options may be functions of the module."""
    tree = ast.parse(path.read_text())
    makers = {*OPTIONS, *(each.name for each in tree.body if isinstance(each, ast.FunctionDef) and _calls(each))}
    for node in ast.walk(tree):
        for item in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(item, ast.AnnAssign) and _name_of(item.value) in makers:
                yield f"{node.name}.{ast.unparse(item.target)}"


def options_without_class(path: Path) -> list[str]:
    """The options that a module makes outside of classes and functions, which have no owner."""
    body = ast.parse(path.read_text()).body
    return [call for node in body if not isinstance(node, ast.ClassDef | ast.FunctionDef) for call in _calls(node)]


def _calls(node: ast.AST) -> list[str]:
    return [ast.unparse(each)[:60] for each in ast.walk(node) if _name_of(each) in OPTIONS]


def _name_of(node: ast.AST | None) -> str:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


def _row(folder: Path, *more: str) -> str:
    paths = folder.glob("*.py") if folder == PACKAGE else folder.rglob("*.py")
    count = sum(len(list(options_of(path))) for path in paths)
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    promise = " ".join(text.split("\n\n")[0].split()).rstrip(".:")
    name = folder.relative_to(PACKAGE.parent).as_posix()
    return f"| {promise} | [{name}](../{name}) | {count} | {' | '.join(more)} |".replace(" |  |", " |")


def table() -> str:
    """The whole page."""
    rows = ["| extension | folder | options | asked for by | page |", "|---|---|---|---|---|"]
    for name in folders(PACKAGE / "extensions"):
        source, page = SOURCES[name]
        rows.append(_row(PACKAGE / "extensions" / name, source, f"[{page.split('/')[-1]}](../{page})"))
    trunk = ["| trunk | folder | options |", "|---|---|---|"]
    trunk += [_row(PACKAGE / name) for name in folders(PACKAGE) if name != "extensions"]
    return HEAD + "\n".join([*rows, "", *trunk, ""])


if __name__ == "__main__":
    PAGE.write_text(table())
