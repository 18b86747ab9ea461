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
        "GOOGLENET": "attention_ensemble",
        "Head": "head",
        "InputSpec": "recipe",
        "PRESETS": "presets",
        "SmallConv": "small_conv",
        "adapt": "lora",
        "create_backbone": "backbone",
        "create_own_network": "own_network",
        "create_preset": "presets",
        "preset_size": "presets",
    },
)
