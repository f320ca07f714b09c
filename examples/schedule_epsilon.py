"""Epsilon of a DP-SGD schedule before anything is trained, and the noise that a wanted epsilon needs.
The relation is always named: replacing a record changes two, so it costs more than adding or removing one."""

import tacit
from tacit.privacy import Composed, Relation, SubsampledGaussian

rows, batch, epochs, delta = 60_000, 256, 15, 1e-5
sampling = {"sampling_probability": batch / rows, "steps": epochs * rows // batch}
schedule = SubsampledGaussian(noise_multiplier=1.1, **sampling)
for relation in (Relation.ADD_REMOVE, Relation.REPLACE_ONE):
    print(f"{relation}: epsilon {tacit.epsilon(schedule, delta=delta, relation=relation):.3f}")

noisier = SubsampledGaussian(noise_multiplier=2.0, **sampling)
both = tacit.epsilon(Composed((schedule, noisier)), delta=delta, relation=Relation.ADD_REMOVE)
print(f"and as many steps again with more noise: epsilon {both:.3f}")

noise = tacit.noise_multiplier(epsilon=1, delta=delta, relation=Relation.ADD_REMOVE, **sampling)
print(f"epsilon 1 in the same steps: noise multiplier {noise:.3f}")
