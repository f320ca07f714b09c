"""A private choice in a web handler: a shop that knows its visitor picks one of an ad server's candidates.
Only the choice goes back; each visitor has a wallet of epsilon 4 a day, and then the public best is shown."""

import asyncio
import time

import httpx
import numpy as np
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from tacit import Entropy
from tacit.deliver import BudgetPolicy, Planner, Spread, plan_request
from tacit.privacy import Window

planner, words = Planner(Spread(0.5)), Entropy().words
today = Window.days(1, origin=int(time.time()))
policy = BudgetPolicy(total=4, ladder=(2,), threshold=0, window=today)
wallets = {"ann": policy.wallet()}  # kept beside the visitor's profile, and stored before a choice is answered
tastes = {"ann": np.array([[0.20, 0.48, 0.70]])}  # what only the shop knows of her


async def choose(request):
    visitor, public = request.path_params["visitor"], (await request.json())["scores"]
    plan, wallets[visitor] = plan_request(public, planner, policy, wallets[visitor], now=int(time.time()))
    chosen = plan.choose(tastes[visitor], words)
    return JSONResponse({"chosen": int(chosen[0]), "epsilon": plan.epsilon_spent})


async def main():
    app = Starlette(routes=[Route("/choose/{visitor}", choose, methods=["POST"])])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
        for _ in range(3):
            answer = (await client.post("/choose/ann", json={"scores": [0.50, 0.45, 0.41]})).json()
            print("one of three:", answer["chosen"] in range(3), "at epsilon", round(answer["epsilon"], 6))
    print("with nothing left, the public best:", answer["chosen"] == 0)


asyncio.run(main())
