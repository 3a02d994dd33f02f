"""Import of InferenceX's serving configurations: from its search space and launcher settings to our recipes.

InferenceX 2026-08-22: `configs/amd-master.yaml` holds image, model, topologies and concurrencies of a key;
`benchmarks/multi_node/amd_utils/models_atom.yaml` the flags that its multi-node launcher gives a model.
"""
