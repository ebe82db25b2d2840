"""Packages that may be there or not: the extras of setup.py, and the kinds of fairseq.

Example: require("pyarrow", extra="parquet", purpose="Reading Parquet") imports nothing and raises where it is missing.
"""

import importlib.util
from importlib import metadata

FAIRSEQS = ("ve-fairseq", "fairseq-fixed", "fairseq")
"""Packages that import as `fairseq`: setup.py requires the first, and the others serve as well."""


def require(*packages: str, extra: str, purpose: str) -> None:
    """Refuse `purpose` unless all `packages` can be imported."""
    missing = [name for name in packages if not _is_installed(name)]
    if missing:
        raise ValueError(
            f"{purpose} needs {' and '.join(missing)}, not installed here: pip install {' '.join(missing)} (in a "
            f"clone, with -c .constraints.txt), or 'roberta_plugin[{extra}]'."
        )


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # of a name such as backports.zstd, not even the first part is there
        return False


def version_of(package: str) -> str | None:
    """The version of a package, None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def installed_fairseqs() -> dict[str, str]:
    """The kinds of fairseq in this environment, with their versions; one, if all is well."""
    return {name: version for name in FAIRSEQS if (version := version_of(name)) is not None}
