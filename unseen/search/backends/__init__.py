"""Who finds the nearest vectors: exactly here, approximately with faiss, Milvus or LanceDB."""
