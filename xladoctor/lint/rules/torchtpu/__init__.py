"""XLA860 to XLA869: what TorchTPU and TorchNeuron refuse or need, unlike torch_xla."""
