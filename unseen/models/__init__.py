"""Images to embeddings: backbones by name, heads, ensembles. Each is imported when it is asked
for."""

from unseen.core.names import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "AttentionEnsemble": "attention_ensemble",
        "Backbone": "backbone",
        "BnInception": "bn_inception",
        "EmbeddingNetwork": "network",
        "Head": "head",
        "InputSpec": "body_spec",
        "SmallConv": "small_conv",
        "create_backbone": "backbone",
    },
    ours={
        "GOOGLENET": "attention_ensemble",
        "PRESETS": "presets",
        "adapt": "lora",
        "create_custom_network": "custom_network",
        "create_preset": "presets",
        "split_network": "freezing",
        "passages": "freezing",
        "preset_size": "presets",
    },
)
