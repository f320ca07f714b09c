"""A clean room in one process, from two tables: the platform has clicks, the shop its sales, and an adapter
learns from both. What crosses is the bytes of a network. Labels are flipped once, at epsilon 3, before use."""

import numpy as np

from tacit import Entropy, cleanroom
from tacit.train import Outcomes, auc_value

draw, rows = np.random.default_rng(1), 6_000
site, shop = draw.integers(0, 8, rows), draw.choice(["sports", "shoes"], rows)
appeal = 1.5 * draw.normal(size=8)[site] * np.where(shop == "sports", 1, -1)
bought = draw.random(rows) < 1 / (1 + np.exp(-appeal))
known = np.where(shop == "sports", bought, np.nan)  # the platform has no sale of shoes
clicks = {"click_id": np.arange(rows), "shop": shop, "site": site, "bought": known}
own = (shop == "shoes") & bought  # what shoes has: a frame of any library, with the clicks' ids
sales = {"click_id": np.flatnonzero(own), "bought": np.ones(own.sum(), int)}

reader = cleanroom.ClickReader.of(clicks, record="click_id", advertiser="shop", labels=["bought"])
examples = reader.examples(clicks)
shared, shoes = examples.of_advertiser("sports"), examples.of_advertiser("shoes")
model = cleanroom.ConversionModel(examples.settings(dim=4, tower=(16,)), seed=1)
cleanroom.pretrain(model, shared, settings=cleanroom.LearnSettings(epochs=2, batch=256, learning_rate=1e-2))
key = cleanroom.token_key(Entropy().bytes(32), "spring")  # of both sides: it names records
table = cleanroom.labels_of_frame(sales, record="click_id", labels=["bought"], key=key)
room = cleanroom.room_in_process(table, source=Entropy(), epsilon=3)
model.add_adapter("shoes", "shoes", rank=4, seed=1)
truth = Outcomes.of_labels(bought[shop == "shoes"])
before = auc_value(truth, cleanroom.predict(model, shoes, "bought"))
plan = cleanroom.AdapterPlan(task="bought", batch=512, epochs=3, learning_rate=2e-2)
trained = cleanroom.train_adapter(model, "shoes", shoes, shoes.tokens(key), room, plan, run="spring-1")
after = auc_value(truth, cleanroom.predict(model, shoes, "bought"))
print("AUC of its clicks rises by more than .2:", after - before > 0.2)
print(trained.statement.as_text().splitlines()[0])
