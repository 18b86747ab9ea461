"""Who finds the nearest vectors: exactly here, approximately with faiss, or Milvus."""
