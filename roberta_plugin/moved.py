"""Former places of what extensions, or other modules, hold now: imported as before for one version, with a warning.

Each extension names its own in its `EXTENSION` (`moved`), so they go with its folder. Modules are found by themselves;
for a name in a module that is still there, the `__getattr__` of the module asks `find_former_name`.
"""

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_PACKAGE = "roberta_plugin."
IN_TRUNK = {
    "conversion.formats": ("conversion.settings",),
    "conversion.huggingface_model": ("conversion.huggingface_parameters",),
    "data.text_inputs_files": ("data.text_inputs_lines",),
    "data.text_inputs_tables": ("data.text_inputs_columnar", "data.text_inputs_lines"),
    "models.checkpoints": ("models.state_dicts",),
}
"""Modules of the trunk that were parted -> where their other names are now."""


class MovedModules(MetaPathFinder, Loader):
    """Finds former names of modules, after all other finders have found nothing."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The specification of a module that an extension has now; None for all others."""
        if not fullname.startswith(_PACKAGE) or (place := _find_new_name(fullname)) is None:
            return None
        return ModuleSpec(fullname, self, loader_state=place, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        """Give the module the content of the one of today."""
        assert module.__spec__ is not None
        now = importlib.import_module(module.__spec__.loader_state)
        message = f"{module.__name__} is {now.__name__} now; its former name goes with the next version."
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        module.__dict__.update({name: value for name, value in vars(now).items() if not name.startswith("__")})


def install() -> None:
    """Let former names be found, once in a process."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(MovedModules())


def find_former_name(module: str, name: str) -> Any:
    """What a module of the trunk had by this name, and an extension or another module has now.

    Raises:
        AttributeError: if none has it.
    """
    from roberta_plugin.registry import all_extensions, load

    for parted in IN_TRUNK.get(module.removeprefix(_PACKAGE), ()) if name[:1] != "_" else ():
        holder = importlib.import_module(f"{_PACKAGE}{parted}")
        if name in vars(holder):
            message = f"{module}.{name} is {holder.__name__}.{name} now; its former name goes with the next version."
            warnings.warn(message, DeprecationWarning, stacklevel=3)
            return vars(holder)[name]
    former = f"{module.removeprefix(_PACKAGE)}:{name}"
    for extension in all_extensions().values() if name[:2] != "__" else ():
        if (place := extension.moved.get(former)) is not None:
            now = f"{extension.module}{place}"
            message = f"{module}.{name} is {now.replace(':', '.')} now; its former name goes with the next version."
            warnings.warn(message, DeprecationWarning, stacklevel=3)
            return load(now)
    raise AttributeError(f"{module} has no {name}")


def _find_new_name(name: str) -> str | None:
    from roberta_plugin.registry import all_extensions

    for extension in all_extensions().values():
        if (place := extension.moved.get(name.removeprefix(_PACKAGE))) is not None:
            return extension.module + place
    return None
