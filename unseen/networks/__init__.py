"""Pictures to embeddings: backbones by name, heads, ensembles."""

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
)
