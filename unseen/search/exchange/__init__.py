"""An index as other programs keep vectors: Parquet, LanceDB, Milvus, plain arrays; and back."""
