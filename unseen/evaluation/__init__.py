"""From embeddings and labels to scores: neighbours, clusters, metrics, intervals."""
