"""Delivery: a menu of candidates at public prices from the server, a private choice among them on the device.

campaigns what advertisers hand in: bids on contexts, schedules, budgets, caps
consent   what consent strings of pages and apps say: whether a choice may be personal
protocol  what server and device both know, all public: cuts of contexts, menus, prices, forecasts, plans
server    click rates from counts, values of ads, which ads to send for a disclosed context, logs of choices
device    exact context and history, private scores, wallet, the reported choice and the one that stays local
auction   many requests at once: blocks, prices, choice rules, metrics, markets, bidders' incentives
audit     choices as devices prepare them, held to what their wallets paid

`server` and `device` share only `protocol`; `auction`, which stands for a server and many devices, may use
all three.
"""

from typing import TYPE_CHECKING

from tacit.exports import front_door

if TYPE_CHECKING:
    from tacit.deliver.auction.blocks import AuctionBlock, PublicCandidates, Rates, make_offers
    from tacit.deliver.auction.choices import Greedy, NonPersonalised, TopChoiceRule
    from tacit.deliver.auction.config import SimulationConfig, build_arms, load_simulation
    from tacit.deliver.auction.devices import ExactDevices, PlannedDevices, PublicDevices, choose_for_devices
    from tacit.deliver.auction.incentives import measure_shading
    from tacit.deliver.auction.logs import AuctionLog, AuctionLogColumns, generated_blocks, logged_blocks
    from tacit.deliver.auction.market import Arm, MarketResults, measure, show_block
    from tacit.deliver.auction.planned_choices import budget_rule, forecast_block, planned_rule
    from tacit.deliver.auction.simulation import SimulatedMarket, run_simulation
    from tacit.deliver.consent.signals import ConsentSignals, decide_consent
    from tacit.deliver.device.account import DeviceAccount, DeviceLimits
    from tacit.deliver.device.agent import AdDevice
    from tacit.deliver.device.choice import (
        HistoryRates,
        choose_privately,
        learn_policy,
        plan_request,
        prepare_choice,
    )
    from tacit.deliver.device.context import ClickHistory, DeviceContext
    from tacit.deliver.device.fleet import DeviceFleet
    from tacit.deliver.device.journal import MemoryJournal
    from tacit.deliver.device.local_choice import AdCache, choose_locally
    from tacit.deliver.device.outcomes import ShownAd
    from tacit.deliver.device.packs import PackShelf
    from tacit.deliver.device.parties import AdChannel, PartyKeys
    from tacit.deliver.device.rates import ModelRates
    from tacit.deliver.device.ratio_report import menu_ratio_bin, ratio_bin
    from tacit.deliver.device.settings import CutDisclosure, DeviceSettings, StatisticsConsent
    from tacit.deliver.device.shown_log import MemoryShownLog, RoundFamily, ShownEvent
    from tacit.deliver.device.wallet import BudgetPolicy, Wallet
    from tacit.deliver.protocol.cuts import (
        CutBlock,
        context_tree,
        disclose_block,
        finest_cut,
        finest_cut_with_remainders,
        node_name,
        nodes_by_name,
    )
    from tacit.deliver.protocol.disclosure import CutMenu, DisclosureLevel, Requirement
    from tacit.deliver.protocol.factor_laws import FewLiked, HeavyTails, ObservedRatios, SomeKnown, Spread
    from tacit.deliver.protocol.menu import Menu
    from tacit.deliver.protocol.minimum_users import MinimumUsers, discrete_laplace_margin, normal_margin
    from tacit.deliver.protocol.packs import FrequencyCap, MenuPack, PackedCampaign
    from tacit.deliver.protocol.plans import ChoicePlan, Planner, plan_choice
    from tacit.deliver.protocol.priced_menus import price_list
    from tacit.deliver.protocol.prices import FirstPrice, Rules, SecondPrice
    from tacit.deliver.protocol.priors import (
        ContextRatios,
        Favourite,
        LearntPrior,
        Mixture,
        prior_as_json,
        read_prior,
    )
    from tacit.deliver.protocol.slate_plans import plan_slate
    from tacit.deliver.server.candidates import CandidateServer, price_menu
    from tacit.deliver.server.choice_logs import choice_table, debias_choices
    from tacit.deliver.server.cohorts import CohortGoal, CohortPlan, Traffic, best_plan, plan_cohorts
    from tacit.deliver.server.moment_shrinkage import MomentShrinkage
    from tacit.deliver.server.pacing import (
        CampaignMoney,
        PacedMenu,
        PacingSettings,
        leave_out,
        limit_tokens,
    )
    from tacit.deliver.server.prior_evidence import PriorEvidence, ReportedRanks
    from tacit.deliver.server.selection import IncrementalSelection, candidates_for_load, select_ads
    from tacit.deliver.server.shrinkage import BackOff, Shrinkage
    from tacit.deliver.server.traffic_file import read_traffic
    from tacit.deliver.server.values import Bid
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "auction.blocks": "AuctionBlock PublicCandidates Rates make_offers",
            "auction.choices": "Greedy NonPersonalised TopChoiceRule",
            "auction.config": "SimulationConfig build_arms load_simulation",
            "auction.devices": "ExactDevices PlannedDevices PublicDevices choose_for_devices",
            "auction.incentives": "measure_shading",
            "auction.logs": "AuctionLog AuctionLogColumns generated_blocks logged_blocks",
            "auction.market": "Arm MarketResults measure show_block",
            "auction.planned_choices": "budget_rule forecast_block planned_rule",
            "auction.simulation": "SimulatedMarket run_simulation",
            "consent.signals": "ConsentSignals decide_consent",
            "device.account": "DeviceAccount DeviceLimits",
            "device.agent": "AdDevice",
            "device.choice": "HistoryRates choose_privately learn_policy plan_request prepare_choice",
            "device.context": "ClickHistory DeviceContext",
            "device.fleet": "DeviceFleet",
            "device.journal": "MemoryJournal",
            "device.local_choice": "AdCache choose_locally",
            "device.outcomes": "ShownAd",
            "device.packs": "PackShelf",
            "device.parties": "AdChannel PartyKeys",
            "device.rates": "ModelRates",
            "device.ratio_report": "menu_ratio_bin ratio_bin",
            "device.settings": "CutDisclosure DeviceSettings StatisticsConsent",
            "device.shown_log": "MemoryShownLog RoundFamily ShownEvent",
            "device.wallet": "BudgetPolicy Wallet",
            "protocol.cuts": (
                "CutBlock context_tree disclose_block finest_cut finest_cut_with_remainders node_name"
                " nodes_by_name"
            ),
            "protocol.disclosure": "CutMenu DisclosureLevel Requirement",
            "protocol.factor_laws": "FewLiked HeavyTails ObservedRatios SomeKnown Spread",
            "protocol.menu": "Menu",
            "protocol.minimum_users": "MinimumUsers discrete_laplace_margin normal_margin",
            "protocol.packs": "FrequencyCap MenuPack PackedCampaign",
            "protocol.plans": "ChoicePlan Planner plan_choice",
            "protocol.priced_menus": "price_list",
            "protocol.prices": "FirstPrice Rules SecondPrice",
            "protocol.priors": "ContextRatios Favourite LearntPrior Mixture prior_as_json read_prior",
            "protocol.slate_plans": "plan_slate",
            "server.candidates": "CandidateServer price_menu",
            "server.choice_logs": "choice_table debias_choices",
            "server.cohorts": "CohortGoal CohortPlan Traffic best_plan plan_cohorts",
            "server.moment_shrinkage": "MomentShrinkage",
            "server.pacing": "CampaignMoney PacedMenu PacingSettings leave_out limit_tokens",
            "server.prior_evidence": "PriorEvidence ReportedRanks",
            "server.selection": "IncrementalSelection candidates_for_load select_ads",
            "server.shrinkage": "BackOff Shrinkage",
            "server.traffic_file": "read_traffic",
            "server.values": "Bid",
        },
    )

__all__ = [
    "AdCache", "AdChannel", "AdDevice", "Arm", "AuctionBlock", "AuctionLog", "AuctionLogColumns",
    "BackOff", "Bid", "BudgetPolicy", "CampaignMoney", "CandidateServer", "ChoicePlan", "ClickHistory",
    "CohortGoal",
    "CohortPlan", "ConsentSignals", "ContextRatios", "CutBlock", "CutDisclosure", "CutMenu", "DeviceAccount",
    "DeviceContext", "DeviceFleet", "DeviceLimits", "DeviceSettings", "DisclosureLevel", "ExactDevices",
    "Favourite", "FewLiked", "FirstPrice", "FrequencyCap", "Greedy", "HeavyTails", "HistoryRates",
    "IncrementalSelection", "LearntPrior", "MarketResults", "MemoryJournal", "MemoryShownLog", "Menu",
    "MenuPack", "MinimumUsers", "Mixture", "ModelRates", "MomentShrinkage", "NonPersonalised",
    "ObservedRatios", "PacedMenu", "PacingSettings", "PackShelf", "PackedCampaign", "PartyKeys",
    "PlannedDevices", "Planner",
    "PriorEvidence", "PublicCandidates", "PublicDevices", "Rates", "ReportedRanks", "Requirement",
    "RoundFamily", "Rules", "SecondPrice", "ShownAd", "ShownEvent", "Shrinkage", "SimulatedMarket",
    "SimulationConfig", "SomeKnown", "Spread", "StatisticsConsent", "TopChoiceRule", "Traffic", "Wallet",
    "best_plan", "budget_rule",
    "build_arms", "candidates_for_load", "choice_table", "choose_for_devices", "choose_locally",
    "choose_privately", "context_tree", "debias_choices", "decide_consent", "disclose_block",
    "discrete_laplace_margin", "finest_cut", "finest_cut_with_remainders", "forecast_block",
    "generated_blocks", "learn_policy", "leave_out", "limit_tokens",
    "load_simulation", "logged_blocks", "make_offers", "measure", "measure_shading", "menu_ratio_bin",
    "node_name", "nodes_by_name", "normal_margin", "plan_choice", "plan_cohorts", "plan_request",
    "plan_slate", "planned_rule", "prepare_choice", "price_list", "price_menu", "prior_as_json", "ratio_bin",
    "read_prior", "read_traffic", "run_simulation", "select_ads", "show_block",
]  # fmt: skip
