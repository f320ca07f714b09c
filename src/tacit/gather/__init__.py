"""Counts over people's devices, through a proxy and a server of which neither sees a device's counts.

`protocol`  what the parties share, and all that they share
`client`    a device: which of its events count, its answer to a question, its one upload per round
`proxy`     takes uploads, holds masked vectors, adds noise
`server`    holds the seeds of the masks, adds noise, releases
`estimate`  noise and accounting of a run, and statistics along a hierarchy from what rounds released
`simulate`  many devices and both parties in one process
`audit`     whole rounds, audited as the server sees them
"""

from typing import TYPE_CHECKING

from tacit.exports import front_door

if TYPE_CHECKING:
    from tacit.gather.client.contributions import Contributions, Event, answer_question
    from tacit.gather.client.reporter import MemoryDeviceStore, Reporter
    from tacit.gather.estimate.plan import RunPlan, plan_run
    from tacit.gather.estimate.published_noise import AboveNoise, LargestTotals
    from tacit.gather.estimate.top_down import GatherTask, TopDownRun, gather_counts, public_nodes
    from tacit.gather.protocol.credentials import SealingKey, issue_device_key
    from tacit.gather.protocol.promises import Contribution
    from tacit.gather.protocol.rounds import Question, Round
    from tacit.gather.proxy.party import Proxy, ServerLink, drive
    from tacit.gather.server.party import Server
    from tacit.gather.simulate.memory import MemoryProxyStore, MemoryServerStore
    from tacit.gather.simulate.rounds import PartyStores
    from tacit.gather.simulate.runs import count_on_devices
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "client.contributions": "Contributions Event answer_question",
            "client.reporter": "MemoryDeviceStore Reporter",
            "estimate.plan": "RunPlan plan_run",
            "estimate.published_noise": "AboveNoise LargestTotals",
            "estimate.top_down": "GatherTask TopDownRun gather_counts public_nodes",
            "protocol.credentials": "SealingKey issue_device_key",
            "protocol.promises": "Contribution",
            "protocol.rounds": "Question Round",
            "proxy.party": "Proxy ServerLink drive",
            "server.party": "Server",
            "simulate.memory": "MemoryProxyStore MemoryServerStore",
            "simulate.rounds": "PartyStores",
            "simulate.runs": "count_on_devices",
        },
    )

__all__ = [
    "AboveNoise", "Contribution", "Contributions", "Event", "GatherTask", "LargestTotals", "MemoryDeviceStore",
    "MemoryProxyStore", "MemoryServerStore", "PartyStores", "Proxy", "Question", "Reporter", "Round", "RunPlan",
    "SealingKey", "Server", "ServerLink", "TopDownRun", "answer_question", "count_on_devices", "drive",
    "gather_counts", "issue_device_key", "plan_run", "public_nodes",
]  # fmt: skip
