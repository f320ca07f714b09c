"""From a DataFrame to a private model in ten lines: say which columns are public and sensitive, and epsilon.
The statement says what the model promises, and for whom. The noise is real: scores differ from run to run."""

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

import tacit

rng, rows = np.random.default_rng(0), 8_000  # made-up visits: readers of news click more, and so do the old
frame = pd.DataFrame({"site": rng.choice(["news", "games"], rows), "age": rng.integers(18, 80, rows)})
chance = np.where(frame.site == "news", 0.5, 0.1) * np.where(frame.age > 63, 1.5, 0.8)
frame["clicked"] = rng.random(rows) < chance
train, test = frame[:6_000], frame[6_000:]

model = tacit.Classifier("logistic", epsilon=2, public=["site"], sensitive=["age"]).fit(train, "clicked")
auc = roc_auc_score(test.clicked, model.predict_proba(test[["site", "age"]])[:, 1])
print(model.statement_.as_text("This model").splitlines()[0])
print("AUC on other visits above .7:", auc > 0.7)
