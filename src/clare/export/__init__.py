"""Models written for other programs: ONNX, and plain timm."""
