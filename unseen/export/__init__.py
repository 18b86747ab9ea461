"""A trained run for other programs: ONNX, a torch program, a bundle with a model card."""
