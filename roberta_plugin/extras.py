"""Optional packages: the extras of setup.py.

Example: require("pyarrow", extra="parquet", purpose="Reading Parquet") imports nothing and raises where it is missing.
"""

import importlib.util


def require(*packages: str, extra: str, purpose: str) -> None:
    """Refuse `purpose` unless all `packages` can be imported."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise ValueError(
            f"{purpose} needs {' and '.join(missing)}, not installed here: pip install {' '.join(missing)} (in a "
            f"clone, with -c .constraints.txt), or 'roberta_plugin[{extra}]'."
        )
