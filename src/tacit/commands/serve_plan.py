"""`tacit serve plan`: how long epochs should last, and how finely contexts be told, from counted traffic."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.commands.output import Subparsers, add_action, add_json_flag, print_json, print_table, spinner
from tacit.errors import BadInput

if TYPE_CHECKING:
    from tacit.deliver.server.cohorts import CohortGoal, CohortPlan, PlannedMenu, Traffic

ABOUT = """\
Choose epochs and contexts so that impressions hide each other.

A device's choice is private by itself: --epsilon, to whoever can tell whose report it is. To the ad server,
which sees shuffled batches, it tells the less, the more reports of the same menu there are in an epoch.
COUNTS says how many requests there are: a CSV file with a column per attribute of contexts and a column count.
For each length of an epoch this finds the finest contexts that have enough reports to reach --target, joins
what is too rare to what is above it, and says which share of all requests is hidden, and how much contexts
still tell.

Of the epochs that hide the most requests the shortest is chosen that keeps most of the detail (--keep): short
epochs have fresh prices and early bills, long ones finer contexts. What to write into market.toml stands below.

Counts are of requests: a device that comes k times to one menu in an epoch is k requests, and hides k times as
badly (--per-device). Counts that carry noise are planned with in Python (plan_cohorts)."""

EXAMPLES = """\
examples:
  tacit serve plan counts.csv --epsilon 3
  tacit serve plan counts.csv --epsilon 3 --target 0.5 --delta 1e-7 --days 7
  tacit serve plan counts.csv --hierarchy contexts.toml --epsilon 3 --epoch 10 --epoch 60
  tacit serve plan counts.csv --epsilon 3 --quietest 0.2        nights have a fifth of the average traffic
  tacit serve plan counts.csv --epsilon 3 --json                every menu of the plan

counts, of one day unless --days says otherwise:
  city,topic,count
  Berlin,Coffee,18200
  Berlin,Yoga,950

Without --hierarchy contexts become coarser by their columns, the last first: city and topic, city, nothing."""

MOST_EPOCH_SECONDS = 7 * 86_400


def add_parser(actions: Subparsers) -> None:
    parser = add_action(actions, EXAMPLES, "plan", "choose epochs and contexts from counted traffic", ABOUT)
    parser.add_argument("counts", type=Path, metavar="COUNTS", help="requests by context, in CSV")
    parser.add_argument(
        "--hierarchy", type=Path, metavar="FILE", help="how contexts become coarser, in TOML (tacit contexts)"
    )
    parser.add_argument("--days", default="1", metavar="N", help="days in which they were counted (default: 1)")
    parser.add_argument("--epsilon", required=True, metavar="E", help="of one choice on the device")
    parser.add_argument(
        "--target", default="1", metavar="E", help="of one choice within its shuffled batch (default: 1)"
    )
    parser.add_argument("--delta", default="1e-6", metavar="D", help="beside the target (default: 1e-6)")
    parser.add_argument(
        "--epoch",
        action="append",
        metavar="MINUTES",
        help="a length of epochs to try, as often as wanted (default: 10, 30, 60, 180, 360, 1440)",
    )
    parser.add_argument(
        "--undersized",
        default="0.01",
        metavar="P",
        help="how often a cohort may turn out too small (default: 0.01)",
    )
    parser.add_argument(
        "--quietest",
        default="1",
        metavar="SHARE",
        help="traffic of the quietest epoch, as a share of the average one (default: 1)",
    )
    parser.add_argument(
        "--per-device",
        default="1",
        metavar="K",
        help="choices of one device from one menu in an epoch, at most (default: 1)",
    )
    parser.add_argument(
        "--keep",
        default="0.9",
        metavar="SHARE",
        help="of the detail that the finest plan has, for shorter epochs (default: 0.9)",
    )
    parser.add_argument(
        "--most", type=int, default=12, metavar="N", help="menus to show; --json has all (default: 12)"
    )
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from tacit import expect
    from tacit.deliver.protocol.cuts import depth_cut
    from tacit.deliver.server.cohorts import EPOCHS, CohortGoal, CohortPlan, best_plan, plan_cohorts
    from tacit.deliver.server.traffic_file import read_traffic
    from tacit.schema.contexts.hierarchy import load_hierarchy

    goal = CohortGoal(
        expect.positive("--epsilon", args.epsilon),
        expect.positive("--target", args.target),
        expect.probability("--delta", args.delta),
        expect.probability("--undersized", args.undersized),
        _whole("--per-device", args.per_device),
    )
    epochs = sorted({_seconds(each) for each in args.epoch}) if args.epoch else list(EPOCHS)
    quietest = expect.probability("--quietest", args.quietest, one=True)
    keep = expect.probability("--keep", args.keep, zero=True, one=True)
    days = expect.positive("--days", args.days)
    expect.whole("--most", args.most, at_least=0)
    hierarchy = None if args.hierarchy is None else load_hierarchy(args.hierarchy)
    with spinner("planning"):
        traffic = read_traffic(args.counts, hierarchy, days=days)
        exact = depth_cut(traffic.tree, traffic.tree.height)
        plans = [plan_cohorts(traffic, goal, epoch, quietest=quietest) for epoch in epochs]
        fixed = [CohortPlan(traffic, goal, epoch, exact, float(quietest)) for epoch in epochs]
        chosen = best_plan(plans, keep)
    if args.json:
        print_json(_record(traffic, goal, plans, fixed, chosen))
        return 0
    _print_epochs(traffic, goal, plans, fixed, chosen)
    if chosen.hidden_share:
        _print_menus(chosen, args.most)
    else:
        _print_what_would_help(plans[-1])
    return 0


def _whole(name: str, text: str) -> int:
    from tacit import expect

    number = expect.exact(name, text)
    if number.denominator > 1:
        raise BadInput(f"expected {name} to be a whole number, got {text!r}")
    return expect.whole(name, int(number), at_least=1)


def _seconds(minutes: str) -> int:
    from tacit import expect

    seconds = 60 * expect.positive("--epoch", minutes)
    if seconds.denominator > 1 or seconds > MOST_EPOCH_SECONDS:
        raise BadInput(f"expected --epoch in minutes, whole seconds and at most 7 days, got {minutes!r}")
    return int(seconds)


def _lasting(seconds: int) -> str:
    for unit, words in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds % unit == 0:
            return f"{seconds // unit} {words}"
    return f"{seconds} s"


def _print_epochs(
    traffic: Traffic, goal: CohortGoal, plans: list[CohortPlan], fixed: list[CohortPlan], chosen: CohortPlan
) -> None:
    told = (
        f"{traffic.total:,.0f} requests per day in {len(traffic.tree.leaves()):,} contexts; a menu needs "
        f"{goal.needed:,} reports, {goal.expected:,.0f} on average"
    )
    rows = [
        (
            _lasting(plan.epoch_seconds) + (" *" if plan is chosen and plan.hidden_share else ""),
            f"{len(plan.menus):,}",
            f"{plan.hidden_share:.0%}",
            f"{plan.bits:.1f} of {plan.most_bits:.1f} bits",
            f"{exact.hidden_share:.0%}",
        )
        for plan, exact in zip(plans, fixed, strict=True)
    ]
    columns = ("epoch", "menus", "requests hidden", "contexts tell", "hidden if told exactly")
    print_table(told, columns, rows, numbers=columns)


def _print_menus(plan: CohortPlan, most: int) -> None:
    shown = plan.menus[:most]
    rows = [
        (
            _context(menu),
            ",".join(map(str, menu.node.levels)) if menu.node else "",
            f"{menu.expected:,.0f}",
            f"{menu.undersized:.1g}",
            _epsilon(menu),
        )
        for menu in shown
    ]
    columns = ("context", "levels", "reports per epoch", "too few", f"ε at δ = {float(plan.goal.delta):g}")
    if shown:
        which = f"the {len(shown)} largest of {len(plan.menus):,}" if len(shown) < len(plan.menus) else "all"
        title = f"* epochs of {_lasting(plan.epoch_seconds)}, menus: {which}"
        print_table(title, columns, rows, numbers=columns[2:])
    keys = _market_keys(plan)
    print("market.toml:")
    for key, value in keys.items():
        print(f"  {key} = {value:g}" if key == "epsilon" else f"  {key} = {value}")
    print(
        f"  and a [[menu]] for each of these {len(plan.menus):,} contexts, with levels and values (--json: all)"
    )
    print("the proxy's settings, [billing]: no hold_seconds, so that an epoch's reports leave together")


def _print_what_would_help(plan: CohortPlan) -> None:
    from tacit.deliver.server.cohorts import epsilon_within

    goal = plan.goal
    expected = plan.reports_per_epoch(plan.traffic.total)
    print(
        f"no epoch of these hides anything: all requests together make {expected:,.0f} reports in "
        f"{_lasting(plan.epoch_seconds)}, and {goal.expected:,.0f} are needed."
    )
    smaller = float(epsilon_within(goal, expected))
    print(f"what would help: --epsilon {smaller:g}, longer epochs or a larger --target; else the public lane.")


def _context(menu: PlannedMenu) -> str:
    told = menu.block.node if menu.node is None else str(menu.node)
    return f"{told}, the rest" if menu.block.without else told


def _epsilon(menu: PlannedMenu) -> str:
    from tacit.privacy.budget import format_rounded_up

    return format_rounded_up(menu.epsilon, 3)


def _market_keys(plan: CohortPlan) -> dict[str, Any]:
    return {
        "epoch_seconds": plan.epoch_seconds,
        "epsilon": float(plan.goal.epsilon),
        "smallest_cohort": plan.goal.needed,
    }


def _record(
    traffic: Traffic, goal: CohortGoal, plans: list[CohortPlan], fixed: list[CohortPlan], chosen: CohortPlan
) -> dict[str, Any]:
    return {
        "requests_per_day": traffic.total,
        "contexts": len(traffic.tree.leaves()),
        "goal": {
            "epsilon": float(goal.epsilon),
            "target": float(goal.target),
            "delta": float(goal.delta),
            "undersized": float(goal.undersized),
            "per_device": goal.per_device,
            "needed": goal.needed,
            "expected": goal.expected,
        },
        "plans": [
            {
                "epoch_seconds": plan.epoch_seconds,
                "menus": len(plan.menus),
                "hidden_share": plan.hidden_share,
                "bits": plan.bits,
                "most_bits": plan.most_bits,
                "hidden_share_if_exact": exact.hidden_share,
            }
            for plan, exact in zip(plans, fixed, strict=True)
        ],
        "chosen": {
            **_market_keys(chosen),
            "hidden_share": chosen.hidden_share,
            "levels": [
                {"levels": list(levels), "share": share} for levels, share in chosen.share_by_levels().items()
            ],
            "menus": [_menu_record(chosen, menu) for menu in chosen.menus],
        }
        if chosen.hidden_share
        else None,
    }


def _menu_record(plan: CohortPlan, menu: PlannedMenu) -> dict[str, Any]:
    nodes, node = plan.traffic.nodes, menu.node
    return {
        "levels": [] if node is None else list(node.levels),
        "values": [menu.block.node] if node is None else list(node.values),
        "without": [list(nodes[name].values) if name in nodes else [name] for name in menu.block.without],
        "requests_per_day": menu.requests_per_day,
        "expected": menu.expected,
        "undersized": menu.undersized,
        "assured": menu.assured,
        "epsilon": menu.epsilon,
        "statement": menu.statement,
    }
