"""Content filters: eight subscribers each want an eighth of the trades, and get no others."""

import asyncio
from contextlib import AsyncExitStack

import gossamer

SUBSCRIBERS, TRADES = 8, 800


async def main() -> None:
    async with AsyncExitStack() as stack:
        exchange = await stack.enter_async_context(gossamer.Node())
        await exchange.advertise("trades", "symbol STRING, price DOUBLE, desk INT")

        taken = [0] * SUBSCRIBERS
        for desk in range(SUBSCRIBERS):
            node = await stack.enter_async_context(gossamer.Node(join=[exchange.address]))
            events = await stack.enter_async_context(
                node.subscribe("trades", f"desk = {desk} AND price >= 100")
            )
            reader = asyncio.create_task(count(events, desk, taken))
            stack.callback(reader.cancel)

        receipts = [
            await exchange.publish(
                "trades", {"symbol": f"S{n % 50}", "price": 50.0 + n % 100, "desk": n % SUBSCRIBERS}
            )
            for n in range(TRADES)
        ]
        matched = sum([(await receipt).matched for receipt in receipts])
        # The receipts count the hand-overs, and the readers are about to take them.
        while sum(taken) < matched:
            await asyncio.sleep(0.01)
        print(f"{TRADES} trades, {matched} wanted by a subscriber")
        print("taken by desk:", *taken)


async def count(events: gossamer.Subscription, desk: int, taken: list[int]) -> None:
    async for event in events:
        assert event["desk"] == desk
        assert event["price"] >= 100
        taken[desk] += 1


gossamer.run(main())
