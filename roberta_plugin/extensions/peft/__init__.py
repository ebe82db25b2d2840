"""Low-rank adapters in peft's format: `roberta export --to peft`, and `roberta import --adapter`.

adapter   a model's adapters and head <-> a folder of peft
options   options of roberta import

The examples are in README.md.
"""

from roberta_plugin.registry import Extension, FormatEntry

EXTENSION = Extension(
    "peft",
    __name__,
    position=120,
    moved={"conversion.peft_adapter": ".adapter"},
    formats={
        "peft": FormatEntry(
            ".adapter:PeftFormat",
            marks=("adapter_config.json",),
            why_not_alone="has adapters of peft (adapter_config.json) without the model that they adapt: use `roberta "
            "import MODEL --adapter {path}`.",
            weights=("adapter_model.safetensors",),
            files=("adapter_config.json", "adapter_model.safetensors"),
        )
    },
    import_options={"peft": ".options:AdapterOptions"},
)
