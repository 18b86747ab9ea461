"""Pictures to embeddings: backbones by name, heads, ensembles. Each is imported when it is asked
for."""

from unseen.names import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "AttentionEnsemble": "attention_ensemble",
        "Backbone": "backbone",
        "BnInception": "bn_inception",
        "EmbeddingNetwork": "network",
        "Head": "head",
        "InputSpec": "recipe",
        "SmallConv": "small_conv",
        "create_backbone": "backbone",
    },
    ours={
        "GOOGLENET": "attention_ensemble",
        "PRESETS": "presets",
        "adapt": "lora",
        "create_own_network": "own_network",
        "create_preset": "presets",
        "cut_network": "split",
        "passages": "split",
        "preset_size": "presets",
    },
)
