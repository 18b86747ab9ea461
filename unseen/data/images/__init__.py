"""From files and drawings to batches: decode, transforms, loader; what `glyphs` is drawn with."""
