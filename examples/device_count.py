"""A count over a thousand devices: each report is split between a proxy and a server, and neither can read it.
The published counts carry noise for epsilon 1 per device; beside them is the truth, which nobody has."""

import numpy as np

from tacit import MemoryLedger, Simulation, gather
from tacit.privacy import Line, Relation, Unit, UnitKind
from tacit.schema import Sequence, Steps, Tree

DEVICES, PLACES = 1_000, ["lake", "mall", "museum", "stadium"]
where = np.random.default_rng(0).choice(PLACES, DEVICES, p=[0.5, 0.3, 0.15, 0.05]).tolist()  # synthetic
tree = Tree.of({"anywhere": None} | dict.fromkeys(PLACES, "anywhere"))
nodes = gather.public_nodes(Sequence((Steps("place", tree),), ((0,),)), {"place": PLACES}).only([(0,)])

once = gather.Contribution(events=1, each=1, totals_only=True)
run = gather.plan_run(contribution=once, levels=1, parties=DEVICES, epsilon=1)
ledgers = MemoryLedger(), MemoryLedger()  # the proxy's and the server's: each pays for what it lets out
for ledger in ledgers:
    ledger.grant(Line("visits", Unit(UnitKind.DEVICE), Relation.ZERO_OUT), run.cost)
parties = gather.PartyStores(gather.MemoryProxyStore(), gather.MemoryServerStore(), *ledgers)
events = [[gather.Event((place,), ad=0, clicked=False)] for place in where]
source = Simulation("a page to print")  # the same noise each time; Entropy() for a promise
counts = gather.count_on_devices("monday", nodes, 0, run, events, parties, source, scope="visits")

totals, margin = counts.at((0,)).total, 1.96 * run.published_sd(DEVICES)
for place, count in zip(PLACES, totals[nodes.locate((0,), {"place": PLACES})], strict=True):
    within = f"{count - margin:.0f} to {count + margin:.0f}"
    print(f"{place:8}{count:4.0f}, about 95% sure to be {within}; truly {where.count(place)}")
