"""Click and conversion models under differential privacy: label DP by unit, DP-SGD, and the Hybrid of both."""
