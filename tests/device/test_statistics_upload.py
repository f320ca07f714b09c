"""Reports of the device client for browsers are taken by the parties, and what they count is released."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.deliver.protocol.disclosure import context_number
from tacit.entropy import Simulation
from tacit.gather.client.contributions import Contributions, Event, answer_question
from tacit.gather.client.reporter import MemoryDeviceStore, Reporter
from tacit.gather.protocol import credentials
from tacit.gather.protocol.credentials import PartyRole, check_report_tag
from tacit.gather.protocol.groups import Group
from tacit.gather.protocol.noise import ServerNoise
from tacit.gather.protocol.promises import Promise
from tacit.gather.protocol.rounds import Question
from tacit.gather.protocol.sharing import open_parts, sharing_scheme
from tacit.gather.protocol.uploads import Upload, UploadLayout
from tacit.privacy.noise.distributions import DiscreteLaplace
from tacit.schema.contexts.device_copy import hierarchy_as_json
from tacit.schema.contexts.hierarchy import Hierarchy
from tacit.services.rounds import AnnouncedRound, pack_rounds, unpack_rounds
from tests.device.test_node import OLDEST_NODE, node
from tests.support.billing_services import HERE, THERE
from tests.support.gather_rounds import PROXY_KEY, SECRET, SERVER_KEY, a_round
from tests.support.service_worlds import ENROLMENT, PROXY_URL
from tests.support.statistics_worlds import OPEN_SECONDS, TABLE, StatisticsWorld

PROGRAM = Path(__file__).with_name("make_uploads.mjs")
EPSILON = 1_000.0
"""So that noise is 0: discrete Laplace of scale 1/50 is not once in 2e21 draws."""
LAPLACE = ServerNoise(DiscreteLaplace(Fraction(40)))
PROMISE = Promise(events=10, each=10, levels=1, epsilon=Fraction(1, 2), delta=Fraction(0))


def make(devices: list[dict[str, Any]], proxy_key: bytes, server_key: bytes) -> list[Any]:
    program = node()
    if program is None:
        pytest.skip(f"NODE {OLDEST_NODE} OR NEWER IS NOT INSTALLED: no upload of the device client was made")
    asked = {"proxyKey": proxy_key.hex(), "serverKey": server_key.hex(), "devices": devices}
    found = subprocess.run(
        [program, str(PROGRAM)], input=json.dumps(asked), capture_output=True, text=True, timeout=120
    )
    assert found.returncode == 0, found.stderr
    return list(json.loads(found.stdout))


def named(number: int, secret: bytes) -> dict[str, str]:
    name = number.to_bytes(16, "big")
    return {"id": name.hex(), "key": credentials.issue_device_key(secret, name).hex()}


@pytest.mark.parametrize(("group", "cells"), [(Group.RING64, 13), (Group.RING32, 1), (Group.RING64, 9_000)])
def test_both_parts_together_are_the_counts(group: Group, cells: int) -> None:
    """Of every size of msgpack's lengths: the proxy's part has 52, 152 or 72,048 bytes."""
    round = a_round(
        noise=LAPLACE, promise=PROMISE, group=group, cells=cells, question=bytes(32), parties=100_000
    )
    values = np.zeros((4, cells), np.int64)
    values[1, 0], values[2, -1], values[3, : min(cells, 20)] = 10, 7, 1
    devices = [
        {"round": round.to_bytes().hex(), "values": row.tolist(), **named(number, SECRET)}
        for number, row in enumerate(values)
    ]
    for row, said in zip(values, make(devices, round.proxy_key, round.server_key), strict=True):
        data = bytes.fromhex(said["data"])
        upload, layout = Upload.from_bytes(data), UploadLayout.of(round)
        assert layout.fits(data)
        assert (upload.digest, upload.report_id.hex()) == (round.digest, said["report"])
        assert check_report_tag(SECRET, upload.device, upload.signed_bytes, upload.tag)
        parts = [
            open_parts(key, role, sharing_scheme(round), [(upload.report_id, sealed)], round.digest, bytes(32))
            for key, role, sealed in (
                (PROXY_KEY, PartyRole.PROXY, upload.sealed_proxy),
                (SERVER_KEY, PartyRole.SERVER, upload.sealed_server),
            )
        ]
        assert not any(part.refused.any() for part in parts)
        assert (group.lift(group.add(parts[0].shares[0], parts[1].shares[0])) == row).all()


class NoiselessWorld(StatisticsWorld):
    """A schedule whose rounds promise so little that their noise is 0."""

    def announced(self) -> tuple[bytes, AnnouncedRound]:
        """What the proxy lists, and the one round in it."""
        listed = self.client.get(f"{PROXY_URL}/rounds").content
        [found] = unpack_rounds(listed)
        return listed, found


@pytest.fixture
def world(tmp_path: Path) -> Iterator[NoiselessWorld]:
    table = TABLE.replace("epsilon = 400.0", f"epsilon = {EPSILON}")
    assert table != TABLE
    made = NoiselessWorld(tmp_path, table=table, granted=10 * EPSILON)
    try:
        made.wait_for_epoch()
        made.rounds.look()
        yield made
    finally:
        made.end()


def counts_of(question: Question, hierarchy: Hierarchy, events: list[dict[str, Any]], each: int) -> Any:
    """What Python counts of the same events, all of which are counted."""
    chosen = Contributions(
        tuple(Event(tuple(one["context"]), one["campaign"], one["clicked"]) for one in events), 20
    )
    return answer_question(
        question, chosen, lambda levels, context: context_number(hierarchy.at(context, levels)), each
    )


def event(context: tuple[str, str], campaign: int, *, clicked: bool) -> dict[str, Any]:
    return {"context": list(context), "campaign": campaign, "clicked": clicked}


def device_of(world: NoiselessWorld, listed: bytes, number: int) -> dict[str, Any]:
    hierarchy = hierarchy_as_json(world.hierarchy)
    return {"rounds": listed.hex(), "hierarchy": hierarchy, "most": EPSILON, **named(number, ENROLMENT)}


def test_what_devices_in_browsers_counted_is_released(world: NoiselessWorld) -> None:
    listed, announced = world.announced()
    round, question = announced.round, Question.of_round(announced.round, announced.question)
    campaign = int(question.ad[0])
    logs = [
        [event(HERE, campaign, clicked=True), event(HERE, campaign, clicked=False)],
        [event(THERE, campaign, clicked=True)] * 3 + [event(HERE, 999_999, clicked=True)],
        [],
        [event(HERE, campaign, clicked=False)] * 12,  # two more than a round counts
    ]
    devices = [{**device_of(world, listed, number), "events": log} for number, log in enumerate(logs)]
    expected = counts_of(question, world.hierarchy, [one for log in logs[:3] for one in log], 100)
    expected += counts_of(question, world.hierarchy, logs[3][:10], round.promise.each)
    for said in make(devices, round.proxy_key, round.server_key):
        [upload] = said["sent"]
        assert said["taken"] == 1
        assert said["left"] == [{"key": f"r{round.task}"}]  # nothing of what was counted
        path, body = upload["path"], bytes.fromhex(upload["data"])
        assert world.client.put(f"{PROXY_URL}{path}", content=body).status_code == 201
        assert world.client.put(f"{PROXY_URL}{path}", content=body).status_code in (200, 201)  # again: the same
        changed = body[:-1] + bytes([body[-1] ^ 1])
        assert world.client.put(f"{PROXY_URL}{path}", content=changed).status_code == 403
    own = np.zeros(round.cells, np.int64)
    own[0] = 1
    name = (77).to_bytes(16, "big")
    reporter = Reporter(
        name, credentials.issue_device_key(ENROLMENT, name), Simulation(1), MemoryDeviceStore(),
        proxy_key=round.proxy_key, server_key=round.server_key, simulated=True,
    )  # fmt: skip
    body = reporter.upload(round, own)  # a device of Python among them
    report = Upload.from_bytes(body).report_id.hex()
    path = f"{PROXY_URL}/rounds/{round.digest.hex()}/reports/{report}"
    assert world.client.put(path, content=body).status_code == 201
    world.now += OPEN_SECONDS + 60
    world.wait_for_result()
    result = world.counting.result(round.digest, world.now)
    assert result.count == len(logs) + 1
    assert result.values.tolist() == (expected + own).tolist()
    assert result.values.sum() > 15


def test_a_round_that_breaks_its_promise_gets_nothing(world: NoiselessWorld) -> None:
    listed, announced = world.announced()
    round, question = announced.round, Question.of_round(announced.round, announced.question)
    less = replace(round, promise=replace(round.promise, epsilon=Fraction(999)))
    device = device_of(world, listed, 1)
    events = [event(HERE, int(question.ad[0]), clicked=True)]
    for changed, most in ((less, EPSILON), (round, EPSILON - 1)):
        spelled = pack_rounds([(changed.to_bytes(), announced.question)])
        asked = {**device, "rounds": spelled.hex(), "most": most, "events": events}
        [said] = make([asked], round.proxy_key, round.server_key)
        assert (said["sent"], said["taken"]) == ([], 0)
        assert len(said["left"]) == 1  # the event, which no round has drawn
        assert said["left"][0]["clicked"] is True
