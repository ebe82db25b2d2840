"""Options of `roberta import` for adapters in peft's format."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from roberta_plugin.conversion.settings import Addition, ImportOptions
from roberta_plugin.settings import setting


@dataclass(frozen=True, kw_only=True)
class AdapterOptions(ImportOptions):
    """Options of `roberta import`."""

    adapter: Path | None = setting(
        None, "low-rank adapter in peft's format, to add to the source's weights: a folder, or org/name"
    )

    def additions(self) -> list[Addition]:
        """The adapter, after the additions of other extensions."""
        if self.adapter is None:
            return super().additions()
        from roberta_plugin.conversion.named_models import local_path
        from roberta_plugin.extensions.peft.adapter import Adapter

        return [*super().additions(), Adapter(local_path(self.adapter))]
