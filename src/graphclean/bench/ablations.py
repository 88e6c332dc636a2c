"""The parts of the method that can be ablated."""

ABLATIONS = {
    "noise-correction": "graph.correct=false",
    "confidence": "graph.confidence=false",
    "geometry": "graph.geometry=false",
    "inst": "method.lambda_inst=0",
    "subgraph": "method.lambda_subgraph=0",
    "mixup": "method.mixup_alpha=0",
    "augmix": "training.strong_augmentation=off",
}
"""The paper's ablations, each defined by one setting."""
