"""What is trained: models in two towers, public and sensitive, that can do without the sensitive one.

model                   what training asks of a model; predictions
factorization_machine   the factorization machine and logistic regression, in closed form
architectures           the networks' shapes; every architecture by name, and what it can be trained by
two_tower_network       the network itself (torch), with its gradients' norms by example and by group
attention_network       the network with attention over histories (torch)
saving                  models on disk; onnx_export: the same for other runtimes;
                        device_export: for devices in JavaScript
"""
