"""Those of the five private jobs that Opacus does."""

from work import BATCH, DELTA, EPSILON, NOISE, ROWS, SITES, STEPS, TEST, TRAIN, report


def logistic():
    """A logistic regression of a frame: one layer of torch."""
    import numpy as np
    import pandas as pd
    import torch
    from opacus import PrivacyEngine
    from sklearn.metrics import roc_auc_score
    from torch.utils.data import DataLoader, TensorDataset

    def features(frame):
        sites = pd.get_dummies(pd.Categorical(frame.site, SITES)).to_numpy(float)
        return torch.from_numpy(np.c_[sites, frame.hour / 23, (frame.age - 18) / 61]).float()

    labels = torch.tensor(TRAIN.clicked.to_numpy(), dtype=torch.float32)
    loader = DataLoader(TensorDataset(features(TRAIN), labels), batch_size=BATCH)
    model = torch.nn.Linear(len(SITES) + 2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
    epochs, engine = 5, PrivacyEngine()
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=model, optimizer=optimizer, data_loader=loader,
        target_epsilon=EPSILON, target_delta=DELTA, epochs=epochs, max_grad_norm=1.0,
    )  # fmt: skip
    loss = torch.nn.BCEWithLogitsLoss()
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss(model(x)[:, 0], y).backward()
            optimizer.step()
    with torch.no_grad():
        return f"AUC {roc_auc_score(TEST.clicked, model(features(TEST))[:, 0]):.3f}"


def schedule():
    """Epsilon of a schedule of DP-SGD."""
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.history = [(NOISE, BATCH / ROWS, STEPS)]
    return f"epsilon {accountant.get_epsilon(delta=DELTA):.4f}"


def mlp():
    """A small network of torch by DP-SGD."""
    import numpy as np
    import pandas as pd
    import torch
    from opacus import PrivacyEngine
    from sklearn.metrics import roc_auc_score
    from torch.utils.data import DataLoader, TensorDataset

    def features(frame):
        sites = pd.get_dummies(pd.Categorical(frame.site, SITES)).to_numpy(float)
        return torch.from_numpy(np.c_[sites, frame.hour / 23, (frame.age - 18) / 61]).float()

    labels = torch.tensor(TRAIN.clicked.to_numpy(), dtype=torch.float32)
    loader = DataLoader(TensorDataset(features(TRAIN), labels), batch_size=BATCH)
    model = torch.nn.Sequential(torch.nn.Linear(len(SITES) + 2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    epochs, engine = 5, PrivacyEngine()
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=model, optimizer=optimizer, data_loader=loader,
        target_epsilon=EPSILON, target_delta=DELTA, epochs=epochs, max_grad_norm=1.0,
    )  # fmt: skip
    loss = torch.nn.BCEWithLogitsLoss()
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss(model(x)[:, 0], y).backward()
            optimizer.step()
    with torch.no_grad():
        return f"AUC {roc_auc_score(TEST.clicked, model(features(TEST))[:, 0]):.3f}"


if __name__ == "__main__":
    report(logistic, schedule, mlp)
