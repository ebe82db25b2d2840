"""Optional packages: the extras of setup.py.

Example: require("pyarrow", extra="parquet", purpose="Reading Parquet") imports nothing and raises where it is missing.
"""

import importlib.util


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
