"""A packed Python environment, for tests: a venv in a tar archive, as venv-pack writes it."""

import sys
import tarfile
from pathlib import Path


def pack_environment(
    folder: Path, *, archive: str = "env.tar.gz", paths: tuple[Path, ...] = (), **scripts: str
) -> Path:
    """Pack an environment with a module `marker`.

    Args:
        folder: to write to.
        archive: its name.
        paths: further folders that its Python imports from.
        scripts: texts of files in bin/, by name; `_` in a name stands for `-`.
    """
    packed = folder / "environment-to-pack"
    site = packed / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    site.mkdir(parents=True)
    (site / "marker.py").write_text("")
    (site / "further.pth").write_text("".join(f"{path}\n" for path in paths))
    (packed / "bin").mkdir()
    base = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    (packed / "bin" / "python").symlink_to(base)
    (packed / "pyvenv.cfg").write_text(f"home = {base.parent}\n")
    for name, text in scripts.items():
        (packed / "bin" / name.replace("_", "-")).write_text(text)
    with tarfile.open(folder / archive, "w:gz" if archive.endswith("gz") else "w") as file:
        file.add(packed, arcname=".")
    return folder / archive
