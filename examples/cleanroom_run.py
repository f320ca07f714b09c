"""A clean room in one process: the platform has features, the room purchases, and an adapter learns from both.
What crosses is the bytes of a network. The room flips each label once, at epsilon 3, before it is used."""

import numpy as np

from tacit import Entropy, cleanroom
from tacit.train import Outcomes, auc_value

draw, rows = np.random.default_rng(1), 6_000
site = draw.integers(0, 8, (rows, 1))
advertiser = draw.integers(1, 3, rows)  # 1 shares its purchases, 2 does not, and its customers are others
appeal = 1.5 * draw.normal(size=8)[site[:, 0]] * np.where(advertiser == 1, 1, -1)
bought = draw.random(rows) < 1 / (1 + np.exp(-appeal))
clicks = cleanroom.ConversionExamples(
    fields=site, sizes=(8,), advertiser=advertiser, records=np.arange(rows, dtype=np.uint64),
    tasks={"conversion": bought.astype(np.uint8)}, numbers=np.zeros((rows, 0), np.float32),
    sequences=np.zeros((rows, 1, 0), np.int64), sequence_sizes=(), lengths=np.zeros(rows, np.int64),
)  # fmt: skip
shared, shoes = clicks.of_advertiser(1), clicks.of_advertiser(2)
model = cleanroom.ConversionModel(clicks.settings(dim=4, tower=(16,)), seed=1)
learning = cleanroom.LearnSettings(epochs=2, batch=256, learning_rate=1e-2)
cleanroom.pretrain(model, shared, settings=learning)

entropy, labels = Entropy(), shoes.labels("conversion")
names = cleanroom.tokens(shoes.records, cleanroom.token_key(entropy.bytes(32), "spring"))  # of both sides
room = cleanroom.room_in_process(names, labels[:, None], source=entropy, epsilon=3)
model.add_adapter("shoes", advertiser=2, rank=4, seed=1)
before = auc_value(Outcomes.of_labels(labels), cleanroom.predict(model, shoes, "conversion"))
plan = cleanroom.AdapterPlan(batch=512, epochs=3, learning_rate=2e-2)
trained = cleanroom.train_adapter(model, "shoes", shoes, names, room, plan, run="spring-1")
after = auc_value(Outcomes.of_labels(labels), cleanroom.predict(model, shoes, "conversion"))
print("AUC of its clicks rises by more than .2:", after - before > 0.2)
print(trained.statement.as_text().splitlines()[0])
